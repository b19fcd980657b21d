//! Connections to slow and silent servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test, or its helper, that cannot continue has failed")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{park_timeout, scope};
use std::time::Duration;

use http::Method;

use super::path::RequestPath;
use super::request_error::{RequestError, RequestFault};
use super::transport::{HttpRequest, HttpTransport, TransportLimits};
use crate::config::ClusterConfig;
use crate::config::proxy::ProxyUrl;
use homeostat::base::{CancellationToken, Clock};
use homeostat_objects::Kind;

const SHORT: Duration = Duration::from_millis(300);
/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3600);

/// Returns a transport that never repeats a request because of a connection failure.
fn transport(url: &str, limits: impl FnOnce(&mut TransportLimits)) -> HttpTransport {
    transport_through(None, url, limits)
}

/// The same, through this proxy.
fn transport_through(proxy: Option<&str>, url: &str, limits: impl FnOnce(&mut TransportLimits)) -> HttpTransport {
    let config = ClusterConfig::new(url).unwrap().insecure_skip_tls_verify();
    let mut all = TransportLimits { connect: HOUR, read: HOUR, watch_read: HOUR, ..TransportLimits::default() };
    (all.retry.time, all.retry.connections) = (HOUR, 0);
    limits(&mut all);
    let proxy = proxy.map(|url| ProxyUrl::new("proxy", url));
    HttpTransport::new(config.parts(), proxy.as_ref(), "tests".to_owned(), all, Clock::system()).unwrap()
}

fn get(path: &RequestPath) -> HttpRequest<'_> {
    HttpRequest { method: Method::GET, path, body: None, accept: "application/json" }
}

fn path() -> RequestPath {
    RequestPath::of_version(&Kind::of("v1", "Pod")).unwrap()
}

fn text(fault: RequestFault) -> String {
    RequestError::new("GET", "it", fault).to_string().replace("GET it: ", "")
}

/// Sends one byte after the other, slowly, until the client leaves.
///
/// The interval is shorter than the tick of socket timeouts, so no single read times out.
fn drip(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    while stream.write_all(b" ").is_ok() {
        park_timeout(Duration::from_micros(200));
    }
}

#[test]
fn a_handshake_that_drips_ends_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let connect = transport(&url, |limits| limits.connect = SHORT);
    let call = transport(&url, |limits| limits.retry.time = SHORT);
    let cases = [(connect, "the connection was not established in time"), (call, "the server did not answer in time")];
    for (transport, expected) in cases {
        scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                // The header of a TLS record of 16 KiB.
                stream.write_all(&[0x16, 3, 3, 0x40, 0]).unwrap();
                drip(stream);
            });
            assert_eq!(text(transport.call(&get(&path()), None).unwrap_err()), expected);
        });
    }
}

/// The proxy's answer counts towards the time of the connection.
#[test]
fn a_tunnel_that_drips_ends_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let through =
        |limits: fn(&mut TransportLimits)| transport_through(Some(proxy.as_str()), "https://10.0.0.1", limits);
    let connect = through(|limits| limits.connect = SHORT);
    let call = through(|limits| limits.retry.time = SHORT);
    let cases = [(connect, "the connection was not established in time"), (call, "the server did not answer in time")];
    for (transport, expected) in cases {
        scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(b"HTTP/1.1 200 ").unwrap();
                drip(stream);
            });
            assert_eq!(text(transport.call(&get(&path()), None).unwrap_err()), expected);
        });
    }
}

#[test]
fn a_refused_watch_does_not_wait_long_for_the_body() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let transport = transport(&url, |limits| limits.read = SHORT);
    let never = CancellationToken::new();
    let cases = [(false, "the server sent nothing for too long"), (true, "the server did not answer in time")];
    for (drips, expected) in cases {
        scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 1000000\r\n\r\n").unwrap();
                if drips {
                    drip(stream);
                } else {
                    // Ends when the client leaves.
                    let _ = stream.read_to_end(&mut Vec::new());
                }
            });
            assert_eq!(text(transport.open(&get(&path()), &never).map(drop).unwrap_err()), expected);
        });
    }
}
