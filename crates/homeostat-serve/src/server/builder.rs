//! The settings of a server.

use std::fmt;
use std::net::SocketAddr;
#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::checks::{check_addresses, check_limits, check_public_paths, check_review_paths};
use super::hosts::AllowedHosts;
use super::layer::Layer;
use super::service::ServerService;
use super::throttle::GuessThrottle;
use super::users::KnownUsers;
use super::{PageContext, Server, ServerSettings, ServerVitals};
use crate::access::{Access, AccessRequest, Authorizer, UserInfo};
use crate::api::StoreHealth;
#[cfg(feature = "tls")]
use crate::http::TlsFiles;
use crate::http::{ConnectionRegistry, Handler, HttpLimits};
use crate::log_limiter::LogLimiter;
use homeostat::base::{Clock, StartError, ThreadOptions};

/// The default body limit if the server answers reviews. A review has two objects, each with up to 3 MiB.
const BODY_WITH_REVIEWS: usize = 7 << 20;
/// The stack size of a connection's thread, on which handlers run.
const STACK: usize = 512 << 10;

/// Creates the handler of objects, which asks this authorizer.
type ObjectHandlerFactory = Box<dyn FnOnce(&Authorizer) -> Arc<dyn Handler> + Send>;
/// Creates the handler of pages.
type PageHandlerFactory = Box<dyn FnOnce(PageContext) -> Arc<dyn Handler> + Send>;

/// The settings of a [`Server`].
///
/// # Examples
///
/// ```
/// use homeostat::base::StartErrorKind;
/// use homeostat_serve::Server;
/// use std::net::Ipv4Addr;
///
/// // Everyone in the network could use a server without users.
/// let error = Server::builder((Ipv4Addr::UNSPECIFIED, 8080)).build().unwrap_err();
/// assert_eq!(error.kind(), StartErrorKind::InvalidSetting);
/// assert_eq!(
///     error.to_string(),
///     "address is 0.0.0.0:8080, but must be on loopback; to serve a network, call `listen_on_network`",
/// );
/// ```
#[must_use = "settings do nothing until `build` is called"]
pub struct ServerBuilder {
    name: String,
    addresses: Vec<SocketAddr>,
    on_network: bool,
    hosts: AllowedHosts,
    users: KnownUsers,
    allows_anonymous: bool,
    public_paths: Vec<String>,
    authorizer: Authorizer,
    objects: Option<ObjectHandlerFactory>,
    store: Option<Arc<StoreHealth>>,
    pages: Option<PageHandlerFactory>,
    reviews: Vec<(String, Arc<dyn Handler>)>,
    pub(super) layer: Option<Layer>,
    limits: HttpLimits,
    connections_per_client: Option<usize>,
    streams_per_client: Option<usize>,
    body_limit: Option<usize>,
    options: ThreadOptions,
    #[cfg(feature = "tls")]
    tls: Option<(PathBuf, PathBuf)>,
    #[cfg(feature = "tls")]
    client_authority: Option<PathBuf>,
}

impl Server {
    /// Creates the settings of a server that listens on this address.
    ///
    /// With port 0 the system chooses a port, see [`ServerControl::addresses`](super::ServerControl::addresses).
    pub fn builder(address: impl Into<SocketAddr>) -> ServerBuilder {
        ServerBuilder::new(address.into())
    }
}

impl ServerBuilder {
    fn new(address: SocketAddr) -> Self {
        Self {
            name: "serve".to_owned(),
            addresses: vec![address],
            on_network: false,
            hosts: AllowedHosts::default(),
            users: KnownUsers::default(),
            allows_anonymous: false,
            public_paths: Vec::new(),
            authorizer: Arc::new(|_| Access::Allow),
            objects: None,
            store: None,
            pages: None,
            reviews: Vec::new(),
            layer: None,
            limits: HttpLimits::default(),
            connections_per_client: None,
            streams_per_client: None,
            body_limit: None,
            options: ThreadOptions::new().stack_size(STACK),
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "tls")]
            client_authority: None,
        }
    }

    /// Sets the name for threads and logs. Default: `serve`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds another address to listen on.
    pub fn listen(mut self, address: impl Into<SocketAddr>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Allows addresses other than loopback.
    ///
    /// The server then needs users, or [`allow_anonymous`](Self::allow_anonymous). Without TLS, others on the network
    /// can read tokens and objects.
    pub fn listen_on_network(mut self) -> Self {
        self.on_network = true;
        self
    }

    /// Allows clients to use this host name for the server. Give it without a port.
    ///
    /// Loopback names and the server's addresses are always allowed. All other names are refused, because a foreign
    /// page could point its own name to this server's address.
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.hosts.0.push(host.into().to_ascii_lowercase());
        self
    }

    /// Adds a user with this bearer token: `Authorization: Bearer <token>`.
    ///
    /// Guessing is slowed down: after ten wrong credentials from one address, each further wrong answer is delayed by
    /// up to 3.2 s. The server forgets one failure every ten seconds. Valid credentials are always served at once, so
    /// nobody can lock out others. Still, use long random tokens, because many addresses can guess at the same time.
    pub fn token(mut self, token: impl Into<String>, user: UserInfo) -> Self {
        self.users.add_token(token.into(), user);
        self
    }

    /// Adds a user with this password: `Authorization: Basic …`.
    ///
    /// Passwords are accepted only on loopback and over TLS. Guessing is slowed down as for a [`token`](Self::token).
    pub fn password(mut self, password: impl AsRef<str>, user: UserInfo) -> Self {
        self.users.add_password(password.as_ref(), user);
        self
    }

    /// Also serves requests without credentials, although the server has users. Their user has an empty name.
    pub fn allow_anonymous(mut self) -> Self {
        self.allows_anonymous = true;
        self
    }

    /// Allows everyone to read this path, such as `/livez`, without credentials or authorization.
    ///
    /// If this is a path of [admission reviews](Self::admission_reviews), everyone may send reviews.
    pub fn public_path(mut self, path: impl Into<String>) -> Self {
        self.public_paths.push(path.into());
        self
    }

    /// Sets the authorization function, which decides about each request. Default: each known user may do everything.
    ///
    /// It runs on the threads of connections. If it panics, the request gets status 500.
    pub fn authorize(mut self, authorize: impl Fn(&AccessRequest) -> Access + Send + Sync + 'static) -> Self {
        self.authorizer = Arc::new(authorize);
        self
    }

    /// Serves only HTTPS, with the certificates and the key in these PEM files.
    ///
    /// Changed files are read again. If the new ones are unusable, the server logs a warning and keeps the old ones.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, certificates: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls = Some((certificates.into(), key.into()));
        self
    }

    /// Adds the users with a certificate from an authority in this PEM file.
    ///
    /// The certificate's common name is the user's name, and its organizations are the groups. A certificate with no
    /// common name, or with several, gets status 401. A certificate from another authority is refused by TLS. A
    /// changed file is read again. Requires [`tls`](Self::tls).
    #[cfg(feature = "tls")]
    pub fn client_certificates(mut self, authorities: impl Into<PathBuf>) -> Self {
        self.client_authority = Some(authorities.into());
        self
    }

    /// Sets the timeout for the head of a request, from its first byte. Default: 10 s.
    ///
    /// A slower client gets status 408. A new connection that sends nothing in this time is closed without a reply.
    pub fn head_timeout(mut self, timeout: Duration) -> Self {
        self.limits.head_time = timeout;
        self
    }

    /// Sets the timeout for the body of a request, from the end of its head. Default: 30 s.
    ///
    /// A slower client gets status 408.
    pub fn body_timeout(mut self, timeout: Duration) -> Self {
        self.limits.body_time = timeout;
        self
    }

    /// Sets how long a connection may be idle between two requests before the server closes it. Default: 90 s.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.limits.idle_time = timeout;
        self
    }

    /// Sets how long a client may take to read each 64 KiB of a reply before the server closes the connection.
    /// Default: 30 s.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.limits.write_time = timeout;
        self
    }

    /// Sets the longest duration of a stream, such as a watch, and of sending a reply. Default: 30 min.
    ///
    /// A client that loses power or network cannot close its connection, and the server would keep its stream forever.
    /// An older connection serves no further requests, so that a client's certificate is checked again.
    pub fn stream_life(mut self, life: Duration) -> Self {
        self.limits.stream_life = life;
        self
    }

    /// Sets the largest body of a request in bytes. Larger bodies get status 413.
    ///
    /// All bodies that are read or handled may use 96 MiB together. Beyond that, a request gets status 503. The bodies
    /// from one client address may use half of that. Beyond that, a request gets status 429.
    ///
    /// Default: 3 MiB, or 7 MiB if the server answers [admission reviews](Self::admission_reviews), because a review
    /// has both the new and the old object.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = Some(bytes);
        self
    }

    /// Sets how much memory the replies that are being sent may use, in bytes. Default: 256 MiB.
    ///
    /// A list keeps its objects until the client has read them, and a watch that starts with all objects does the
    /// same. Their text is created in parts. Replies of up to 64 KiB do not count.
    ///
    /// While the replies use this much memory, further large ones get status 503. The replies to one client address
    /// may use half of it. Beyond that, further ones get status 429. A reply that has begun is always completed, so
    /// all replies together use at most this memory plus one reply. Writes are always answered. A watch ends early if
    /// its next object needs memory that is not free, and its client resumes it.
    pub fn reply_memory(mut self, bytes: usize) -> Self {
        self.limits.replies = bytes;
        self
    }

    /// Sets the largest number of open connections. Default: 512. Each uses a thread and a file descriptor. Further
    /// ones get status 503.
    pub fn connections(mut self, count: usize) -> Self {
        self.limits.connections = count;
        self
    }

    /// Sets the largest number of open connections from one client address. Further ones get status 429, or are
    /// refused by TLS.
    ///
    /// Default: a quarter of all [`connections`](Self::connections), which is 128, so that one address cannot exclude
    /// others. IPv6 addresses with the same first 64 bits count as one, and all loopback addresses count as one. Raise
    /// this if all clients use one proxy, or if a client has many watches, because each watch needs a connection.
    pub fn connections_per_client(mut self, count: usize) -> Self {
        self.connections_per_client = Some(count);
        self
    }

    /// Sets the largest number of open streams, such as watches, to one client address. Further ones get status 429.
    ///
    /// Default: three quarters of its connections, which is 96.
    pub fn streams_per_client(mut self, count: usize) -> Self {
        self.streams_per_client = Some(count);
        self
    }

    #[cfg(test)]
    pub(super) fn body_memory(mut self, bytes: usize) -> Self {
        self.limits.bodies = bytes;
        self
    }

    /// Sets the options of the threads. Default: a stack of 512 KiB. Handlers and the authorization run on these
    /// threads.
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the handler for paths below `/api`, `/apis`, `/openapi` and `/version`. It asks the authorizer itself.
    pub(crate) fn object_handler(
        mut self,
        make: impl FnOnce(&Authorizer) -> Arc<dyn Handler> + Send + 'static,
    ) -> Self {
        self.objects = Some(Box::new(make));
        self
    }

    /// Sets the object store for the health checks.
    pub(crate) fn object_store(mut self, store: Arc<StoreHealth>) -> Self {
        self.store = Some(store);
        self
    }

    /// Sets the handler for all other paths. The server asks the authorizer before it calls the handler, except at
    /// public paths.
    pub(crate) fn page_handler(mut self, make: impl FnOnce(PageContext) -> Arc<dyn Handler> + Send + 'static) -> Self {
        self.pages = Some(Box::new(make));
        self
    }

    /// Sets the handler for reviews at exactly this path. The server asks the authorizer before it calls the handler.
    pub(crate) fn review_handler(mut self, path: String, handler: Arc<dyn Handler>) -> Self {
        self.reviews.push((path, handler));
        self
    }

    /// Creates the server.
    ///
    /// # Errors
    ///
    /// Returns an error that names the setting if a setting is invalid.
    pub fn build(mut self) -> Result<Server, StartError> {
        StartError::check_name(&self.name)?;
        #[cfg(feature = "tls")]
        let knows_certificates = self.client_authority.is_some();
        #[cfg(not(feature = "tls"))]
        let knows_certificates = false;
        let has_authentication = knows_certificates || !self.users.is_empty();
        check_addresses(&self.addresses, self.on_network, has_authentication || self.allows_anonymous)?;
        if let Some(fault) = self.users.fault() {
            return Err(fault);
        }
        let default_body = if self.reviews.is_empty() { self.limits.body } else { BODY_WITH_REVIEWS };
        self.limits.body = self.body_limit.unwrap_or(default_body);
        let connections = self.connections_per_client.unwrap_or(self.limits.connections.div_ceil(4));
        self.limits.connections_per_client = connections;
        self.limits.streams_per_client = self.streams_per_client.unwrap_or((connections * 3).div_ceil(4));
        check_limits(&self.limits)?;
        if let Some(host) = self.hosts.fault() {
            return Err(StartError::setting("allow_host", &host, "a host name without a scheme and a port"));
        }
        check_public_paths(&self.public_paths)?;
        check_review_paths(&self.reviews.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>())?;
        #[cfg(feature = "tls")]
        let tls = match (self.tls, self.client_authority) {
            (Some((certificate, key)), clients) => Some(TlsFiles { certificate, key, clients }),
            (None, None) => None,
            (None, Some(path)) => {
                let rule = "unset without `tls`, because only TLS has certificates";
                return Err(StartError::setting("client_certificates", &path, rule));
            }
        };
        let authorizer = self.authorizer;
        let page_authorizer = if has_authentication && !self.allows_anonymous {
            without_strangers(&authorizer)
        } else {
            Arc::clone(&authorizer)
        };
        let registry = ConnectionRegistry::new(self.limits);
        let vitals = ServerVitals { addresses: Arc::default(), registry, counts: Arc::default() };
        #[cfg(feature = "tls")]
        let has_tls = tls.is_some();
        #[cfg(not(feature = "tls"))]
        let has_tls = false;
        let (counts, clock) = (Arc::clone(&vitals.counts), Clock::system());
        let context = PageContext {
            authorizer: page_authorizer,
            vitals: vitals.clone(),
            has_tls,
            has_users: has_authentication,
            allows_anonymous: self.allows_anonymous,
            store: self.store,
        };
        let service = ServerService {
            name: self.name.clone(),
            hosts: self.hosts,
            users: self.users,
            allows_anonymous: self.allows_anonymous,
            has_authentication,
            public_paths: self.public_paths,
            objects: self.objects.map(|make| make(&authorizer)),
            pages: self.pages.map(|make| make(context)),
            reviews: self.reviews,
            layer: self.layer,
            authorizer,
            counts,
            refusals: LogLimiter::new(clock.clone()),
            clock,
            guesses: GuessThrottle::default(),
        };
        Ok(Server(ServerSettings {
            name: self.name,
            addresses: self.addresses,
            vitals,
            options: self.options,
            service,
            #[cfg(feature = "tls")]
            tls,
        }))
    }
}

/// Returns an authorizer that denies everything to anonymous users, who reach handlers only at public paths.
fn without_strangers(authorizer: &Authorizer) -> Authorizer {
    let authorizer = Arc::clone(authorizer);
    Arc::new(move |request: &AccessRequest| match &*request.user.name {
        "" => Access::Deny("the request has no credentials".to_owned()),
        _ => authorizer(request),
    })
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder")
            .field("name", &self.name)
            .field("addresses", &self.addresses)
            .field("users", &self.users)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
