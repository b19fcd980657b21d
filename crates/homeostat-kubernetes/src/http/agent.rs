//! The agents that send requests: pools of connections, and single connections that a stop closes.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use ureq::unversioned::transport::Connector;
use ureq::{Agent, AsSendBody, Body, Proxy, Timeout};

use super::answer::{ResponseHead, warnings};
use super::connector::{SilenceLimit, TcpConnector, TlsConnector};
use super::request_error::{RequestFault, cause_of};
use super::resolver::AddressResolver;
use super::tls::Tls;
use super::tunnel::TunnelConnector;
use crate::config::cluster::port_of;
use crate::config::error::ConfigError;
use crate::config::proxy::ProxyUrl;
use crate::sync::Mutex;
use homeostat::base::{CancellationToken, Clock, OnCancel};
use homeostat::rt::Nanos;
use homeostat_net::NameLookUps;

/// Creates the agents of a client.
#[derive(Clone)]
pub(super) struct AgentFactory {
    pub(super) tls: Arc<Tls>,
    pub(super) proxy: Option<Proxy>,
    pub(super) user_agent: String,
    /// The timeout for establishing a connection.
    pub(super) connect: Duration,
    /// How long the server may be silent.
    pub(super) read: Duration,
    pub(super) look_ups: NameLookUps,
}

/// An agent for one request. A cancellation closes its connection and fails its calls.
pub(crate) struct StoppableAgent {
    pub(super) agent: Agent,
    /// How long the server may be silent. The limit may change while an answer is read.
    pub(super) silence: SilenceLimit,
    /// Must be the last field, because its drop waits for a running shutdown.
    _guard: OnCancel,
}

/// A call that a stop can end. It can reuse the connection of an earlier call, and leave it for a later one.
pub(crate) struct StoppableCall<'a> {
    pub(super) stop: &'a CancellationToken,
    pub(super) agent: Mutex<Option<StoppableAgent>>,
}

impl<'a> StoppableCall<'a> {
    pub(crate) fn new(stop: &'a CancellationToken) -> Self {
        Self { stop, agent: Mutex::new(None) }
    }

    pub(crate) fn stop(&self) -> &'a CancellationToken {
        self.stop
    }
}

/// The connections of unfinished paged lists.
///
/// Without them, each page of a stoppable list would need a new connection. Each stop token has one list at a time, so
/// the connection of an earlier unfinished list with the same token is closed.
#[derive(Default)]
pub(crate) struct PageConnections(Mutex<Vec<PageConnection>>);

struct PageConnection {
    stop: CancellationToken,
    /// The token of the next page.
    token: String,
    agent: StoppableAgent,
}

/// How many connections are kept for lists that may never continue.
const MOST_KEPT: usize = 64;

impl PageConnections {
    /// Returns a call for a page, with the connection of the previous page.
    pub(crate) fn call<'a>(&self, token: Option<&str>, stop: &'a CancellationToken) -> StoppableCall<'a> {
        // Drop the other connections without holding the lock.
        let own: Vec<_> = self.0.lock().extract_if(.., |kept| kept.stop.is_same(stop)).collect();
        let next = own.into_iter().find(|kept| Some(kept.token.as_str()) == token);
        StoppableCall { stop, agent: Mutex::new(next.map(|kept| kept.agent)) }
    }

    /// Keeps a call's connection for the next page.
    pub(crate) fn keep(&self, token: &str, call: StoppableCall<'_>) {
        let Some(agent) = call.agent.into_inner() else { return };
        let next = PageConnection { stop: call.stop.clone(), token: token.to_owned(), agent };
        let mut kept = self.0.lock();
        // A stopped list does not continue.
        let ended: Vec<_> = kept.extract_if(.., |kept| kept.stop.is_cancelled()).collect();
        let oldest = (kept.len() >= MOST_KEPT).then(|| kept.remove(0));
        kept.push(next);
        drop(kept);
        drop((ended, oldest));
    }
}

impl AgentFactory {
    /// Creates an agent with a pool of connections.
    pub(super) fn pooled(&self) -> Agent {
        self.agent(SilenceLimit::new(self.read), None, None)
    }

    /// Creates an agent for one request. The head of the answer must arrive within the client's read timeout, or
    /// within `read` if that is shorter.
    pub(super) fn stoppable(&self, stop: &CancellationToken, read: Duration) -> StoppableAgent {
        let read = read.min(self.read);
        let silence = SilenceLimit::new(read);
        let agent = self.agent(silence.clone(), Some(read), Some(stop));
        let ended = agent.clone();
        StoppableAgent { agent, silence, _guard: stop.on_cancel(move || ended.shutdown()) }
    }

    fn agent(&self, silence: SilenceLimit, head: Option<Duration>, stop: Option<&CancellationToken>) -> Agent {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            // A deletion has a body.
            .allow_non_standard_methods(true)
            .proxy(self.proxy.clone())
            .user_agent(self.user_agent.as_str())
            .timeout_resolve(Some(self.connect))
            .timeout_connect(Some(self.connect))
            .timeout_recv_response(head)
            .timeout_per_write(Some(self.read))
            .max_idle_connections(64)
            .max_idle_connections_per_host(64)
            .max_idle_age(Duration::from_secs(60))
            .max_response_header_size(32 * 1024)
            .input_buffer_size(32 * 1024)
            .output_buffer_size(16 * 1024)
            .build();
        let tls = TlsConnector(Arc::clone(&self.tls));
        let connector = ().chain(TunnelConnector::default()).chain(TcpConnector(silence)).chain(tls);
        Agent::with_parts(config, connector, AddressResolver::new(stop.cloned(), self.look_ups.clone()))
    }
}

/// Parses the URL of a proxy. Errors do not show it, because it may have a password.
pub(super) fn parse_proxy(proxy: &ProxyUrl) -> Result<Proxy, ConfigError> {
    let fault = |fault: String| ConfigError::new(&proxy.origin, fault);
    let url = proxy.reveal();
    let scheme = url.split_once("://").map_or("http", |(scheme, _)| scheme).to_ascii_lowercase();
    if !matches!(scheme.as_str(), "http" | "https") {
        return Err(fault(format!("the proxy has the scheme {scheme:?}, but must be an http or https proxy")));
    }
    let unusable = || fault("the proxy is not a URL such as http://proxy:3128".to_owned());
    let parsed = Proxy::new(url).map_err(|_| unusable())?;
    let authority = parsed.uri().authority().ok_or_else(unusable)?;
    // In a password, one of these characters would end the host, and another host would receive the requests.
    if url.contains(['#', '?']) || !matches!(parsed.uri().path(), "" | "/") {
        let advice = "in a password write %23 for #, %2F for /, %3F for ?";
        return Err(fault(format!("the proxy must have nothing after its host and port; {advice}")));
    }
    port_of(authority).map_err(|()| fault("the port of the proxy must be a number from 1 to 65535".to_owned()))?;
    Ok(parsed)
}

/// Sends a request. Returns its answer as soon as the head has arrived. `limit` is the time until the end of the
/// answer.
pub(super) fn run<B: AsSendBody>(
    agent: &Agent,
    request: http::Result<Request<B>>,
    limit: Option<Duration>,
) -> Result<Response<Body>, RequestFault> {
    let request = request.map_err(|error| RequestFault::NotSent(error.to_string()))?;
    let request = agent.configure_request(request).timeout_global(limit).build();
    agent.run(request).map_err(cause_of)
}

/// Returns the head of an answer.
pub(super) fn head_of(response: &Response<Body>) -> ResponseHead {
    let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let all = |name: &str| response.headers().get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    let media_type = text("content-type").unwrap_or_default().split(';').next().unwrap_or_default();
    ResponseHead {
        code: response.status().as_u16(),
        media_type: media_type.trim().to_ascii_lowercase(),
        retry_after: text("retry-after").and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs),
        request_id: text("audit-id").map(str::to_owned),
        location: text("location").map(str::to_owned),
        warnings: all("warning").flat_map(warnings).collect(),
    }
}

/// The body of an answer. Reads after the time `until` fail.
pub(super) struct LimitedBody<'a, R> {
    pub(super) body: R,
    pub(super) clock: &'a Clock,
    pub(super) until: Nanos,
}

impl<R: Read> Read for LimitedBody<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.clock.reached(self.until) {
            return Err(ureq::Error::Timeout(Timeout::RecvBody).into_io());
        }
        self.body.read(buffer)
    }
}
