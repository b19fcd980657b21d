//! Answers that last a while: they end when the client closes the connection or the server stops.

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use homeostat::base::{CancellationToken, ThreadOptions};

/// Sends an answer. Cancels the token of `send` when the client closes the connection, when the server stops, or after
/// the timeout.
///
/// Afterwards the connection cannot be read.
pub(super) fn while_open(
    stream: &TcpStream,
    timeout: Option<Duration>,
    send: impl FnOnce(&CancellationToken) -> io::Result<()>,
) -> io::Result<()> {
    let closed = CancellationToken::new();
    let (mut reader, told) = (stream.try_clone()?, closed.clone());
    reader.set_read_timeout(timeout)?;
    let read = move || {
        let mut bytes = [0; 256];
        while reader.read(&mut bytes).is_ok_and(|read| read > 0) {}
        told.cancel();
    };
    let reads = ThreadOptions::new().spawn("api-server-reader".to_owned(), read)?;
    let result = send(&closed);
    let _ = stream.shutdown(Shutdown::Read);
    reads.join();
    result
}

/// Blocks until the token is cancelled. Fails if the connection is closed first.
pub(super) fn wait(go_on: &CancellationToken, closed: &CancellationToken) -> io::Result<()> {
    let either = CancellationToken::new();
    let (one, other) = (either.clone(), either.clone());
    let registered = (go_on.on_cancel(move || one.cancel()), closed.on_cancel(move || other.cancel()));
    either.wait();
    drop(registered);
    if go_on.is_cancelled() { Ok(()) } else { Err(io::ErrorKind::ConnectionAborted.into()) }
}
