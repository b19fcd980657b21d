//! An API server for tests.

mod answer;
mod connection;
mod discovery;
mod request;
mod response;
mod rule;
mod shared;
mod status;
mod store;
mod watching;
mod wire;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;

use serde_json::json;

use self::connection::serve;
use self::discovery::BUILT_IN;
use self::shared::ServerShared;
use homeostat::base::ThreadOptions;
use homeostat::rt::{Joiner, Nanos};
use homeostat_objects::{Kind, MemoryClient};

pub use self::answer::ServerAnswer;
pub use self::request::ServerRequest;
pub use self::rule::ServerRule;

/// A server on loopback that uses the protocol of a Kubernetes API server, over HTTP without TLS.
///
/// It replaces a cluster: it keeps objects in a [`MemoryClient`], and answers discovery, lists, watches and all verbs
/// as that client does. It serves common built-in kinds, kinds that a test [adds](Self::serve), and the kinds of custom
/// resource definitions that a client creates.
///
/// [Rules](ServerRule) replace single answers with faults: errors, delays, cut connections, expired versions, missing
/// bookmarks. This shows how a program behaves on a failing cluster. The server [records](Self::requests) all requests.
///
/// Each connection has a thread. Dropping the server closes all connections and ends its threads.
///
/// # Limits
///
/// There is no authentication, no admission, no schemas and no dry runs. Namespaces need not exist. A request has at
/// most 3 MiB.
///
/// # Examples
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
///     write!(stream, "GET /api/v1/configmaps HTTP/1.1\r\nConnection: close\r\n\r\n")?;
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
    address: std::net::SocketAddr,
    accepts: Option<Joiner>,
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
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(ServerShared::new(client, BUILT_IN.to_vec()));
        let accepting = Arc::clone(&shared);
        let accept = move || accept(&accepting, &listener);
        let accepts = ThreadOptions::new().spawn("api-server".to_owned(), accept)?;
        Ok(Self { shared, address, accepts: Some(accepts) })
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn address(&self) -> std::net::SocketAddr {
        self.address
    }

    /// Returns the URL of the server: `http://127.0.0.1:40123`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
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
    pub fn serve(&self, kind: Kind) {
        self.shared.serve(kind);
    }

    /// Stops serving a kind. Requests for it get 404. Its objects and its open watches stay.
    pub fn withdraw(&self, kind: &Kind) {
        self.shared.withdraw(|known| known == kind);
    }

    /// Adds a rule. If several rules apply to a request, the first one that was added answers.
    pub fn rule(&self, rule: ServerRule) {
        self.shared.state.change(|state| state.rules.push(rule));
    }

    /// Removes all rules.
    pub fn clear_rules(&self) {
        self.shared.state.change(|state| state.rules.clear());
    }

    /// Returns all requests so far, in the order of their arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<ServerRequest> {
        self.shared.state.with(|state| state.requests.clone())
    }

    /// Blocks until the requests so far meet a condition, and returns them. Each request wakes it. There is no timeout.
    ///
    /// The condition runs under the server's lock, and must not use the server.
    pub fn wait_for_requests(&self, condition: impl Fn(&[ServerRequest]) -> bool) -> Vec<ServerRequest> {
        let fulfilled = self
            .shared
            .state
            .wait_for_some(Nanos::NEVER, |state| condition(&state.requests).then(|| state.requests.clone()));
        fulfilled.unwrap_or_default()
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.state.with(|state| state.connections.len())
    }

    /// Closes all connections at once. The server accepts new ones.
    pub fn disconnect(&self) {
        self.shared.state.with(|state| state.disconnect());
    }
}

/// Accepts connections until the server stops.
fn accept(shared: &Arc<ServerShared>, listener: &TcpListener) {
    for stream in listener.incoming() {
        // For example, because of too many open files.
        let Ok(stream) = stream else { continue };
        let _ = stream.set_nodelay(true);
        let Ok(handle) = stream.try_clone() else { continue };
        let number = shared.state.change(|state| {
            let number = state.accepted;
            state.accepted += 1;
            state.connections.insert(number, handle);
            number
        });
        let open = OpenConnection { shared: Arc::clone(shared), number };
        if shared.state.with(|state| state.stops) {
            return;
        }
        let body = move || {
            serve(&open.shared, &stream, open.number);
            let _ = stream.shutdown(std::net::Shutdown::Both);
        };
        // If the thread cannot start, the connection is closed.
        let _ = ThreadOptions::new().spawn("api-server-connection".to_owned(), body);
    }
}

/// A connection that counts as open until this is dropped.
struct OpenConnection {
    shared: Arc<ServerShared>,
    number: usize,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.shared.state.change(|state| state.connections.remove(&self.number));
    }
}

impl Drop for ApiServer {
    /// Closes all connections, and blocks until their threads have ended.
    fn drop(&mut self) {
        self.shared.state.change(|state| {
            state.stops = true;
            state.disconnect();
        });
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
        if let Some(accepts) = self.accepts.take() {
            accepts.join();
        }
        self.shared.state.wait_for_some(Nanos::NEVER, |state| {
            // A connection that was accepted last may have missed the first call.
            state.disconnect();
            state.connections.is_empty().then_some(())
        });
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("address", &self.address).finish_non_exhaustive()
    }
}
