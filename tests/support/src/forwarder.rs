//! A network that a test controls, between clients and a server.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Forwards connections, until a test cuts or refuses them, or disturbs their bytes. Its threads end with it and its
/// connections.
pub struct Forwarder {
    /// The host and port that accept connections.
    pub address: String,
    network: Arc<Network>,
}

/// The treatment of the bytes of one direction, on all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// They pass.
    #[default]
    Passing,
    /// They pass later. The end of a connection does too.
    Held,
    /// They disappear. A connection that has lost bytes stays silent, also later. The end of a connection passes later.
    Lost,
    /// This number of bytes passes in each millisecond.
    Slow(usize),
}

struct Network {
    target: String,
    is_proxy: bool,
    state: Mutex<NetworkState>,
    changed: Condvar,
}

#[derive(Default)]
struct NetworkState {
    has_ended: bool,
    refuses: bool,
    /// The bytes to the server, and those to the client.
    flows: [Flow; 2],
    accepted: usize,
    /// Both ends of the open connections, by number.
    open: HashMap<usize, [TcpStream; 2]>,
}

impl Forwarder {
    /// Forwards connections to a target (`127.0.0.1:6443`).
    pub fn to(target: &str) -> Self {
        Self::start("127.0.0.1:0", target, false)
    }

    /// Accepts connections at this address, and forwards them.
    pub fn at(address: &str, target: &str) -> Self {
        Self::start(address, target, false)
    }

    /// Answers requests `CONNECT` as an HTTP proxy does, and forwards the connections to a target in place of the named
    /// one.
    pub fn proxy_to(target: &str) -> Self {
        Self::start("127.0.0.1:0", target, true)
    }

    #[expect(clippy::disallowed_methods, reason = "a network of the test, not of the crate")]
    fn start(address: &str, target: &str, is_proxy: bool) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (state, changed) = (Mutex::default(), Condvar::new());
        let network = Arc::new(Network { target: target.to_owned(), is_proxy, state, changed });
        let accepting = Arc::clone(&network);
        thread::spawn(move || {
            for client in listener.incoming().map(Result::unwrap) {
                let Some(number) = accepting.accept() else { return };
                let network = Arc::clone(&accepting);
                thread::spawn(move || network.forward(number, &client));
            }
        });
        Self { address, network }
    }

    /// Breaks off all connections.
    pub fn cut(&self) {
        for stream in self.network.state.lock().open.values().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Closes new connections at once, or no longer does.
    pub fn refuse(&self, refuses: bool) {
        self.network.state.lock().refuses = refuses;
    }

    /// Sets the treatment of all bytes.
    pub fn set_flow(&self, flow: Flow) {
        self.set_flows([flow, flow]);
    }

    /// Sets the treatment of the bytes to the server, and of those to the client.
    pub fn set_flows(&self, flows: [Flow; 2]) {
        self.network.state.lock().flows = flows;
        self.network.changed.notify_all();
    }

    /// Returns the number of connections so far.
    pub fn accepted(&self) -> usize {
        self.network.state.lock().accepted
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.network.state.lock().has_ended = true;
        self.set_flow(Flow::Passing);
        self.cut();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(&self.address);
    }
}

impl Network {
    /// Returns the number of a new connection. `None` at the end.
    fn accept(&self) -> Option<usize> {
        let mut state = self.state.lock();
        state.accepted += 1;
        (!state.has_ended).then_some(state.accepted)
    }

    fn forward(&self, number: usize, client: &TcpStream) {
        if self.state.lock().refuses || (self.is_proxy && connect_answered(client).is_none()) {
            return;
        }
        let Ok(server) = TcpStream::connect(&self.target) else { return };
        {
            let mut state = self.state.lock();
            if state.refuses || state.has_ended {
                return;
            }
            state.open.insert(number, [client.try_clone().unwrap(), server.try_clone().unwrap()]);
        }
        thread::scope(|scope| {
            scope.spawn(|| self.copy(0, client, &server));
            self.copy(1, &server, client);
        });
        self.state.lock().open.remove(&number);
    }

    /// Copies the bytes of one direction until either side closes.
    fn copy(&self, direction: usize, mut from: &TcpStream, mut to: &TcpStream) {
        let mut bytes = vec![0; 64 * 1_024];
        let mut is_silent = false;
        'open: while let Ok(read @ 1..) = from.read(&mut bytes) {
            let mut rest = &bytes[..read];
            while !rest.is_empty() {
                let flow = self.await_flow(direction, |flow| flow == Flow::Held);
                is_silent |= flow == Flow::Lost;
                let count = if let Flow::Slow(rate) = flow { rate.min(rest.len()) } else { rest.len() };
                if matches!(flow, Flow::Slow(_)) {
                    pause();
                }
                if !is_silent && to.write_all(&rest[..count]).is_err() {
                    break 'open;
                }
                rest = &rest[count..];
            }
        }
        self.await_flow(direction, |flow| matches!(flow, Flow::Held | Flow::Lost));
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    /// Waits while the flow stops the bytes, and returns the new flow.
    fn await_flow(&self, direction: usize, stops: impl Fn(Flow) -> bool) -> Flow {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| stops(state.flows[direction]));
        state.flows[direction]
    }
}

#[expect(clippy::disallowed_methods, reason = "sockets know no held clock")]
fn pause() {
    thread::sleep(Duration::from_millis(1));
}

/// Answers a request `CONNECT`.
fn connect_answered(mut client: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(client).lines();
    assert!(lines.next()?.ok()?.starts_with("CONNECT "));
    while !lines.next()?.ok()?.is_empty() {}
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()
}
