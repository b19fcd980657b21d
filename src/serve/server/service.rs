//! Checks users and their rights, finds the handler, and logs writes.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use serde_json::Value;

use super::hosts::{AllowedHosts, check_origin};
use super::users::{ClientCredentials, KnownUsers};
use crate::base::text::one_line;
use crate::serve::access::{Access, AccessRequest, AccessTarget, Authorizer, UserInfo};
use crate::serve::http::{
    Handler, IncomingRequest, LoggedOutcome, PeerInfo, Reply, RequestHead, RequestTarget, Service, canonical_path,
};

/// The first segments of the paths of objects.
const OBJECT_ROOTS: [&str; 4] = ["api", "apis", "openapi", "version"];
/// Headers with which a user of Kubernetes acts as another user.
const IMPERSONATION: HeaderName = HeaderName::from_static("impersonate-user");

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
}

impl Service for ServerService {
    fn admit(&self, head: &RequestHead, peer: &PeerInfo) -> Result<UserInfo, Box<Reply>> {
        self.decide(head, peer).map_err(|(status, user, message)| {
            let RequestTarget { path, query, .. } = &head.target;
            self.audit(&user, &head.method, path, is_rehearsal(query), peer.peer.ip(), status);
            Box::new(refusal(head, status, &message, self.challenge(status, peer)))
        })
    }

    fn answer(&self, request: IncomingRequest) -> Reply {
        let handler = if is_object_path(&request.segments) {
            self.objects.as_ref()
        } else {
            self.reviewer(&canonical_path(&request.segments)).or(self.pages.as_ref())
        };
        let reply = match handler {
            Some(handler) => handler.handle(&request),
            None => Reply::failure(StatusCode::NOT_FOUND, "NotFound", "the server has no such path"),
        };
        if !is_own_review(&request.segments) {
            let IncomingRequest { method, path, query, user, peer, .. } = &request;
            let dry_run = || is_rehearsal(query) || (*method == Method::DELETE && is_rehearsed_deletion(&request.body));
            let by_status = || LoggedOutcome { status: reply.status, dry_run: dry_run() };
            let LoggedOutcome { status, dry_run } = reply.logged.unwrap_or_else(by_status);
            self.audit(user, method, path, dry_run, peer.ip(), status);
        }
        reply
    }
}

/// The status of a refusal, the user as far as known, and a text.
type Decline = (StatusCode, UserInfo, String);

impl ServerService {
    fn decide(&self, head: &RequestHead, peer: &PeerInfo) -> Result<UserInfo, Decline> {
        let forbid = |message: String| (StatusCode::FORBIDDEN, UserInfo::default(), message);
        self.hosts.check(head, peer.local).map_err(forbid)?;
        check_origin(head, peer).map_err(|message| forbid(message.to_owned()))?;
        if head.headers.contains_key(&IMPERSONATION) {
            return Err(forbid("the server does not let users act as other users".to_owned()));
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
            Err(message) => return Err((StatusCode::UNAUTHORIZED, UserInfo::default(), message.to_owned())),
        };
        if is_public || is_object_path(&head.target.segments) {
            return Ok(user);
        }
        let request = AccessRequest { user, verb: verb(&head.method), target: AccessTarget::Path(path) };
        match (self.authorizer)(&request) {
            Access::Allow => Ok(request.user),
            Access::Deny(reason) => {
                let message = format!("{request} is forbidden: {reason}");
                Err((StatusCode::FORBIDDEN, request.user, message))
            }
        }
    }

    /// Returns the handler of the reviews at a path.
    fn reviewer(&self, path: &str) -> Option<&Arc<dyn Handler>> {
        self.reviews.iter().find(|(known, _)| known == path).map(|(_, handler)| handler)
    }

    fn user(&self, head: &RequestHead, peer: &PeerInfo) -> Result<UserInfo, &'static str> {
        if !self.has_authentication {
            return Ok(UserInfo::default());
        }
        let is_private = peer.is_tls || peer.peer.ip().to_canonical().is_loopback();
        let sent = head.single(&header::AUTHORIZATION);
        if sent.is_none() && head.headers.contains_key(header::AUTHORIZATION) {
            return Err("the header Authorization occurs twice or is not text");
        }
        match (self.users.check(sent, is_private), &peer.certificate) {
            (ClientCredentials::Of(user), _) => Ok(user),
            (ClientCredentials::Wrong(message), _) => Err(message),
            (ClientCredentials::Missing, Some(user)) => Ok(user.clone()),
            (ClientCredentials::Missing, None) if self.allows_anonymous => Ok(UserInfo::default()),
            (ClientCredentials::Missing, None) => Err("the request has no credentials"),
        }
    }

    /// Returns the header that tells a client how to log in.
    fn challenge(&self, status: StatusCode, peer: &PeerInfo) -> Option<HeaderValue> {
        let is_private = peer.is_tls || peer.peer.ip().to_canonical().is_loopback();
        let scheme = if self.users.has_passwords() && is_private { "Basic realm=\"homeostat\"" } else { "Bearer" };
        (status == StatusCode::UNAUTHORIZED).then(|| HeaderValue::from_static(scheme))
    }

    /// Logs a write. Logs no query and no header, because they may have secrets.
    fn audit(
        &self,
        user: &UserInfo,
        method: &Method,
        path: &str,
        dry_run: bool,
        peer: std::net::IpAddr,
        status: StatusCode,
    ) {
        if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return;
        }
        let component = self.name.as_str();
        let user = if user.name.is_empty() { "anonymous".to_owned() } else { one_line(&user.name) };
        let (method, path, status) = (method.as_str(), one_line(path), status.as_u16());
        let client = peer.to_canonical();
        let (user, path) = (user.as_str(), path.as_str());
        log::info!(
            component, user, method, path, dry_run, client:%, status;
            "{component}: {user} at {client}: {method} {path}: {status}, dry run: {dry_run}"
        );
    }
}

/// Returns whether the query asks to store nothing.
fn is_rehearsal(query: &[(String, String)]) -> bool {
    query.iter().any(|(name, value)| name == "dryRun" && value == "All")
}

/// Returns whether the options in the body of a deletion ask to store nothing.
fn is_rehearsed_deletion(body: &[u8]) -> bool {
    let options: Value = serde_json::from_slice(body).unwrap_or_default();
    options["dryRun"].as_array().is_some_and(|runs| runs.iter().any(|run| run == "All"))
}

/// Returns whether a user asks for the own name or access. Such a request writes nothing.
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

/// Returns the verb of Kubernetes for a method.
fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "create",
    }
}

/// Returns the reply to a request that is not served. Clients of Kubernetes get a `Status`, other clients get text.
fn refusal(head: &RequestHead, status: StatusCode, message: &str, challenge: Option<HeaderValue>) -> Reply {
    let reply = if is_object_path(&head.target.segments) {
        let reason = if status == StatusCode::UNAUTHORIZED { "Unauthorized" } else { "Forbidden" };
        Reply::failure(status, reason, message)
    } else {
        Reply::text(status, format!("{message}\n"))
    };
    match challenge {
        Some(challenge) => reply.with_header(header::WWW_AUTHENTICATE, challenge),
        None => reply,
    }
}
