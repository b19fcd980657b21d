//! The server as programs and clients see it.

mod access;
mod curl;
mod settings;
#[cfg(feature = "tls")]
mod tls;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use homeostat::Running;
use homeostat_serve::{Server, ServerBuilder, ServerControl};

/// A test that takes longer hangs.
const LONG: Duration = Duration::from_secs(60);

fn start(change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Running<ServerControl> {
    change(Server::builder((Ipv4Addr::LOCALHOST, 0))).build().unwrap().start().unwrap()
}

fn connect(server: &ServerControl) -> TcpStream {
    let stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Sends one request, and returns the complete reply.
fn ask(mut stream: impl Read + Write, method: &str, path: &str, headers: &str) -> String {
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

fn status(reply: &str) -> &str {
    reply.split(' ').nth(1).unwrap_or_default()
}
