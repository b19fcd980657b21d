//! A network that a test controls, between a client and a server.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

/// Forwards connections, until a test cuts, refuses or swallows them. Its threads end with their connections and with the process.
pub(crate) struct Forwarder {
    /// The host and port that accept connections.
    pub(crate) address: String,
    network: Arc<Network>,
}

#[derive(Default)]
struct Network {
    refuses: AtomicBool,
    /// Whether bytes disappear. A connection that has lost bytes stays silent.
    swallows: AtomicBool,
    accepted: AtomicUsize,
    /// Both ends of the open connections, by number.
    open: Mutex<HashMap<usize, [TcpStream; 2]>>,
}

impl Forwarder {
    /// Forwards connections to a target (`127.0.0.1:6443`).
    pub(crate) fn to(target: &str) -> Self {
        Self::start("127.0.0.1:0", target, false)
    }

    /// Accepts connections at this address, and forwards them.
    pub(crate) fn at(address: &str, target: &str) -> Self {
        Self::start(address, target, false)
    }

    /// Answers requests `CONNECT` as an HTTP proxy does, and forwards the connections to a target in place of the named one.
    pub(crate) fn proxy_to(target: &str) -> Self {
        Self::start("127.0.0.1:0", target, true)
    }

    #[expect(clippy::disallowed_methods, reason = "a network of the test, not of the crate")]
    fn start(address: &str, target: &str, is_proxy: bool) -> Self {
        let target = target.to_owned();
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let network = Arc::new(Network::default());
        let accepting = Arc::clone(&network);
        thread::spawn(move || {
            for client in listener.incoming().map(Result::unwrap) {
                let number = accepting.accepted.fetch_add(1, Ordering::SeqCst);
                let (network, target) = (Arc::clone(&accepting), target.clone());
                thread::spawn(move || network.forward(number, &client, &target, is_proxy));
            }
        });
        Self { address, network }
    }

    /// Breaks off all connections.
    pub(crate) fn cut(&self) {
        for stream in self.network.open.lock().values().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Closes new connections at once, or no longer does.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.network.refuses.store(refuses, Ordering::SeqCst);
    }

    /// Swallows all bytes without closing a connection, or no longer does.
    pub(crate) fn swallow(&self, swallows: bool) {
        self.network.swallows.store(swallows, Ordering::SeqCst);
    }

    /// Returns the number of connections so far.
    pub(crate) fn accepted(&self) -> usize {
        self.network.accepted.load(Ordering::SeqCst)
    }
}

impl Network {
    fn forward(&self, number: usize, client: &TcpStream, target: &str, is_proxy: bool) {
        if self.refuses.load(Ordering::SeqCst) || (is_proxy && connect_answered(client).is_none()) {
            return;
        }
        let Ok(server) = TcpStream::connect(target) else { return };
        self.open.lock().insert(number, [client.try_clone().unwrap(), server.try_clone().unwrap()]);
        thread::scope(|scope| {
            scope.spawn(|| self.copy(client, &server));
            self.copy(&server, client);
        });
        self.open.lock().remove(&number);
    }

    /// Copies bytes until either side closes.
    fn copy(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut bytes = vec![0; 64 * 1_024];
        let mut silent = false;
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            silent |= self.swallows.load(Ordering::SeqCst);
            if !silent && to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}

/// Answers a request `CONNECT`.
fn connect_answered(mut client: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(client).lines();
    assert!(lines.next()?.ok()?.starts_with("CONNECT "));
    while !lines.next()?.ok()?.is_empty() {}
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()
}
