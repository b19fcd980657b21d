//! The server: settings, start and handle.

mod builder;
mod checks;
mod control;
mod hosts;
mod layer;
mod service;
#[cfg(test)]
mod tests;
mod throttle;
mod users;
mod verb;
mod vitals;
mod with_layer;

pub use self::builder::ServerBuilder;
pub use self::control::{ServerControl, ServerCounts};
pub use self::layer::NextHandler;
pub(crate) use self::vitals::{PageContext, ServerVitals};

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use self::control::ServerThreads;
use self::service::ServerService;
use crate::http::{Acceptor, HttpShared, IdleSockets, Poll, ThreadRoster};
#[cfg(feature = "tls")]
use crate::http::{ServerTls, TlsFiles};
use homeostat::base::{Clock, Runnable, Running, StartError, ThreadOptions};

/// How long a dropped server waits for requests that are being answered.
const GRACE: Duration = Duration::from_secs(5);

/// How many clients may wait to be accepted.
#[cfg(unix)]
const WAITING: i32 = 1_024;

/// An HTTP server for people and tools.
///
/// Each connection has its own thread with a small stack. Two more threads accept connections, and watch streams and
/// closing connections.
///
/// A stop closes connections that wait for their client, lets handlers finish, and ends streams properly. After 50 ms,
/// streams can send nothing more, and writes from before the stop are cut, because their clients may block them. Later
/// writes have one second for each
///
/// Long lists are compressed with gzip if the client accepts it. A request body with a `Content-Encoding` gets status
/// 415.
///
/// # Log
///
/// Writes of objects are logged at *info* with their user. Refused reads, requests of unknown users and client
/// certificates that TLS refuses are also logged at *info*, with limits: one line for each client address and status
/// in ten seconds, and 20 lines in total. Each line states how many were omitted before it. [`ServerCounts`], and
/// `/metrics` of [`StatusPages`](crate::StatusPages), count all of them.
///
/// # Security
///
/// A server listens only on loopback, unless [`listen_on_network`](ServerBuilder::listen_on_network) is called.
/// Without any users, each process on the machine may do everything that the [authorization](ServerBuilder::authorize)
/// allows. Requests with a foreign `Host` or `Origin` are refused, so foreign pages in a browser cannot use the
/// server. Users cannot act as other users: a request with an `Impersonate-…` header is refused.
///
/// # Examples
///
/// ```
/// use homeostat_serve::{Access, Server, UserInfo};
/// use homeostat::{BoxError, Component, Manager};
/// use std::io::{Read, Write};
/// use std::net::{Ipv4Addr, TcpStream};
///
/// let server = Server::builder((Ipv4Addr::LOCALHOST, 0))
///     .token("a-long-secret", UserInfo::new("ada").group("admins"))
///     .authorize(|request| match request.verb {
///         "get" => Access::Allow,
///         _ => Access::Deny("this server is read-only".to_owned()),
///     })
///     .build()?
///     .start()?;
/// let address = server.addresses()[0];
///
/// let manager = Manager::builder().build()?;
/// manager.add(Component::running("door", server))?;
/// let running = manager.start()?;
///
/// let mut client = TcpStream::connect(address)?;
/// client.write_all(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
/// let mut reply = String::new();
/// client.read_to_string(&mut reply)?;
/// assert!(reply.starts_with("HTTP/1.1 401 Unauthorized"));
/// # drop(running);
/// # Ok::<_, BoxError>(())
/// ```
#[must_use = "a server does nothing until `start` is called"]
pub struct Server(ServerSettings);

/// The validated settings of a server.
struct ServerSettings {
    name: String,
    addresses: Vec<SocketAddr>,
    vitals: ServerVitals,
    options: ThreadOptions,
    service: ServerService,
    #[cfg(feature = "tls")]
    tls: Option<TlsFiles>,
}

impl Server {
    /// Starts the server.
    ///
    /// The handle shows the addresses. To let a manager stop the server, add the handle with
    /// [`Component::running`](homeostat::Component::running). If the manager keeps leases on this server, keep the
    /// handle in a variable instead, and drop it after the manager: at its end, the manager gives the leases back.
    ///
    /// # Errors
    ///
    /// Returns an error if an address is in use, a TLS file is unusable, or the system cannot start a thread.
    pub fn start(self) -> Result<Running<ServerControl>, StartError> {
        self.start_on(Clock::system())
    }

    fn start_on(self, clock: Clock) -> Result<Running<ServerControl>, StartError> {
        let ServerSettings { name, addresses, vitals, options, service, .. } = self.0;
        let service = service.with_clock(&clock);
        #[cfg(feature = "tls")]
        let tls = {
            let files = self.0.tls;
            let new = |files| ServerTls::new(name.clone(), clock.clone(), files);
            files.map(new).transpose()?
        };
        let listeners = addresses.iter().map(|address| listen(*address)).collect::<Result<Vec<_>, _>>()?;
        let bound = listeners.iter().map(|listener| listener.local_addr()).collect::<Result<Vec<_>, _>>();
        let bound = bound.map_err(|error| StartError::unavailable("cannot read the address of a socket", error))?;
        let refused = |error| StartError::unavailable("cannot create a socket to wake threads", error);
        let ServerVitals { addresses, registry, counts } = vitals;
        let _is_first = addresses.set(bound.clone());
        let idle = IdleSockets::new(clock.clone(), Arc::clone(&registry)).map_err(refused)?;
        let accept = Poll::new(clock.clone()).map_err(refused)?;
        let roster = ThreadRoster::new(name.clone(), options, clock.clone());
        let shared = Arc::new(HttpShared {
            name: name.clone(),
            clock,
            registry,
            idle,
            counts,
            service: Box::new(service),
            #[cfg(feature = "tls")]
            tls,
        });
        let threads = ServerThreads { shared: Arc::clone(&shared), roster, accept };
        let idle = Arc::clone(&shared.idle);
        let spawned = threads.roster.spawn_last("sockets", move || idle.run());
        threads.or_stop("sockets", spawned)?;
        let acceptor = Acceptor {
            shared: Arc::clone(&shared),
            roster: Arc::clone(&threads.roster),
            poll: Arc::clone(&threads.accept),
            listeners,
        };
        let spawned = threads.roster.spawn("accept", move || acceptor.run());
        threads.or_stop("accept", spawned)?;
        let component = name.as_str();
        let server = bound.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let server = server.as_str();
        log::info!(component, server; "{component}: the server listens on {server}");
        Ok(Running::new(ServerControl::new(&shared, bound), threads, GRACE))
    }
}

impl ServerThreads {
    /// Stops the server if the system could not start a thread.
    fn or_stop(&self, role: &str, spawned: io::Result<()>) -> Result<(), StartError> {
        spawned.map_err(|error| {
            self.stop();
            StartError::thread(&format!("{}-{role}", self.shared.name), error)
        })
    }
}

fn listen(address: SocketAddr) -> Result<Arc<TcpListener>, StartError> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        // The standard library queues up to 128 clients. A client beyond that number would only try again after a
        // second.
        #[cfg(unix)]
        rustix::net::listen(&listener, WAITING)?;
        Ok(Arc::new(listener))
    });
    listener.map_err(|error| StartError::unavailable(format!("cannot listen on {address}"), error))
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.0.name)
            .field("addresses", &self.0.addresses)
            .finish_non_exhaustive()
    }
}
