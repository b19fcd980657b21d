//! The settings of a server.

use std::fmt;
use std::net::SocketAddr;
#[cfg(feature = "serve-tls")]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::checks::{check_addresses, check_limits, check_public_paths, check_review_paths};
use super::hosts::AllowedHosts;
use super::service::ServerService;
use super::throttle::GuessThrottle;
use super::users::KnownUsers;
use super::{PageContext, Server, ServerSettings, ServerVitals};
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::thread::ThreadOptions;
use crate::serve::access::{Access, AccessRequest, Authorizer, UserInfo};
use crate::serve::api::StoreHealth;
use crate::serve::damper::Damper;
#[cfg(feature = "serve-tls")]
use crate::serve::http::TlsFiles;
use crate::serve::http::{ConnectionRegistry, Handler, HttpLimits};

/// The default limit of a body if the server answers reviews. A review has two objects, each with up to 3 MiB.
const BODY_WITH_REVIEWS: usize = 7 << 20;
/// The stack of a connection's thread. Handlers run on it.
const STACK: usize = 512 << 10;

/// Makes the handler of objects, which asks this authorizer.
type ObjectHandlerFactory = Box<dyn FnOnce(&Authorizer) -> Arc<dyn Handler> + Send>;
/// Makes the handler of pages.
type PageHandlerFactory = Box<dyn FnOnce(PageContext) -> Arc<dyn Handler> + Send>;

/// The settings of a [`Server`].
///
/// # Examples
///
/// ```
/// use homeostat::serve::Server;
/// use std::net::Ipv4Addr;
///
/// // Everyone in the network could use a server without users.
/// let error = Server::builder((Ipv4Addr::UNSPECIFIED, 8080)).build().unwrap_err();
/// assert!(error.is_invalid_setting());
/// assert_eq!(
///     error.to_string(),
///     "address is 0.0.0.0:8080, but must be on loopback; to serve a network, call `listen_on_network`",
/// );
/// ```
#[must_use = "a builder does nothing until `build` is called"]
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
    limits: HttpLimits,
    connections_per_client: Option<usize>,
    streams_per_client: Option<usize>,
    body_limit: Option<usize>,
    options: ThreadOptions,
    #[cfg(feature = "serve-tls")]
    tls: Option<(PathBuf, PathBuf)>,
    #[cfg(feature = "serve-tls")]
    client_authority: Option<PathBuf>,
}

impl Server {
    /// Begins the settings of a server that listens on this address.
    ///
    /// Port 0 lets the system choose a port; see [`ServerControl::addresses`](super::ServerControl::addresses).
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
            limits: HttpLimits::default(),
            connections_per_client: None,
            streams_per_client: None,
            body_limit: None,
            options: ThreadOptions::new().stack_size(STACK),
            #[cfg(feature = "serve-tls")]
            tls: None,
            #[cfg(feature = "serve-tls")]
            client_authority: None,
        }
    }

    /// Sets the name for threads and logs. Default: `serve`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds an address to listen on.
    pub fn listen(mut self, address: impl Into<SocketAddr>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Allows addresses other than loopback.
    ///
    /// Then the server needs users, or [`allow_anonymous`](Self::allow_anonymous). Without TLS, others on the network can read tokens
    /// and objects.
    pub fn listen_on_network(mut self) -> Self {
        self.on_network = true;
        self
    }

    /// Allows clients to call the server by this host name, without a port.
    ///
    /// Loopback names and the addresses of the server are always allowed. All other names are refused: a foreign page could give its
    /// own name the address of this server.
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.hosts.0.push(host.into().to_ascii_lowercase());
        self
    }

    /// Adds a user with this bearer token: `Authorization: Bearer <token>`.
    ///
    /// Guesses are slowed: after ten wrong credentials from one address, further ones get their answer up to 3.2 s
    /// later. The server forgets one failure in ten seconds. Valid credentials are always served at once, so nobody can
    /// lock out others. Use long random tokens nevertheless, because many addresses can guess at the same time.
    pub fn token(mut self, token: impl Into<String>, user: UserInfo) -> Self {
        self.users.add_token(token.into(), user);
        self
    }

    /// Adds a user with this password: `Authorization: Basic …`.
    ///
    /// Passwords are accepted on loopback and over TLS only. Guesses are slowed as for a [`token`](Self::token).
    pub fn password(mut self, password: impl AsRef<str>, user: UserInfo) -> Self {
        self.users.add_password(password.as_ref(), user);
        self
    }

    /// Serves requests without credentials too, although the server has users. Their user has an empty name.
    pub fn allow_anonymous(mut self) -> Self {
        self.allows_anonymous = true;
        self
    }

    /// Lets everyone read this path, without credentials and without authorization: `/livez`.
    ///
    /// At a path of [admission reviews](Self::admission_reviews), everyone may send reviews.
    pub fn public_path(mut self, path: impl Into<String>) -> Self {
        self.public_paths.push(path.into());
        self
    }

    /// Sets the authorization: a function that decides about each request. Default: each known user may do everything.
    ///
    /// It runs on the threads of connections. If it panics, the request is answered with status 500.
    pub fn authorize(mut self, authorize: impl Fn(&AccessRequest) -> Access + Send + Sync + 'static) -> Self {
        self.authorizer = Arc::new(authorize);
        self
    }

    /// Serves HTTPS only, with the certificates and the key of these PEM files.
    ///
    /// The files are read again when they change. If the new ones cannot be used, the server logs a warning and keeps the old ones.
    #[cfg(feature = "serve-tls")]
    pub fn tls(mut self, certificates: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls = Some((certificates.into(), key.into()));
        self
    }

    /// Adds the users with a certificate of an authority in this PEM file.
    ///
    /// The common name of a certificate is the user's name, and its organizations are the groups. A certificate without
    /// a common name, or with several, gets status 401. A certificate of another authority ends within TLS. The file is
    /// read again when it changes. Requires [`tls`](Self::tls).
    #[cfg(feature = "serve-tls")]
    pub fn client_certificates(mut self, authorities: impl Into<PathBuf>) -> Self {
        self.client_authority = Some(authorities.into());
        self
    }

    /// Sets the time for the head of a request, from its first byte. Default: 10 s.
    ///
    /// A client that is slower gets status 408. A new connection without a byte in this time is closed without an answer.
    pub fn head_timeout(mut self, timeout: Duration) -> Self {
        self.limits.head_time = timeout;
        self
    }

    /// Sets the time for the body of a request, from the end of its head. Default: 30 s.
    ///
    /// A client that is slower gets status 408.
    pub fn body_timeout(mut self, timeout: Duration) -> Self {
        self.limits.body_time = timeout;
        self
    }

    /// Sets the time between two requests of a connection. Default: 90 s. Then the server closes the connection.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.limits.idle_time = timeout;
        self
    }

    /// Sets the time in which a client must take each 64 KiB of a reply. Default: 30 s. Then the server closes the connection.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.limits.write_time = timeout;
        self
    }

    /// Sets the longest life of a stream, for example of a watch, and the longest time to send a reply. Default: 30 min.
    ///
    /// A client without power or network cannot close its connection. The server would keep its stream for ever. A connection that is
    /// older serves no further requests, so that the certificate of a client is checked again.
    pub fn stream_life(mut self, life: Duration) -> Self {
        self.limits.stream_life = life;
        self
    }

    /// Sets the most bytes of a request's body. Larger bodies get status 413.
    ///
    /// All bodies that are read or handled have at most 96 MiB together, or a request gets status 503. The bodies of one client address have
    /// at most half of that, or a request gets status 429.
    ///
    /// Default: 3 MiB; 7 MiB if the server answers [admission reviews](Self::admission_reviews), because a review has the new and the
    /// old object.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = Some(bytes);
        self
    }

    /// Sets how many bytes of memory the replies may keep that are being sent. Default: 256 MiB.
    ///
    /// A list keeps its objects until the client has read them, as does a watch that begins with all objects. Their
    /// texts are made part by part. While the replies being sent keep this many bytes, further large ones get status
    /// 503. The replies to one client address have half of that; beyond it, further ones get status 429. A reply is
    /// served whole once it begins, so all replies together keep at most this many bytes and one reply more. A write is
    /// answered in any case. A watch ends early if its next object needs memory that is not free; its client resumes
    /// it. Replies of up to 64 KiB do not count.
    pub fn reply_memory(mut self, bytes: usize) -> Self {
        self.limits.replies = bytes;
        self
    }

    /// Sets the most open connections. Default: 512. Each has a thread and a file descriptor. Further connections get status 503.
    pub fn connections(mut self, count: usize) -> Self {
        self.limits.connections = count;
        self
    }

    /// Sets the most open connections of one client address. Further connections get status 429, or end within TLS.
    ///
    /// Default: a quarter of all [`connections`](Self::connections), so 128. Then one address cannot keep others away.
    /// IPv6 addresses with the same first 64 bits count as one. All loopback addresses count as one too. Raise it if
    /// all clients come through one proxy, or if one client has many watches: each watch has a connection.
    pub fn connections_per_client(mut self, count: usize) -> Self {
        self.connections_per_client = Some(count);
        self
    }

    /// Sets the most open streams of one client address, for example watches. Further streams get status 429.
    ///
    /// Default: three quarters of its connections, so 96.
    pub fn streams_per_client(mut self, count: usize) -> Self {
        self.streams_per_client = Some(count);
        self
    }

    #[cfg(test)]
    pub(super) fn body_memory(mut self, bytes: usize) -> Self {
        self.limits.bodies = bytes;
        self
    }

    /// Sets the options of the threads. Default: a stack of 512 KiB. Handlers and the authorization run on these threads.
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the handler of the paths below `/api`, `/apis`, `/openapi` and `/version`. It asks the authorizer itself.
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

    /// Sets the handler of all other paths. The server asks the authorizer before it calls the handler, but not at
    /// public paths.
    pub(crate) fn page_handler(mut self, make: impl FnOnce(PageContext) -> Arc<dyn Handler> + Send + 'static) -> Self {
        self.pages = Some(Box::new(make));
        self
    }

    /// Sets the handler of reviews at exactly this path. The server asks the authorizer before it calls the handler.
    pub(crate) fn review_handler(mut self, path: String, handler: Arc<dyn Handler>) -> Self {
        self.reviews.push((path, handler));
        self
    }

    /// Creates the server.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is invalid. The message names the setting.
    pub fn build(mut self) -> Result<Server, StartError> {
        StartError::check_name(&self.name)?;
        #[cfg(feature = "serve-tls")]
        let knows_certificates = self.client_authority.is_some();
        #[cfg(not(feature = "serve-tls"))]
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
        #[cfg(feature = "serve-tls")]
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
        let vitals = ServerVitals { registry: ConnectionRegistry::new(self.limits), counts: Arc::default() };
        let (counts, clock) = (Arc::clone(&vitals.counts), Clock::system());
        let context = PageContext { authorizer: page_authorizer, vitals: vitals.clone(), store: self.store };
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
            authorizer,
            counts,
            refusals: Damper::new(clock.clone()),
            clock,
            guesses: GuessThrottle::default(),
        };
        Ok(Server(ServerSettings {
            name: self.name,
            addresses: self.addresses,
            vitals,
            options: self.options,
            service,
            #[cfg(feature = "serve-tls")]
            tls,
        }))
    }
}

/// Returns an authorizer that denies everything to anonymous users. They reach handlers at public paths only.
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
