//! Authenticates and authorizes users, finds the handler and logs writes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use serde_json::Value;

use super::hosts::{AllowedHosts, check_origin};
use super::layer::{Layer, NextHandler};
use super::throttle::GuessThrottle;
use super::users::{ClientCredentials, KnownUsers};
use super::verb::metric_verb;
use crate::access::{Access, AccessRequest, AccessTarget, Authorizer, UserInfo};
use crate::http::{
    Handler, HttpCounts, IncomingRequest, LoggedOutcome, PeerInfo, RefusedRequest, Reply, RequestHead, RequestTarget,
    Service, canonical_path, client_of, increment,
};
use crate::log_limiter::{LogLimiter, omitted_lines};
use homeostat::base::Clock;
use homeostat::rt::one_line;

/// The first segments of the paths for objects.
const OBJECT_ROOTS: [&str; 4] = ["api", "apis", "openapi", "version"];
/// The prefix of the headers with which a Kubernetes user acts as another user or drops rights.
const IMPERSONATION: &str = "impersonate-";
const IMPERSONATED_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// The decisions of one server.
pub(super) struct ServerService {
    pub(super) name: String,
    pub(super) hosts: AllowedHosts,
    pub(super) users: KnownUsers,
    /// Whether requests without credentials are served.
    pub(super) allows_anonymous: bool,
    /// Whether the server has users.
    pub(super) has_authentication: bool,
    /// The paths that everyone may read.
    pub(super) public_paths: Vec<String>,
    pub(super) authorizer: Authorizer,
    pub(super) objects: Option<Arc<dyn Handler>>,
    pub(super) pages: Option<Arc<dyn Handler>>,
    /// The handlers of admission reviews, by path.
    pub(super) reviews: Vec<(String, Arc<dyn Handler>)>,
    pub(super) layer: Option<Layer>,
    pub(super) counts: Arc<HttpCounts>,
    pub(super) clock: Clock,
    /// Limits the log lines about refused reads and unknown users, by client address and status.
    pub(super) refusals: LogLimiter<(IpAddr, u16)>,
    pub(super) guesses: GuessThrottle,
}

impl Service for ServerService {
    fn admit(&self, head: &RequestHead, peer: &PeerInfo) -> Result<UserInfo, Box<RefusedRequest>> {
        self.decide(head, peer).map_err(|AccessRefusal { status, user, message, is_guess }| {
            let RequestTarget { path, query, .. } = &head.target;
            let (client, mut delay, mut late) = (peer.peer.ip(), Duration::ZERO, "");
            if is_guess {
                delay = self.guesses.delay(client_of(client), self.clock.nanos());
                late = if delay.is_zero() { "" } else { "; answered late, because its address has failed often" };
            }
            let is_read = is_read(&head.method);
            let is_limited = is_read || user.name.is_empty();
            if let Some(missing) = if is_limited { self.omitted_before(client, status) } else { Some(0) } {
                let (reason, missing) = (one_line(format_args!("{message}{late}")), omitted_lines(missing));
                let line = LoggedRequest { user: &user, method: &head.method, path, client, status };
                if is_read {
                    self.log_read(&line, &format!(": {reason}{missing}"));
                } else {
                    self.log_write(&line, asks_for_dry_run(query), &missing);
                }
            }
            let reply = refusal(&head.target.segments, status, &message, self.challenge(status, peer));
            Box::new(RefusedRequest { reply, delay })
        })
    }

    fn verb(&self, head: &RequestHead) -> &'static str {
        metric_verb(head)
    }

    #[cfg(feature = "tls")]
    fn log_handshake(&self, peer: IpAddr, error: &std::io::Error) {
        let Some(missing) = self.refusals.allow((client_of(peer), 0)) else { return };
        let (component, client, error) = (self.name.as_str(), peer.to_canonical(), one_line(error));
        let (error, more) = (error.as_str(), omitted_lines(missing));
        log::info!(component, client:%, error; "{component}: TLS refuses the client at {client}: {error}{more}");
    }

    fn answer(&self, request: IncomingRequest) -> Reply {
        let reply = match &self.layer {
            Some(layer) => layer(&request, &NextHandler(self)),
            None => self.handle(&request),
        };
        if !is_own_review(&request.segments) {
            let IncomingRequest { method, path, query, user, peer, .. } = &request;
            let dry_run =
                || asks_for_dry_run(query) || (*method == Method::DELETE && deletion_asks_for_dry_run(&request.body));
            let by_status = || LoggedOutcome { status: reply.status, dry_run: dry_run() };
            let LoggedOutcome { status, dry_run } = reply.logged.unwrap_or_else(by_status);
            let client = peer.ip();
            let line = LoggedRequest { user, method, path, client, status };
            if !is_read(method) {
                self.log_write(&line, dry_run, "");
            } else if status == StatusCode::FORBIDDEN
                && let Some(missing) = self.omitted_before(client, status)
            {
                self.log_read(&line, &omitted_lines(missing));
            }
        }
        reply
    }
}

impl Handler for ServerService {
    /// Answers a request by the handler of its path.
    fn handle(&self, request: &IncomingRequest) -> Reply {
        if let Err((status, message)) = check_impersonation(&request.headers) {
            return refusal(&request.segments, status, &message, None);
        }
        let handler = if is_object_path(&request.segments) {
            self.objects.as_ref()
        } else {
            self.reviewer(&canonical_path(&request.segments)).or(self.pages.as_ref())
        };
        let Some(handler) = handler else {
            let message = format!("the server has no path {}", one_line(&request.path));
            return Reply::failure(StatusCode::NOT_FOUND, "NotFound", &message);
        };
        handler.handle(request)
    }
}

/// Why a request is refused.
struct AccessRefusal {
    status: StatusCode,
    /// The user, as far as known.
    user: UserInfo,
    message: String,
    /// Whether the client may be guessing credentials.
    is_guess: bool,
}

impl AccessRefusal {
    fn new(status: StatusCode, user: UserInfo, message: String) -> Self {
        Self { status, user, message, is_guess: false }
    }
}

/// Why a request has no user.
struct NoUser {
    message: &'static str,
    /// Whether the client may be guessing credentials.
    is_guess: bool,
}

impl ServerService {
    /// Sets the clock.
    pub(super) fn with_clock(self, clock: &Clock) -> Self {
        Self { clock: clock.clone(), refusals: LogLimiter::new(clock.clone()), ..self }
    }

    fn decide(&self, head: &RequestHead, peer: &PeerInfo) -> Result<UserInfo, AccessRefusal> {
        let forbid = |message: String| AccessRefusal::new(StatusCode::FORBIDDEN, UserInfo::default(), message);
        self.hosts.check(head, peer.local).map_err(forbid)?;
        check_origin(head, peer).map_err(|message| forbid(message.to_owned()))?;
        // A layer sees these requests first.
        if self.layer.is_none() {
            check_impersonation(&head.headers)
                .map_err(|(status, message)| AccessRefusal::new(status, UserInfo::default(), message))?;
        }
        let path = canonical_path(&head.target.segments);
        let can_be_public = match head.method {
            Method::GET | Method::HEAD => true,
            // A review writes nothing.
            Method::POST => self.reviewer(&path).is_some(),
            _ => false,
        };
        let is_public = can_be_public && self.public_paths.contains(&path);
        let user = match self.user(head, peer) {
            Ok(user) => user,
            Err(_) if is_public => UserInfo::default(),
            Err(NoUser { message, is_guess }) => {
                let (user, message) = (UserInfo::default(), message.to_owned());
                return Err(AccessRefusal { status: StatusCode::UNAUTHORIZED, user, message, is_guess });
            }
        };
        if head.has_body() && is_encoded(head) {
            let message = "the body has a Content-Encoding: send it without one".to_owned();
            return Err(AccessRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, user, message));
        }
        if is_public || is_object_path(&head.target.segments) {
            return Ok(user);
        }
        let request = AccessRequest { user, verb: verb(&head.method), target: AccessTarget::Path(path) };
        match (self.authorizer)(&request) {
            Access::Allow => Ok(request.user),
            Access::Deny(reason) => {
                let message = format!("{request} is forbidden: {reason}");
                Err(AccessRefusal::new(StatusCode::FORBIDDEN, request.user, message))
            }
        }
    }

    /// Returns the handler for reviews at a path.
    fn reviewer(&self, path: &str) -> Option<&Arc<dyn Handler>> {
        self.reviews.iter().find(|(known, _)| known == path).map(|(_, handler)| handler)
    }

    fn user(&self, head: &RequestHead, peer: &PeerInfo) -> Result<UserInfo, NoUser> {
        if !self.has_authentication {
            return Ok(UserInfo::default());
        }
        let known = |user| {
            increment(&self.counts.authenticated);
            Ok(user)
        };
        let unknown = |message, is_guess| {
            increment(&self.counts.unauthenticated);
            Err(NoUser { message, is_guess })
        };
        let is_private = peer.is_tls || peer.peer.ip().to_canonical().is_loopback();
        let sent = head.single(&header::AUTHORIZATION);
        if sent.is_none() && head.headers.contains_key(header::AUTHORIZATION) {
            return unknown("the header Authorization occurs twice or is not text", true);
        }
        match (self.users.check(sent, is_private), &peer.certificate) {
            (ClientCredentials::Of(user), _) => known(user),
            (ClientCredentials::Wrong(message), _) => unknown(message, true),
            (ClientCredentials::Missing, Some(Ok(user))) => known(user.clone()),
            // An authority has signed the certificate, so this is not a guess.
            (ClientCredentials::Missing, Some(Err(message))) => unknown(message, false),
            (ClientCredentials::Missing, None) if self.allows_anonymous => Ok(UserInfo::default()),
            (ClientCredentials::Missing, None) => {
                Err(NoUser { message: "the request has no credentials", is_guess: false })
            }
        }
    }

    /// Returns the header that tells a client how to log in.
    fn challenge(&self, status: StatusCode, peer: &PeerInfo) -> Option<&'static str> {
        let is_private = peer.is_tls || peer.peer.ip().to_canonical().is_loopback();
        let scheme = if self.users.has_passwords() && is_private { "Basic realm=\"homeostat\"" } else { "Bearer" };
        (status == StatusCode::UNAUTHORIZED).then_some(scheme)
    }

    /// Returns how many lines about refusals were omitted before this one. Returns `None` if this line must be omitted
    /// too. The lines are limited because anybody can cause them.
    fn omitted_before(&self, client: IpAddr, status: StatusCode) -> Option<u64> {
        self.refusals.allow((client_of(client), status.as_u16()))
    }

    /// Logs a write. `more` is the text after the fields.
    fn log_write(&self, request: &LoggedRequest<'_>, dry_run: bool, more: &str) {
        let LoggedRequest { client, status, .. } = request;
        let (component, client, status) = (self.name.as_str(), client.to_canonical(), status.as_u16());
        let (user, method, path) = (&*request.user_name(), request.method.as_str(), &*one_line(request.path));
        log::info!(
            component, user, method, path, dry_run, client:%, status;
            "{component}: {user} at {client}: {method} {path}: {status}, dry run: {dry_run}{more}"
        );
    }

    /// Logs a refused read. `more` is the text after the fields.
    fn log_read(&self, request: &LoggedRequest<'_>, more: &str) {
        let LoggedRequest { client, status, .. } = request;
        let (component, client, status) = (self.name.as_str(), client.to_canonical(), status.as_u16());
        let (user, method, path) = (&*request.user_name(), request.method.as_str(), &*one_line(request.path));
        log::info!(
            component, user, method, path, client:%, status;
            "{component}: {user} at {client}: {method} {path}: {status}{more}"
        );
    }
}

/// A request in the log. It has no query and no headers, because they may contain secrets.
struct LoggedRequest<'a> {
    user: &'a UserInfo,
    method: &'a Method,
    path: &'a str,
    client: IpAddr,
    status: StatusCode,
}

impl LoggedRequest<'_> {
    fn user_name(&self) -> String {
        if self.user.name.is_empty() { "anonymous".to_owned() } else { one_line(&self.user.name) }
    }
}

/// Refuses requests that act as another user. Without their user, they would have rights that they meant to drop.
fn check_impersonation(headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
    if headers.contains_key(&IMPERSONATED_USER) {
        return Err((StatusCode::FORBIDDEN, "the server does not let users act as other users".to_owned()));
    }
    match headers.keys().find(|name| name.as_str().starts_with(IMPERSONATION)) {
        None => Ok(()),
        Some(name) => {
            let message =
                format!("the header {name} needs Impersonate-User, and users may not act as other users here");
            Err((StatusCode::BAD_REQUEST, message))
        }
    }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Returns whether the body of a request is compressed or otherwise encoded.
fn is_encoded(head: &RequestHead) -> bool {
    let mut encodings = head.headers.get_all(header::CONTENT_ENCODING).iter();
    encodings.any(|encoding| !encoding.is_empty() && !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Returns whether the query asks for a dry run.
fn asks_for_dry_run(query: &[(String, String)]) -> bool {
    query.iter().any(|(name, value)| name == "dryRun" && value == "All")
}

/// Returns whether the options in a deletion's body ask for a dry run.
fn deletion_asks_for_dry_run(body: &[u8]) -> bool {
    let options: Value = serde_json::from_slice(body).unwrap_or_default();
    options["dryRun"].as_array().is_some_and(|runs| runs.iter().any(|run| run == "All"))
}

/// Returns whether a user asks about their own name or access. Such a request writes nothing.
fn is_own_review(segments: &[String]) -> bool {
    let names: Vec<_> = segments.iter().map(String::as_str).collect();
    matches!(
        names[..],
        ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews" | "selfsubjectrulesreviews"]
            | ["apis", "authentication.k8s.io", "v1", "selfsubjectreviews"]
    )
}

fn is_object_path(segments: &[String]) -> bool {
    segments.first().is_some_and(|first| is_object_root(first))
}

/// Returns whether paths with this first segment belong to the objects.
pub(super) fn is_object_root(segment: &str) -> bool {
    OBJECT_ROOTS.contains(&segment)
}

/// Returns the Kubernetes verb for a method.
fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "create",
    }
}

/// Returns the reply to a refused request. Kubernetes clients get a `Status`, and other clients get text.
fn refusal(segments: &[String], status: StatusCode, message: &str, challenge: Option<&str>) -> Reply {
    let reply = if is_object_path(segments) {
        let reason = match status {
            StatusCode::BAD_REQUEST => "BadRequest",
            StatusCode::UNAUTHORIZED => "Unauthorized",
            StatusCode::UNSUPPORTED_MEDIA_TYPE => "UnsupportedMediaType",
            _ => "Forbidden",
        };
        Reply::failure(status, reason, message)
    } else {
        Reply::text(status, format!("{message}\n"))
    };
    match challenge {
        Some(challenge) => reply.with_header("www-authenticate", challenge),
        None => reply,
    }
}
