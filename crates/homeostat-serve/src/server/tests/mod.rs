//! Tests of a server with their own handlers, over real sockets. No test depends on the speed of the machine: the long
//! timeout only ends tests that hang.

mod client;
#[cfg(unix)]
mod crowds;
mod guesses;
mod layers;
mod replies;
mod requests;
mod slow;
mod stops;
mod streams;
#[cfg(feature = "tls")]
mod tls;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use self::client::RawClient;
use super::{Server, ServerBuilder, ServerControl};
use crate::http::{Handler, IncomingRequest, Reply, ReplyStream};
use homeostat::base::{CancellationToken, Running};

/// A test that takes longer hangs.
const LONG: Duration = Duration::from_secs(60);

type Answer = Box<dyn Fn(&IncomingRequest) -> Reply + Send + Sync>;

struct FunctionHandler(Answer);

impl Handler for FunctionHandler {
    fn handle(&self, request: &IncomingRequest) -> Reply {
        (self.0)(request)
    }
}

/// Starts a server. `answer` creates its pages.
fn start(
    change: impl FnOnce(ServerBuilder) -> ServerBuilder,
    answer: impl Fn(&IncomingRequest) -> Reply + Send + Sync + 'static,
) -> Running<ServerControl> {
    built(change, answer).start().unwrap()
}

fn built(
    change: impl FnOnce(ServerBuilder) -> ServerBuilder,
    answer: impl Fn(&IncomingRequest) -> Reply + Send + Sync + 'static,
) -> Server {
    let handler = Arc::new(FunctionHandler(Box::new(answer)));
    let builder = Server::builder((Ipv4Addr::LOCALHOST, 0)).page_handler(move |_| handler);
    change(builder).build().unwrap()
}

/// Starts a server that echoes the method, the segments and the body of each request.
fn echo(change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Running<ServerControl> {
    start(change, |request| {
        let body = String::from_utf8_lossy(&request.body);
        let text = format!("{} {:?} {body}", request.method, request.segments);
        Reply::text(http::StatusCode::OK, text)
    })
}

/// Returns a reply with this stream.
fn stream(
    body: impl FnOnce(&mut ReplyStream<'_>, &CancellationToken) -> std::io::Result<()> + Send + 'static,
) -> Reply {
    Reply::empty(200).with_stream("text/plain", move |out| {
        let gone = out.gone();
        body(out, gone)
    })
}

/// Starts a server with streams that send `hello`, wait for their end and report it.
fn waiting(change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> (Running<ServerControl>, Receiver<&'static str>) {
    let (report, reported) = channel();
    let server = start(change, move |_| waiting_stream(&report));
    (server, reported)
}

fn waiting_stream(report: &Sender<&'static str>) -> Reply {
    let report = report.clone();
    stream(move |sink, token| {
        sink.send(b"hello")?;
        token.wait();
        // The test may already have ended.
        let _ = report.send("ended");
        Ok(())
    })
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}
