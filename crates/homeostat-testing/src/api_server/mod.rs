//! An API server for tests.

mod answer;
mod definitions;
mod rule;
mod shared;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use serde_json::json;

use self::definitions::{BUILT_IN, built_in, strict};
use self::shared::ServerShared;
use homeostat::base::Running;
use homeostat::rt::Nanos;
use homeostat_objects::{Kind, KindDefinition, MemoryClient};
use homeostat_serve::{IncomingRequest, ObjectApi, Server, ServerControl};

pub use self::answer::ServerAnswer;
pub use self::rule::ServerRule;

/// The largest number of connections. All of them are from one client.
const MOST_CONNECTIONS: usize = 4_096;

/// A server on loopback that uses the protocol of a Kubernetes API server, over HTTP without TLS.
///
/// It replaces a cluster: it keeps objects in a [`MemoryClient`], and serves them by the server of
/// [`homeostat_serve`]. It serves common built-in kinds, kinds that a test [adds](Self::serve), and the kinds of custom
/// resource definitions that a client creates.
///
/// [Rules](ServerRule) replace single answers with faults: errors, delays, cut connections, expired versions, missing
/// bookmarks. This shows how a program behaves on a failing cluster. The server [records](Self::requests) all requests.
///
/// Dropping the server closes all connections, and blocks until its threads have ended.
///
/// # Limits
///
/// There is no authentication and no admission. The schemas of custom resource definitions are ignored. Namespaces need
/// not exist. The body of a request has at most 3 MiB. [`ObjectApi`] lists the differences from Kubernetes.
///
/// # Examples
///
/// A client of the crate `homeostat-kubernetes`: `KubernetesClient::new(ClusterConfig::new(&server.url())?)?`. Here, a
/// request without a client:
///
/// ```
/// use homeostat_objects::{Client, Kind};
/// use homeostat_testing::{ApiServer, ServerAnswer, ServerRule};
/// use serde_json::json;
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
///
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let server = ApiServer::start()?;
/// server.client().create(&CONFIG_MAP, json!({
///     "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "colours"},
/// })).unwrap();
/// server.rule(
///     ServerRule::new("GET", "/api/v1/configmaps").answer(ServerAnswer::error(503, "ServiceUnavailable", "starting")),
/// );
///
/// let list = || {
///     let mut stream = TcpStream::connect(server.address())?;
///     write!(stream, "GET /api/v1/configmaps HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
///     let mut answer = String::new();
///     stream.read_to_string(&mut answer)?;
///     Ok::<_, std::io::Error>(answer)
/// };
/// assert!(list()?.starts_with("HTTP/1.1 503"));
/// assert!(list()?.contains("colours"));
/// assert_eq!(server.requests().len(), 2);
/// # Ok::<_, std::io::Error>(())
/// ```
pub struct ApiServer {
    shared: Arc<ServerShared>,
    server: Running<ServerControl>,
}

impl ApiServer {
    /// Starts a server without objects on a free port.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system refuses a port or a thread.
    pub fn start() -> io::Result<Self> {
        Self::with_client(MemoryClient::new())
    }

    /// Starts a server on a free port, with the objects of this client.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system refuses a port or a thread.
    pub fn with_client(client: MemoryClient) -> io::Result<Self> {
        let api = ObjectApi::builder(Arc::new(client.clone())).serve_events();
        let api = BUILT_IN.into_iter().fold(api, |api, kind| api.serve(built_in(kind)));
        let api = api.build().map_err(io::Error::other)?;
        let shared = Arc::new(ServerShared::new(client, api));
        let answering = Arc::clone(&shared);
        let server = Server::builder((Ipv4Addr::LOCALHOST, 0))
            .name("api-server")
            .objects(&shared.api)
            .layer(move |request, next| answering.answer(request, next))
            .connections(MOST_CONNECTIONS)
            .connections_per_client(MOST_CONNECTIONS)
            .streams_per_client(MOST_CONNECTIONS);
        let server = server.build().and_then(Server::start).map_err(io::Error::other)?;
        Ok(Self { shared, server })
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    /// Returns the URL of the server: `http://127.0.0.1:40123`.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Returns the text of a kubeconfig for the server, in the namespace `default`.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url()}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "default"}}],
        })
        .to_string()
    }

    /// Returns the client with the objects of the server. Its writes reach the server's watches.
    #[must_use]
    pub fn client(&self) -> &MemoryClient {
        &self.shared.client
    }

    /// Serves a kind, like an installed custom resource definition.
    ///
    /// # Panics
    ///
    /// Panics if no server can serve the kind, for example because of its name.
    #[expect(clippy::panic, reason = "documented")]
    pub fn serve(&self, kind: impl Into<KindDefinition>) {
        self.shared.api.serve(strict(kind.into())).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Stops serving a kind. Requests for it get 404. Its objects and its open watches stay.
    pub fn withdraw(&self, kind: &Kind) {
        self.shared.api.withdraw(kind);
    }

    /// Adds a rule. If several rules apply to a request, the first one that was added answers.
    pub fn rule(&self, rule: ServerRule) {
        self.shared.script.change(|script| script.rules.push(rule));
    }

    /// Removes all rules.
    pub fn clear_rules(&self) {
        self.shared.script.change(|script| script.rules.clear());
    }

    /// Returns all requests so far, in the order of their arrival. Unreadable ones are not recorded.
    #[must_use]
    pub fn requests(&self) -> Vec<IncomingRequest> {
        self.shared.script.with(|script| script.requests.clone())
    }

    /// Blocks until the requests so far meet a condition, and returns them. Each request wakes it. There is no timeout.
    ///
    /// The condition runs under the server's lock, and must not use the server.
    pub fn wait_for_requests(&self, condition: impl Fn(&[IncomingRequest]) -> bool) -> Vec<IncomingRequest> {
        let fulfilled = self
            .shared
            .script
            .wait_for_some(Nanos::NEVER, |script| condition(&script.requests).then(|| script.requests.clone()));
        fulfilled.unwrap_or_default()
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.server.counts().open_connections
    }

    /// Closes all connections at once. The server accepts new ones.
    pub fn disconnect(&self) {
        self.server.disconnect();
    }
}

impl Drop for ApiServer {
    /// Closes all connections, and blocks until their threads have ended.
    fn drop(&mut self) {
        // A stop alone would end streams properly.
        self.server.disconnect();
        self.server.abort();
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("address", &self.address()).finish_non_exhaustive()
    }
}
