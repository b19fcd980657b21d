//! The open connections, their limits, and their end when the server stops.
//!
//! # Invariants
//!
//! - A connection first shows that it reads, and then checks `stopping`. A stop first sets `stopping`, and then ends
//!   the connections that read. Therefore no connection blocks in a read after a stop.
//! - A connection first shows that it writes, and then checks `stopping` again. Therefore the cut after a stop finds
//!   every write from before the stop. A later write has its own limits and is not cut, even if its thread starts
//!   late.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use super::activity::{ConnectionActivity, SeenConnection};
use super::limits::HttpLimits;
use super::memory::{BodyReservation, Overload, ReplyReservation, RequestMemory};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};
use homeostat::base::CancellationToken;

/// The limits for a write after a stop. They are long, because its thread may start late.
const LAST_WRITE: WriteLimits = WriteLimits { piece: Duration::from_secs(1), whole: Duration::from_secs(5) };

/// How long a client may take to read a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteLimits {
    /// The limit for each 64 KiB.
    pub(super) piece: Duration,
    /// The limit for all bytes.
    pub(super) whole: Duration,
}

/// The activity of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ConnectionPhase {
    /// It waits for bytes from the client.
    Reads,
    /// A handler processes a request, or waits for the next part of a stream.
    Handles,
    /// It sends a part of a reply.
    Writes,
    /// It sends a part of a reply that began after a stop.
    WritesLast,
}

/// An open connection.
pub(super) struct ServedConnection {
    pub(super) socket: Arc<TcpStream>,
    pub(super) peer: SocketAddr,
    phase: AtomicU8,
    pub(super) activity: Mutex<ConnectionActivity>,
}

/// The open connections of a server.
pub(crate) struct ConnectionRegistry {
    pub(super) limits: HttpLimits,
    state: Mutex<RegistryState>,
    stopping: AtomicBool,
    /// Whether a stop has cut the writes.
    cut: AtomicBool,
    /// Cancelled when the server stops. Streams have child tokens.
    pub(super) stop: CancellationToken,
    /// The memory use of all clients together.
    memory: Arc<RequestMemory>,
}

#[derive(Default)]
struct RegistryState {
    next: u64,
    open: HashMap<u64, Arc<ServedConnection>>,
    streams: usize,
    clients: HashMap<IpAddr, ClientUsage>,
}

/// The connections and streams of one client address.
struct ClientUsage {
    connections: usize,
    streams: usize,
    memory: Arc<RequestMemory>,
}

impl ClientUsage {
    fn new(limits: &HttpLimits) -> Self {
        let memory = RequestMemory::new(limits.bodies_per_client(), limits.replies_per_client());
        Self { connections: 0, streams: 0, memory: Arc::new(memory) }
    }
}

impl ConnectionRegistry {
    pub(crate) fn new(limits: HttpLimits) -> Arc<Self> {
        let memory = Arc::new(RequestMemory::new(limits.bodies, limits.replies));
        Arc::new(Self {
            limits,
            state: Mutex::new(RegistryState::default()),
            stopping: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            stop: CancellationToken::new(),
            memory,
        })
    }

    /// Adds a connection, unless there are too many.
    pub(super) fn open(
        self: &Arc<Self>,
        socket: TcpStream,
        peer: SocketAddr,
    ) -> Result<ConnectionSlot, (TcpStream, Overload)> {
        let client = client_of(peer.ip());
        let mut state = self.state.lock();
        if state.open.len() >= self.limits.connections {
            return Err((socket, Overload::Server));
        }
        let usage = state.clients.entry(client).or_insert_with(|| ClientUsage::new(&self.limits));
        if usage.connections >= self.limits.connections_per_client {
            return Err((socket, Overload::Client));
        }
        usage.connections += 1;
        let memory = Arc::clone(&usage.memory);
        let (phase, activity) = (AtomicU8::new(0), Mutex::new(ConnectionActivity::default()));
        let connection = ServedConnection { socket: Arc::new(socket), peer, phase, activity };
        let connection = Arc::new(connection);
        state.next += 1;
        let number = state.next;
        state.open.insert(number, Arc::clone(&connection));
        Ok(ConnectionSlot { registry: Arc::clone(self), number, client, memory, connection })
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Returns the oldest open connections, at most `most`.
    pub(crate) fn oldest(&self, most: usize) -> Vec<SeenConnection> {
        let mut open: Vec<_> = self.state.lock().open.iter().map(|(number, of)| (*number, Arc::clone(of))).collect();
        open.sort_unstable_by_key(|(number, _)| *number);
        let seen = |(_, of): &(u64, Arc<ServedConnection>)| SeenConnection {
            peer: of.peer,
            is_idle: of.phase() == ConnectionPhase::Reads,
            activity: of.activity.lock().clone(),
        };
        open.iter().take(most).map(seen).collect()
    }

    pub(crate) fn streams(&self) -> usize {
        self.state.lock().streams
    }

    /// Returns the memory use of all replies that are being sent, in bytes.
    pub(crate) fn reply_bytes(&self) -> usize {
        self.memory.reply_bytes()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Ends all connections that wait for their client. The thread that accepts connections then cancels all streams.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.end(|phase| phase == ConnectionPhase::Reads);
    }

    /// Cancels all streams, and waits for the callbacks of their clients.
    pub(super) fn cancel_streams(&self) {
        self.stop.cancel();
    }

    /// Cuts connections that are still in a write from before the stop. Afterwards a stream can only send its end.
    pub(super) fn cut_writes(&self) {
        self.cut.store(true, SeqCst);
        self.end(|phase| phase == ConnectionPhase::Writes);
    }

    /// Returns the limits for a write that begins now.
    pub(super) fn write_limits(&self) -> WriteLimits {
        let HttpLimits { write_time: piece, stream_life: whole, .. } = self.limits;
        if self.is_stopping() {
            WriteLimits { piece: piece.min(LAST_WRITE.piece), whole: whole.min(LAST_WRITE.whole) }
        } else {
            WriteLimits { piece, whole }
        }
    }

    /// Stops, and ends all connections.
    pub(crate) fn abort(&self) {
        self.stop();
        self.disconnect();
    }

    /// Ends all connections.
    pub(crate) fn disconnect(&self) {
        self.end(|_| true);
    }

    fn end(&self, which: impl Fn(ConnectionPhase) -> bool) {
        let open: Vec<_> = self.state.lock().open.values().cloned().collect();
        for connection in open.iter().filter(|connection| which(connection.phase())) {
            // Fails if the socket is already closed.
            let _ = connection.socket.shutdown(Shutdown::Both);
        }
    }
}

impl ServedConnection {
    fn phase(&self) -> ConnectionPhase {
        match self.phase.load(SeqCst) {
            0 => ConnectionPhase::Reads,
            1 => ConnectionPhase::Handles,
            2 => ConnectionPhase::Writes,
            _ => ConnectionPhase::WritesLast,
        }
    }

    pub(super) fn enter(&self, phase: ConnectionPhase) {
        self.phase.store(phase as u8, SeqCst);
    }
}

/// An open connection. Dropping this stops counting it.
pub(super) struct ConnectionSlot {
    registry: Arc<ConnectionRegistry>,
    pub(super) number: u64,
    client: IpAddr,
    memory: Arc<RequestMemory>,
    pub(super) connection: Arc<ServedConnection>,
}

impl ConnectionSlot {
    /// Enters the writing phase. Returns the limits for the write.
    pub(super) fn begin_write(&self) -> WriteLimits {
        if !self.registry.is_stopping() {
            self.connection.enter(ConnectionPhase::Writes);
        }
        if self.registry.is_stopping() {
            self.connection.enter(ConnectionPhase::WritesLast);
        }
        self.registry.write_limits()
    }

    /// Returns whether a stop has cut the writes.
    pub(super) fn is_cut(&self) -> bool {
        self.registry.cut.load(SeqCst)
    }

    /// Creates the reservation for a body that is still empty.
    pub(super) fn reservation(&self) -> BodyReservation {
        BodyReservation::new(&self.registry.memory, &self.memory)
    }

    /// Creates the reservation for a reply that uses no memory yet.
    pub(super) fn reply_reservation(&self) -> ReplyReservation {
        ReplyReservation::new(&self.registry.memory, &self.memory)
    }

    /// Counts a stream. Returns `None` if the client has too many.
    pub(super) fn open_stream(&self) -> Option<StreamSlot> {
        let mut state = self.registry.state.lock();
        let limits = &self.registry.limits;
        let usage = state.clients.entry(self.client).or_insert_with(|| ClientUsage::new(limits));
        if usage.streams >= limits.streams_per_client {
            return None;
        }
        usage.streams += 1;
        state.streams += 1;
        Some(StreamSlot { registry: Arc::clone(&self.registry), client: self.client })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        // The last handle closes the socket, which must not happen under the lock.
        let _socket = {
            let mut state = self.registry.state.lock();
            state.release(self.client, |usage| usage.connections -= 1);
            state.open.remove(&self.number)
        };
    }
}

/// An open stream. Dropping this stops counting it.
pub(super) struct StreamSlot {
    registry: Arc<ConnectionRegistry>,
    client: IpAddr,
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut state = self.registry.state.lock();
        state.streams -= 1;
        state.release(self.client, |usage| usage.streams -= 1);
    }
}

impl RegistryState {
    fn release(&mut self, client: IpAddr, release: impl FnOnce(&mut ClientUsage)) {
        let Some(usage) = self.clients.get_mut(&client) else { return };
        release(usage);
        if usage.connections == 0 && usage.streams == 0 {
            self.clients.remove(&client);
        }
    }
}

/// Returns the address under which a client is counted. An IPv6 client owns 2^64 addresses, and a local one all
/// loopback addresses.
pub(crate) fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::idle::MOST_LINGERING;
    use super::super::memory::UNCOUNTED_REPLY;
    use super::*;

    /// Opens a connection for this client.
    fn open(registry: &Arc<ConnectionRegistry>, client: &str) -> ConnectionSlot {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        registry.open(socket, SocketAddr::new(client.parse().unwrap(), 1)).map_err(|(_, overload)| overload).unwrap()
    }

    #[test]
    fn the_memory_for_bodies_is_bounded() {
        let registry = ConnectionRegistry::new(HttpLimits { bodies: 100, body: 80, ..HttpLimits::default() });
        let slots = ["192.0.2.1", "192.0.2.2"].map(|client| open(&registry, client));
        let [mut first, mut second] = slots.each_ref().map(ConnectionSlot::reservation);
        assert_eq!((first.grow_to(50), first.grow_to(60)), (Ok(()), Ok(())));
        assert_eq!((second.grow_to(41), second.grow_to(40)), (Err(Overload::Server), Ok(())));
        assert_eq!(second.grow_to(41), Err(Overload::Server));
        assert_eq!(slots[1].reservation().grow_to(usize::MAX), Err(Overload::Client));
        drop(first);
        assert_eq!(second.grow_to(80), Ok(()));
        drop(second);
        assert_eq!(registry.memory.body_bytes(), 0);
    }

    #[test]
    fn one_client_cannot_hold_the_memory_for_all_bodies() {
        let registry = ConnectionRegistry::new(HttpLimits { bodies: 100, body: 20, ..HttpLimits::default() });
        let slots = ["192.0.2.1", "192.0.2.1", "192.0.2.2"].map(|client| open(&registry, client));
        let [mut first, mut second, mut other] = slots.each_ref().map(ConnectionSlot::reservation);
        assert_eq!((first.grow_to(30), second.grow_to(20)), (Ok(()), Ok(())));
        assert_eq!((second.grow_to(21), first.grow_to(31)), (Err(Overload::Client), Err(Overload::Client)));
        // When the server refuses, the client keeps its share.
        let (rest, mut third) = (open(&registry, "192.0.2.3"), slots[2].reservation());
        let mut rest = rest.reservation();
        assert_eq!((other.grow_to(40), rest.grow_to(10)), (Ok(()), Ok(())));
        assert_eq!(third.grow_to(10), Err(Overload::Server));
        drop(first);
        assert_eq!((second.grow_to(50), third.grow_to(1)), (Ok(()), Err(Overload::Server)));
        drop(second);
        assert_eq!((third.grow_to(11), third.grow_to(10)), (Err(Overload::Client), Ok(())));
    }

    #[test]
    fn the_memory_for_replies_is_bounded_and_one_client_has_half_of_it() {
        const MIB: usize = 1 << 20;
        let registry = ConnectionRegistry::new(HttpLimits { replies: 8 * MIB, ..HttpLimits::default() });
        let slots = ["192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|client| open(&registry, client));
        let [mut first, mut second, mut other, mut third] = slots.each_ref().map(ConnectionSlot::reply_reservation);
        assert_eq!((first.hold(3 * MIB), second.hold(3 * MIB)), (Ok(()), Ok(())), "the last one may be large");
        assert_eq!(second.hold(3 * MIB + 1), Err(Overload::Client));
        assert_eq!((other.hold(10 * MIB), third.hold(MIB)), (Ok(()), Err(Overload::Server)));
        assert_eq!(third.hold(UNCOUNTED_REPLY), Ok(()), "small replies do not count");
        assert_eq!((other.hold(MIB), third.hold(MIB)), (Ok(()), Ok(())), "a reply gives back the parts that are sent");
        third.hold_always(20 * MIB);
        assert_eq!(registry.reply_bytes(), 27 * MIB);
        drop((first, second, other, third));
        assert_eq!(registry.reply_bytes(), 0);
        assert!(registry.state.lock().clients.values().all(|usage| usage.memory.reply_bytes() == 0));
    }

    #[test]
    fn the_oldest_connections_are_listed_with_their_last_requests() {
        let registry = ConnectionRegistry::new(HttpLimits::default());
        let slots = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|client| open(&registry, client));
        for verb in ["LIST", "GET"] {
            slots[1].connection.activity.lock().admit("ada", verb, "/api/v1/nodes/secret");
        }
        slots[1].connection.enter(ConnectionPhase::Handles);
        let [first, second] = &registry.oldest(2)[..] else { panic!() };
        let unused = ConnectionActivity::default();
        assert_eq!((first.peer, first.is_idle, &first.activity), (slots[0].connection.peer, true, &unused));
        let activity = ConnectionActivity {
            since: None,
            requests: 2,
            user: "ada".to_owned(),
            last: "GET /api/v1/nodes/…".to_owned(),
        };
        assert_eq!((second.peer, second.is_idle, &second.activity), (slots[1].connection.peer, false, &activity));
        let peer = slots[2].connection.peer;
        drop(slots);
        assert_eq!((registry.oldest(9), peer.port()), (Vec::new(), 1));
    }

    #[test]
    fn addresses_of_one_ipv6_client_count_as_one() {
        let client = |address: &str| client_of(address.parse().unwrap());
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
    }

    #[test]
    fn loopback_addresses_count_as_one() {
        let client = |address: &str| client_of(address.parse().unwrap());
        for address in ["127.0.0.2", "127.255.0.1", "::1", "::ffff:127.0.0.3"] {
            assert_eq!(client(address), client("127.0.0.1"), "{address}");
        }
        assert_ne!(client("::2"), client("::1"));
    }

    #[test]
    fn the_connections_leave_descriptors_for_the_program() {
        let limits = HttpLimits::default();
        assert!(limits.connections_per_client < limits.connections);
        assert!(limits.connections + MOST_LINGERING <= 1_024 - 256);
    }
}
