//! Sends requests to a server: connections, credentials, retries and limits.

use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use ureq::{Agent, Body, BodyReader};

use super::agent::{AgentFactory, LimitedBody, StoppableCall, head_of, parse_proxy, run};
use super::answer::{ApiStatus, MOST_STATUS, RequestLine, ResponseHead};
use super::notices::{LONG, RequestLabel, RequestNotices};
use super::path::RequestPath;
use super::request_error::{RequestFault, cause_of};
use super::request_metrics::RequestCounters;
use super::retry::{Repetitions, RequestAttempt, RetryLimits, next_delay};
use super::tls::Tls;
use crate::config::authenticator::Authenticator;
use crate::config::cluster::ConfigParts;
use crate::config::cluster_info::ClusterInfo;
use crate::config::error::ConfigError;
use crate::config::identity::Impersonation;
use crate::config::proxy::ProxyUrl;
use crate::config::secret::Secret;
use crate::sync::Mutex;
use homeostat::base::{CancellationToken, Clock};
use homeostat::rt::{AutoResetEvent, Draws, Nanos, OwnerProcess};
use homeostat_net::NameLookUps;
use homeostat_objects::ObjectRef;
use homeostat_objects::store::LONGEST_SILENCE;

/// How often certificate files are compared with the certificates in use.
const CERTIFICATE_PERIOD: Duration = Duration::from_secs(60);

/// The default limit for the server's silence in a watch. A watch of objects notices silence earlier, because it knows
/// whether the server sends bookmarks.
const WATCH_READ: Duration = Duration::from_secs(330);
const _: () = assert!(WATCH_READ.as_secs() > LONGEST_SILENCE.as_secs(), "the watch must be the first to notice");

/// The limits of requests.
#[derive(Clone, Debug)]
pub(crate) struct TransportLimits {
    /// The timeout for establishing a connection.
    pub(crate) connect: Duration,
    /// How long the server may be silent.
    pub(crate) read: Duration,
    /// How long the server may be silent in a watch.
    pub(crate) watch_read: Duration,
    /// The largest answer in bytes.
    pub(crate) answer: u64,
    pub(crate) retry: RetryLimits,
}

impl Default for TransportLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            read: Duration::from_secs(60),
            watch_read: WATCH_READ,
            answer: 1 << 30,
            retry: RetryLimits::default(),
        }
    }
}

/// A request.
#[derive(Debug)]
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a RequestPath,
    /// The content type and the content.
    pub(crate) body: Option<(&'static str, Vec<u8>)>,
    pub(crate) accept: &'static str,
}

impl HttpRequest<'_> {
    fn reads(&self) -> bool {
        self.method == Method::GET
    }
}

/// Sends requests to one server.
pub(crate) struct HttpTransport {
    server: String,
    headers: HeaderMap,
    agents: AgentFactory,
    authenticator: Arc<Authenticator>,
    limits: TransportLimits,
    clock: Clock,
    draws: Mutex<Draws>,
    calls: Mutex<CallAgent>,
    notices: Arc<RequestNotices>,
    pub(crate) counters: RequestCounters,
}

/// The agent for all requests except watches, with its idle connections.
struct CallAgent {
    agent: Agent,
    /// The generation of the certificates that its connections use.
    certificates: u64,
    /// The process that opened its connections. A forked process opens its own.
    owner: OwnerProcess,
    plugin_runs: u64,
    next_check: Nanos,
}

/// The answer of a watch, which stays open.
pub(crate) struct OpenAnswer {
    pub(crate) reader: BodyReader<'static>,
    /// Shuts the connection down, even while another thread reads from it.
    pub(crate) agent: Agent,
}

/// A complete answer.
pub(crate) type Answer = (ResponseHead, Vec<u8>);

impl HttpTransport {
    pub(crate) fn new(
        parts: &ConfigParts,
        proxy: Option<&ProxyUrl>,
        user_agent: String,
        limits: TransportLimits,
        clock: Clock,
    ) -> Result<Self, ConfigError> {
        let origin = || parts.origin.clone();
        let proxy = proxy.map(parse_proxy).transpose()?;
        let mut headers = HeaderMap::new();
        for (name, value) in parts.acts_as.iter().flat_map(Impersonation::headers) {
            let invalid = || ConfigError::new(origin(), format!("the header {name} cannot be {value:?}"));
            let header = HeaderName::try_from(name.as_str()).map_err(|_| invalid())?;
            headers.append(header, HeaderValue::try_from(value.as_str()).map_err(|_| invalid())?);
        }
        HeaderValue::try_from(user_agent.as_str())
            .map_err(|_| ConfigError::new("user agent", format!("{user_agent:?} cannot be sent in a header")))?;
        let authenticator = Authenticator::new(parts.sent_credentials(), ClusterInfo::of(parts), clock.clone());
        let authenticator = Arc::new(authenticator);
        let tls = Arc::new(Tls::new(parts, Arc::clone(&authenticator))?);
        let TransportLimits { connect, read, .. } = limits;
        let look_ups = NameLookUps::new(Clock::system(), "kubernetes-resolver");
        let agents = AgentFactory { tls, proxy, user_agent, connect, read, look_ups };
        Ok(Self::of(parts.server.clone(), headers, agents, authenticator, limits, clock, Arc::default()))
    }

    /// Returns a transport with the same credentials, its own connections and this call timeout.
    pub(crate) fn sibling(&self, call_timeout: Duration) -> Self {
        let mut limits = self.limits.clone();
        limits.retry.time = call_timeout;
        (limits.connect, limits.read) = (limits.connect.min(call_timeout), limits.read.min(call_timeout));
        let agents = AgentFactory { connect: limits.connect, read: limits.read, ..self.agents.clone() };
        let (headers, authenticator) = (self.headers.clone(), Arc::clone(&self.authenticator));
        let (clock, notices) = (self.clock.clone(), Arc::clone(&self.notices));
        Self::of(self.server.clone(), headers, agents, authenticator, limits, clock, notices)
    }

    fn of(
        server: String,
        headers: HeaderMap,
        agents: AgentFactory,
        authenticator: Arc<Authenticator>,
        limits: TransportLimits,
        clock: Clock,
        notices: Arc<RequestNotices>,
    ) -> Self {
        let next_check = clock.nanos().after(CERTIFICATE_PERIOD);
        let owner = OwnerProcess::current();
        let calls = CallAgent { agent: agents.pooled(), certificates: 0, owner, plugin_runs: 0, next_check };
        Self {
            counters: RequestCounters::new(&server),
            server,
            headers,
            agents,
            authenticator,
            limits,
            draws: Mutex::new(clock.draws()),
            calls: Mutex::new(calls),
            notices,
            clock,
        }
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Describes a request for its errors.
    pub(crate) fn line(
        &self,
        verb: &'static str,
        path: &RequestPath,
        object: &ObjectRef,
        version: &str,
    ) -> RequestLine {
        let url = format!("{}{}", self.server, path.without_query());
        RequestLine { verb, url, object: object.clone(), version: version.to_owned() }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns a random number.
    pub(crate) fn draw(&self) -> u64 {
        self.draws.lock().draw()
    }

    /// Sends a request and reads the answer. Repeats the request where this is safe, within the call timeout.
    ///
    /// With a stop, the request has its own connection, and the stop fails the call.
    pub(crate) fn call(
        &self,
        request: &HttpRequest<'_>,
        stoppable: Option<&StoppableCall<'_>>,
    ) -> Result<Answer, RequestFault> {
        let stop = stoppable.map(|call| call.stop);
        self.repeat(request, stop, |until| {
            let (used, pooled) = (self.authorization(until, stop)?, self.call_agent());
            let own = stoppable.map(|call| {
                let kept = call.agent.lock().take();
                kept.unwrap_or_else(|| self.agents.stoppable(call.stop, self.limits.read))
            });
            let agent = own.as_ref().map_or(&pooled, |own| &own.agent);
            let left = until.since(self.clock.nanos());
            let response = self.send(agent, request, used.as_ref(), Some(left))?;
            let answer = self.read(response, Nanos::NEVER)?;
            if let Some(call) = stoppable {
                *call.agent.lock() = own;
            }
            Ok((used, answer))
        })
    }

    /// Sends the request of a watch. Returns the open answer, or the complete answer if it is an error. Cancelling
    /// `stop` ends all waits.
    pub(crate) fn open(
        &self,
        request: &HttpRequest<'_>,
        stop: &CancellationToken,
    ) -> Result<Result<OpenAnswer, Answer>, RequestFault> {
        let mut open = None;
        let answer = self.repeat(request, Some(stop), |until| {
            let used = self.authorization(until, Some(stop))?;
            self.call_agent();
            let TransportLimits { read, watch_read, .. } = self.limits;
            let own = self.agents.stoppable(stop, watch_read);
            let response = self.send(&own.agent, request, used.as_ref(), None)?;
            let head = head_of(&response);
            if !head.is_success() {
                return Ok((used, self.read(response, self.clock.nanos().after(read))?));
            }
            if let Some(fault) = head.fault() {
                return Err(RequestFault::Unusable { fault, request_id: head.request_id });
            }
            own.silence.set(watch_read);
            open = Some(OpenAnswer { reader: response.into_body().into_reader(), agent: own.agent.clone() });
            Ok((used, (head, Vec::new())))
        })?;
        Ok(open.ok_or(answer))
    }

    /// Calls `attempt` until its result is final. The argument of `attempt` is the deadline of the call.
    fn repeat(
        &self,
        request: &HttpRequest<'_>,
        stop: Option<&CancellationToken>,
        mut attempt: impl FnMut(Nanos) -> Result<(Option<Secret<String>>, Answer), RequestFault>,
    ) -> Result<Answer, RequestFault> {
        let started = self.clock.nanos();
        let until = started.after(self.limits.retry.time);
        let mut repeated = Repetitions::default();
        let (mut renewed, mut is_reported) = (false, false);
        let path = request.path.without_query();
        let target = RequestLabel { method: &request.method, server: &self.server, path };
        loop {
            let begun = self.clock.nanos();
            let result = attempt(until);
            let now = self.clock.nanos();
            self.count(request, &result, now.since(begun));
            if let Ok((_, (head, _))) = &result {
                self.notices.warn(target, &head.warnings);
            }
            let tried = match &result {
                Ok((used, (ResponseHead { code: 401, .. }, _))) if !renewed && self.renew(used.as_ref()) => {
                    renewed = true;
                    continue;
                }
                Ok((_, (head, body))) => attempt_of(head, body),
                Err(RequestFault::NotSent(_)) => RequestAttempt::NotSent,
                Err(RequestFault::Lost(_)) => RequestAttempt::Lost,
                Err(_) => RequestAttempt::Answered { status: 0, retry_after: None },
            };
            let spent = now.since(started);
            let delay = next_delay(request.reads(), tried, &mut repeated, spent, &self.limits.retry, self.draw());
            let stopped = || stop.is_some_and(CancellationToken::is_cancelled);
            match (result, delay) {
                (result, Some(delay)) if !stopped() => {
                    if !is_reported && spent + delay >= LONG {
                        is_reported = true;
                        self.notices.repeats(target, now, self.limits.retry.time, &fault_of(result));
                    }
                    self.pause(delay, stop);
                }
                (Ok((_, answer)), _) => return Ok(answer),
                (Err(cause), _) => return Err(cause),
            }
        }
    }

    fn count(
        &self,
        request: &HttpRequest<'_>,
        result: &Result<(Option<Secret<String>>, Answer), RequestFault>,
        took: Duration,
    ) {
        let sent = request.body.as_ref().map_or(0, |(_, body)| body.len());
        let (code, received) = result.as_ref().map_or((None, 0), |(_, (head, body))| (Some(head.code), body.len()));
        self.counters.record(&request.method, code, took, sent, received);
    }

    /// Waits for `delay`, or until `stop` is cancelled.
    fn pause(&self, delay: Duration, stop: Option<&CancellationToken>) {
        let event = AutoResetEvent::new(self.clock.clone());
        let wake = Arc::clone(&event);
        let _guard = stop.map(|stop| stop.on_cancel(move || wake.set()));
        event.wait_until(self.clock.nanos().after(delay));
    }

    /// Returns the credentials for a request. Waits for them until the time `until`, or until `stop` is cancelled.
    fn authorization(
        &self,
        until: Nanos,
        stop: Option<&CancellationToken>,
    ) -> Result<Option<Secret<String>>, RequestFault> {
        let found = self.authenticator.authorization(until, stop);
        found.map_err(|error| RequestFault::Credentials(error.to_string()))
    }

    /// Handles that the server has refused these credentials. Returns whether new ones may be found.
    fn renew(&self, used: Option<&Secret<String>>) -> bool {
        let renewable = self.authenticator.refused(used);
        let mut calls = self.calls.lock();
        calls.next_check = Nanos::ZERO;
        let certificates = calls.certificates;
        drop(calls);
        renewable || self.agents.tls.refresh() != certificates
    }

    /// Returns the agent for ordinary requests. After a change of certificates this is a new agent, and the old one's
    /// idle connections are closed.
    fn call_agent(&self) -> Agent {
        let mut calls = self.calls.lock();
        let now = self.clock.nanos();
        let runs = self.authenticator.plugin_runs();
        if self.clock.reached(calls.next_check) || runs != calls.plugin_runs {
            (calls.next_check, calls.plugin_runs) = (now.after(CERTIFICATE_PERIOD), runs);
            self.agents.tls.refresh();
        }
        let generation = self.agents.tls.generation();
        if calls.certificates != generation || !calls.owner.is_current() {
            (calls.certificates, calls.owner) = (generation, OwnerProcess::current());
            calls.agent = self.agents.pooled();
        }
        calls.agent.clone()
    }

    fn send(
        &self,
        agent: &Agent,
        request: &HttpRequest<'_>,
        authorization: Option<&Secret<String>>,
        limit: Option<Duration>,
    ) -> Result<Response<Body>, RequestFault> {
        let mut head = Request::builder().method(request.method.clone());
        head = head.uri(format!("{}{}", self.server, request.path.as_str()));
        head = head.header(ACCEPT, request.accept).header(ACCEPT_ENCODING, "identity");
        for (name, value) in &self.headers {
            head = head.header(name, value);
        }
        if let Some(value) = authorization {
            let mut value = HeaderValue::try_from(value.reveal().as_str()).map_err(|_| {
                RequestFault::Credentials("the token has characters that no header may have".to_owned())
            })?;
            value.set_sensitive(true);
            head = head.header(AUTHORIZATION, value);
        }
        match &request.body {
            Some((content_type, body)) => {
                let request = head.header(CONTENT_TYPE, *content_type).body(body.as_slice());
                run(agent, request, limit)
            }
            None => run(agent, head.body(()), limit),
        }
    }

    /// Reads an answer to its end, which must arrive before the time `until`.
    fn read(&self, response: Response<Body>, until: Nanos) -> Result<Answer, RequestFault> {
        let head = head_of(&response);
        if let Some(fault) = head.fault() {
            return Err(RequestFault::Unusable { fault, request_id: head.request_id });
        }
        let limit = if head.is_success() { self.limits.answer } else { MOST_STATUS };
        let body = response.into_body();
        // The length that a server announces does not justify reserving much memory.
        let expected = body.content_length().unwrap_or(0).min(1 << 24);
        let mut content = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
        let body = LimitedBody { body: body.into_reader(), clock: &self.clock, until };
        let read = body.take(limit + 1).read_to_end(&mut content);
        read.map_err(|error| cause_of(error.into()))?;
        if content.len() as u64 > limit && head.is_success() {
            let fault =
                format!("the answer has more than {limit} bytes; list in pages, or raise the limit of the client");
            return Err(RequestFault::Unusable { fault, request_id: head.request_id });
        }
        Ok((head, content))
    }
}

/// Reduces an answer to the facts that decide about a repetition.
fn attempt_of(head: &ResponseHead, body: &[u8]) -> RequestAttempt {
    let status = if head.code == 504 { ApiStatus::read(body) } else { ApiStatus::default() };
    if status.is_behind() {
        RequestAttempt::Behind { retry_after: status.retry_after(head) }
    } else {
        RequestAttempt::Answered { status: head.code, retry_after: head.retry_after }
    }
}

/// Returns the fault of an attempt that is repeated.
fn fault_of(result: Result<(Option<Secret<String>>, Answer), RequestFault>) -> RequestFault {
    result.map_or_else(
        |fault| fault,
        |(_, (head, body))| RequestFault::Status {
            code: head.code,
            message: ApiStatus::read(&body).message().to_owned(),
            request_id: head.request_id,
        },
    )
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport").field("server", &self.server).finish_non_exhaustive()
    }
}
