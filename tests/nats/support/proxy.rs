//! A proxy that cuts, stalls and throttles connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::server::free_port;
use super::{pause, spawn};

/// A proxy before one server.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    target: u16,
    sockets: Mutex<Vec<TcpStream>>,
    stalled: Mutex<bool>,
    resumed: Condvar,
    /// The bytes of each millisecond. Zero means all.
    rate: AtomicUsize,
    refuses: AtomicBool,
}

impl Proxy {
    pub(crate) fn start(target: u16) -> Self {
        let port = free_port();
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let shared = Arc::new(Shared {
            target,
            sockets: Mutex::default(),
            stalled: Mutex::default(),
            resumed: Condvar::new(),
            rate: AtomicUsize::new(0),
            refuses: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        drop(spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if own.refuses.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", own.target)) else { continue };
                let mut sockets = own.sockets.lock();
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to, own) = (from.try_clone().unwrap(), to.try_clone().unwrap(), Arc::clone(&own));
                    drop(spawn(move || own.copy(from, to)));
                }
                sockets.extend([client, server]);
            }
        }));
        Self { port, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        for socket in self.shared.sockets.lock().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Passes no bytes on until [`resume`](Self::resume).
    pub(crate) fn stall(&self) {
        *self.shared.stalled.lock() = true;
    }

    pub(crate) fn resume(&self) {
        *self.shared.stalled.lock() = false;
        self.shared.resumed.notify_all();
    }

    /// Passes so many bytes on in each millisecond and direction.
    pub(crate) fn throttle(&self, bytes: usize) {
        self.shared.rate.store(bytes, Ordering::SeqCst);
    }

    /// Closes each new connection at once, if `refuse` is true.
    pub(crate) fn refuse(&self, refuse: bool) {
        self.shared.refuses.store(refuse, Ordering::SeqCst);
    }
}

impl Shared {
    fn copy(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 16 << 10];
        loop {
            let rate = self.rate.load(Ordering::SeqCst);
            let most = if rate == 0 { buffer.len() } else { rate.min(buffer.len()) };
            let Ok(count @ 1..) = from.read(&mut buffer[..most]) else { break };
            {
                let mut stalled = self.stalled.lock();
                while *stalled {
                    self.resumed.wait(&mut stalled);
                }
            }
            if rate > 0 {
                pause(Duration::from_millis(1));
            }
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.resume();
        self.refuse(true);
        self.cut();
    }
}
