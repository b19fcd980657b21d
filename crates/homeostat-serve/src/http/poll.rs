//! Waits for several sockets at once, with a timeout and a way to wake it.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use homeostat::base::Clock;
use homeostat::rt::Nanos;

/// A socket that a [`Poll`] waits for.
pub(crate) enum PolledSocket {
    Listener(Arc<TcpListener>),
    Stream(Arc<TcpStream>),
}

#[cfg(unix)]
pub(crate) use self::unix::Poll;
#[cfg(unix)]
pub(super) use self::unix::discard;

#[cfg(not(unix))]
pub(crate) use self::others::Poll;
#[cfg(not(unix))]
pub(super) use self::others::discard;

/// The result of reading and discarding bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discarded {
    /// The number of discarded bytes. Zero if none had arrived.
    Bytes(usize),
    /// The client has closed the connection, or the connection failed.
    Ended,
}

#[cfg(unix)]
mod unix {
    use std::io::{Read, Write};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    use rustix::net::{RecvFlags, recv};

    use super::{Arc, Clock, Discarded, Nanos, PolledSocket, TcpStream, io};

    impl AsFd for PolledSocket {
        fn as_fd(&self) -> BorrowedFd<'_> {
            match self {
                Self::Listener(listener) => listener.as_fd(),
                Self::Stream(stream) => stream.as_fd(),
            }
        }
    }

    /// Lets one thread wait, and other threads wake it.
    #[derive(Debug)]
    pub(crate) struct Poll {
        clock: Clock,
        waker: UnixStream,
        woken: UnixStream,
    }

    impl Poll {
        pub(crate) fn new(clock: Clock) -> io::Result<Arc<Self>> {
            let (waker, woken) = UnixStream::pair()?;
            waker.set_nonblocking(true)?;
            woken.set_nonblocking(true)?;
            Ok(Arc::new(Self { clock, waker, woken }))
        }

        /// Wakes the waiting thread, or makes its next wait return at once.
        pub(crate) fn wake(&self) {
            // If the buffer is full, an earlier wake is still pending.
            let _ = (&self.waker).write(&[0]);
        }

        /// Blocks until a socket is readable, until a wake, or until `deadline`. Returns the indices of the readable
        /// sockets.
        pub(crate) fn wait(&self, sockets: &[PolledSocket], deadline: Nanos) -> Vec<usize> {
            let timeout = match deadline {
                Nanos::NEVER => None,
                deadline => Some(deadline.since(self.clock.nanos())),
            };
            // The system rounds to milliseconds. A wait must not end early and be repeated again and again.
            let timeout = timeout.map(|left| left.saturating_add(Duration::from_micros(100)));
            let timeout = timeout.and_then(|left| Timespec::try_from(left).ok());
            let mut polled = vec![PollFd::new(&self.woken, PollFlags::IN)];
            polled.extend(sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
            if poll(&mut polled, timeout.as_ref()).is_err() {
                // A signal interrupted the wait, or the system is short of memory. The caller tries again.
                return Vec::new();
            }
            if !polled[0].revents().is_empty() {
                let mut bytes = [0; 64];
                while (&self.woken).read(&mut bytes).is_ok_and(|read| read > 0) {}
            }
            let ready = polled[1..].iter().enumerate().filter(|(_, socket)| !socket.revents().is_empty());
            ready.map(|(at, _)| at).collect()
        }
    }

    /// Reads and discards bytes that have arrived, without blocking.
    pub(crate) fn discard(socket: &TcpStream) -> Discarded {
        let mut bytes = [0_u8; 4_096];
        match recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => Discarded::Ended,
            Ok((read, _)) => Discarded::Bytes(read),
            Err(Errno::AGAIN | Errno::INTR) => Discarded::Bytes(0),
            Err(_) => Discarded::Ended,
        }
    }
}

#[cfg(not(unix))]
mod others {
    use std::time::Duration;

    use super::{Arc, Clock, Discarded, Nanos, PolledSocket, TcpStream, io};
    use homeostat::rt::AutoResetEvent;

    /// The interval at which listeners are checked.
    const PERIOD: Duration = Duration::from_millis(10);

    /// Lets one thread wait, and other threads wake it.
    ///
    /// This system has no safe call that waits for several sockets. Listeners are checked at intervals. A client that
    /// leaves is noticed at the next write.
    #[derive(Debug)]
    pub(crate) struct Poll {
        clock: Clock,
        event: Arc<AutoResetEvent>,
    }

    impl Poll {
        pub(crate) fn new(clock: Clock) -> io::Result<Arc<Self>> {
            Ok(Arc::new(Self { event: AutoResetEvent::new(clock.clone()), clock }))
        }

        pub(crate) fn wake(&self) {
            self.event.set();
        }

        pub(crate) fn wait(&self, sockets: &[PolledSocket], deadline: Nanos) -> Vec<usize> {
            let listeners =
                sockets.iter().enumerate().filter(|(_, socket)| matches!(socket, PolledSocket::Listener(_)));
            let listeners: Vec<_> = listeners.map(|(at, _)| at).collect();
            let soon = self.clock.nanos().after(PERIOD);
            self.event.wait_until(if listeners.is_empty() { deadline } else { deadline.min(soon) });
            listeners
        }
    }

    /// Reads nothing, because this system has no safe call that does not block.
    pub(crate) fn discard(_: &TcpStream) -> Discarded {
        Discarded::Bytes(0)
    }
}
