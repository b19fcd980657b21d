//! Connections: sockets, threads, reconnects, requests and subscriptions.
//!
//! `state.rs`, `pool.rs` and `refusals.rs` make the decisions, without sockets or threads. `shared.rs` has the state
//! that calls share with the two threads. `reader.rs` connects and reads. `writer.rs` writes and sends pings.

mod handshake;
mod info;
mod mailbox;
#[cfg(all(test, unix, not(loom)))]
mod played;
mod pool;
mod reader;
mod refusals;
mod shared;
mod state;
mod subscription;
#[cfg(all(test, not(loom)))]
mod tests;
mod tls;
mod transport;
mod turn;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::mailbox::MailboxItem;
#[cfg(all(test, unix, not(loom)))]
pub(super) use self::played::Play;
use self::pool::ServerPool;
use self::shared::LinkShared;
pub(super) use self::state::REFUSED;
use self::state::{LinkPhase, Outgoing};
pub use self::subscription::NatsSubscription;
use super::address::ServerAddress;
use super::error::NatsError;
use super::options::NatsOptions;
use super::protocol::{NatsHeaders, NatsMessage};
use crate::sync::Mutex;
use homeostat::base::{CancellationToken, Clock};
use homeostat::rt::{Joiner, Nanos, OwnerProcess};

/// How long a close waits for the threads to end.
const JOIN: Duration = Duration::from_millis(100);

/// A connection to NATS servers, on two threads: `<name>-reader` and `<name>-writer`.
///
/// Clones are cheap. The connection reconnects by itself and restores subscriptions. Calls without a connection block
/// until one is established, for at most their timeout. A request that was sent before a disconnect fails, because the
/// server may have executed it. Dropping the last clone closes the connection.
///
/// After a `fork` without `exec`, the child's copy has no threads and sends nothing: its calls fail or time out.
/// Dropping it leaves the parent's connection open. Connect again in the child.
///
/// # Examples
///
/// ```no_run
/// use homeostat_nats::NatsOptions;
///
/// let connection = NatsOptions::new("nats://localhost").connect()?;
/// let answer = connection.request("time.now", b"")?;
/// assert!(!answer.payload.is_empty());
/// connection.close();
/// # Ok::<_, homeostat_nats::NatsError>(())
/// ```
#[derive(Clone)]
pub struct NatsConnection {
    handle: Arc<ConnectionHandle>,
    /// Cancelling this token ends the requests of this handle. `None` if only a close of the connection ends them.
    stop: Option<CancellationToken>,
}

/// Closes the connection when its last clone is dropped.
struct ConnectionHandle {
    shared: Arc<LinkShared>,
    threads: Mutex<Vec<Joiner>>,
    /// The process that runs the threads of this connection.
    owner: OwnerProcess,
    /// Answers all requests in place of a server.
    #[cfg(all(test, unix, not(loom)))]
    player: Option<Arc<dyn Play>>,
}

/// The status of a [`NatsConnection`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NatsStatus {
    /// Whether the connection is established.
    pub connected: bool,
    /// Whether the connection was closed.
    pub closed: bool,
    /// The current or last server. Empty before the first connection.
    pub server: String,
    /// All servers to try: the configured ones, and the ones that a server has announced.
    pub servers: Vec<String>,
    /// The name that the server reports for itself.
    pub server_name: String,
    /// The version of the server.
    pub version: String,
    /// The number of connections made so far, including the first.
    pub connects: u64,
    /// The number of subscriptions.
    pub subscriptions: usize,
    /// The number of requests that wait for an answer.
    pub requests: usize,
    /// The reason why the connection is down. If it is up, the last refusal that belongs to no call.
    pub last_error: Option<NatsError>,
}

impl NatsOptions {
    /// Connects to the first server that accepts.
    ///
    /// Blocks until a server accepts, or until each server was tried once.
    ///
    /// # Errors
    ///
    /// Returns an error if an option is invalid, or if no server accepts. The error lists each server with its reason.
    pub fn connect(self) -> Result<NatsConnection, NatsError> {
        self.check()?;
        NatsConnection::start(self)
    }
}

impl NatsConnection {
    /// Starts the threads. Blocks until a server accepts.
    fn start(options: NatsOptions) -> Result<Self, NatsError> {
        let addresses = options.servers.iter().map(|server| ServerAddress::parse(server)).collect::<Result<_, _>>()?;
        let pool = ServerPool::new(addresses, options.shuffle, options.backoff.clone(), options.clock.draws());
        // Report faulty options at once, instead of in each attempt.
        info::check_login(&options.login)?;
        if options.tls.required || options.tls.roots.is_some() || options.tls.client.is_some() {
            tls::config(&options.tls)?;
        }
        let shared = LinkShared::new(options);
        let handle = ConnectionHandle::new(&shared);
        let reader = Arc::clone(&shared);
        handle.spawn("reader", move || reader.read(pool))?;
        let writer = Arc::clone(&shared);
        handle.spawn("writer", move || writer.write())?;
        shared.wait_for_first()?;
        Ok(Self { handle: Arc::new(handle), stop: None })
    }

    /// Publishes a message. Returns as soon as the message is in the outbound buffer, before the server has it.
    ///
    /// Blocks while the connection is down or the buffer is full, for at most the request timeout. Messages may be
    /// lost if the connection ends before [`flush`](Self::flush) has returned.
    ///
    /// # Errors
    ///
    /// Returns an error if the subject is invalid, the payload exceeds the server's limit, the timeout passes, or the
    /// connection is closed.
    pub fn publish(&self, subject: &str, payload: &[u8]) -> Result<(), NatsError> {
        self.publish_with_headers(subject, &NatsHeaders::new(), payload)
    }

    /// Publishes a message with headers, like [`publish`](Self::publish).
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish), and if a header is invalid.
    pub fn publish_with_headers(&self, subject: &str, headers: &NatsHeaders, payload: &[u8]) -> Result<(), NatsError> {
        self.handle.shared.publish(Outgoing { subject, reply: None, headers, payload }, self.request_timeout())
    }

    /// Answers a request, like [`publish`](Self::publish). Does nothing if `request` expects no answer.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish).
    pub fn reply(&self, request: &NatsMessage, payload: &[u8]) -> Result<(), NatsError> {
        request.reply.as_deref().map_or(Ok(()), |subject| self.publish(subject, payload))
    }

    /// Sends a request, and blocks until its answer arrives, for at most the request timeout.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish), and if the subject has no subscriber, or the connection ends before the answer.
    /// In the last case the request may have been executed.
    pub fn request(&self, subject: &str, payload: &[u8]) -> Result<NatsMessage, NatsError> {
        self.request_with_headers(subject, &NatsHeaders::new(), payload, self.request_timeout())
    }

    /// Sends a request with headers, like [`request`](Self::request), and blocks for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`request`](Self::request).
    pub fn request_with_headers(
        &self,
        subject: &str,
        headers: &NatsHeaders,
        payload: &[u8],
        timeout: Duration,
    ) -> Result<NatsMessage, NatsError> {
        #[cfg(all(test, unix, not(loom)))]
        if let Some(player) = &self.handle.player {
            return player.answer(subject, headers, payload);
        }
        let message = Outgoing { subject, reply: None, headers, payload };
        self.handle.shared.request(message, timeout, self.stop.as_ref())
    }

    /// Subscribes to a subject, which may have wildcards. Returns at once.
    ///
    /// Call [`flush`](Self::flush) to make sure that the server has the subscription.
    ///
    /// # Errors
    ///
    /// Returns an error if the subject is invalid, or if the connection is closed.
    pub fn subscribe(&self, subject: &str) -> Result<NatsSubscription, NatsError> {
        self.subscribe_as(subject, None)
    }

    /// Subscribes as a member of a queue group. The server sends each message to one member of the group.
    ///
    /// # Errors
    ///
    /// As [`subscribe`](Self::subscribe).
    pub fn queue_subscribe(&self, subject: &str, group: &str) -> Result<NatsSubscription, NatsError> {
        self.subscribe_as(subject, Some(group))
    }

    fn subscribe_as(&self, subject: &str, group: Option<&str>) -> Result<NatsSubscription, NatsError> {
        let shared = &self.handle.shared;
        let mailbox = shared.mailbox();
        let sid = shared.subscribe(subject, group, &mailbox)?;
        Ok(NatsSubscription::new(Arc::clone(shared), mailbox, subject, sid))
    }

    /// Blocks until the server has processed all earlier messages, for at most the request timeout.
    ///
    /// # Errors
    ///
    /// Returns an error after the timeout, or if the connection ends or is closed.
    pub fn flush(&self) -> Result<(), NatsError> {
        self.handle.shared.flush(self.request_timeout())
    }

    /// Closes the connection. All blocked calls return with an error at once.
    ///
    /// Drops the messages in the outbound buffer: call [`flush`](Self::flush) first to keep them. Blocks until the two
    /// threads have ended, for at most 100 ms. A thread that is resolving a host name ends later.
    pub fn close(&self) {
        self.handle.close();
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> NatsStatus {
        self.handle.shared.describe(|state, info, servers, last_error| NatsStatus {
            connected: matches!(state.phase(), LinkPhase::Connected),
            closed: state.is_closed(),
            server: state.server().to_owned(),
            servers: servers.to_vec(),
            server_name: info.server_name.clone(),
            version: info.version.clone(),
            connects: state.connects(),
            subscriptions: state.subscriptions(),
            requests: state.requests(),
            last_error: last_error.cloned(),
        })
    }

    /// Returns a new connection with the same options and a different request timeout. Does not wait for a server.
    pub(super) fn sibling(&self, request_timeout: Duration) -> Result<Self, NatsError> {
        let options = self.handle.shared.options.clone();
        let name = format!("{}-timed", options.name);
        options.name(name).request_timeout(request_timeout).retry_first_connect(true).connect()
    }

    /// Returns the largest message that the server accepts, headers included, in bytes.
    #[must_use]
    pub fn max_payload(&self) -> usize {
        self.handle.shared.describe(|state, _, _, _| state.max_payload())
    }

    /// Returns the default timeout of a request.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        self.handle.shared.options.request_timeout
    }

    /// Returns the prefix of the subjects on which answers arrive.
    pub(super) fn inbox_prefix(&self) -> &str {
        &self.handle.shared.options.inbox_prefix
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.handle.shared.options.clock
    }

    /// Publishes a message if the connection is up and the buffer has room. Returns whether it did. If the server
    /// refuses the subject, the subscription of `reply` receives an answer with the status [`REFUSED`].
    pub(super) fn try_publish(&self, subject: &str, reply: Option<&str>, payload: &[u8]) -> bool {
        let headers = NatsHeaders::new();
        self.handle.shared.try_publish(Outgoing { subject, reply, headers: &headers, payload })
    }

    /// Returns a handle of this connection. Its requests and pauses fail with a *closed* error once `stop` is
    /// cancelled.
    pub(super) fn with_stop(&self, stop: &CancellationToken) -> Self {
        Self { handle: Arc::clone(&self.handle), stop: Some(stop.clone()) }
    }

    /// Blocks until `deadline`. Returns an error if the connection is closed.
    pub(super) fn pause(&self, deadline: Nanos) -> Result<(), NatsError> {
        #[cfg(all(test, unix, not(loom)))]
        if self.handle.player.is_some() {
            return Ok(());
        }
        let shared = Arc::clone(&self.handle.shared);
        let _wakeup = self.stop.as_ref().map(|stop| stop.on_cancel(move || shared.wake()));
        if self.handle.shared.pause(deadline, self.stop.as_ref()) { Ok(()) } else { Err(NatsError::closed()) }
    }

    /// Returns whether the server reports that it has `JetStream`.
    pub(super) fn has_jetstream(&self) -> bool {
        self.handle.shared.info().jetstream
    }
}

impl ConnectionHandle {
    fn new(shared: &Arc<LinkShared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            threads: Mutex::new(Vec::new()),
            owner: OwnerProcess::current(),
            #[cfg(all(test, unix, not(loom)))]
            player: None,
        }
    }

    fn spawn(&self, role: &str, body: impl FnOnce() + Send + 'static) -> Result<(), NatsError> {
        let options = &self.shared.options;
        let name = format!("{}-{role}", options.name);
        self.shared.link.with(|link| link.threads += 1);
        match options.threads.spawn(name.clone(), body) {
            Ok(joiner) => self.threads.lock().push(joiner),
            Err(error) => {
                self.shared.link.with(|link| link.threads -= 1);
                return Err(NatsError::thread(&name, error));
            }
        }
        Ok(())
    }

    fn close(&self) {
        self.shared.close(&NatsError::closed());
        let threads = std::mem::take(&mut *self.threads.lock());
        if self.shared.wait_for_threads(JOIN) {
            threads.into_iter().for_each(Joiner::join);
        }
    }
}

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        if self.owner.is_current() {
            self.close();
        }
    }
}

impl fmt::Debug for NatsConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NatsStatus { connected, server, .. } = self.status();
        f.debug_struct("NatsConnection")
            .field("name", &self.handle.shared.options.name)
            .field("connected", &connected)
            .field("server", &server)
            .finish_non_exhaustive()
    }
}
