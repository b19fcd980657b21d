//! Servers that play a script.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use homeostat_nats::protocol::{Frame, FrameParser};
use homeostat_nats::{NatsHeaders, NatsMessage};

use super::{LONG, spawn};
use homeostat_test_support::system::free_port;

pub(crate) const INFO: &str =
    "INFO {\"server_name\":\"scripted\",\"version\":\"2.9.10\",\"headers\":true,\"max_payload\":1000}\r\n";

/// One connection of a scripted server.
pub(crate) struct Peer {
    pub(crate) socket: TcpStream,
    parser: FrameParser,
    /// The subjects and numbers of the client's subscriptions.
    subscriptions: Vec<(String, u64)>,
}

/// The stream information of an empty bucket `TEST`, as its server reports it.
pub(crate) const STREAM: &str = r#"{"config":{"name":"KV_TEST","subjects":["$KV.TEST.>"],"max_msgs_per_subject":1,
    "max_msg_size":-1,"allow_rollup_hdrs":true,"allow_direct":true},"created":"2026-01-01T00:00:00Z","state":{}}"#;

/// Starts a server that plays `script` on each connection in turn. Returns its address.
pub(crate) fn serve(script: impl Fn(usize, Peer) + Send + Sync + 'static) -> String {
    let port = free_port();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let script = Arc::new(script);
    drop(spawn(move || {
        for (at, socket) in listener.incoming().map_while(Result::ok).enumerate() {
            socket.set_read_timeout(Some(LONG)).unwrap();
            let script = Arc::clone(&script);
            drop(spawn(move || script(at, Peer { socket, parser: FrameParser::new(), subscriptions: Vec::new() })));
        }
    }));
    format!("nats://127.0.0.1:{port}")
}

impl Peer {
    /// Sends bytes. The client may have closed the connection.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.socket.write_all(bytes.as_ref()).is_ok()
    }

    /// Returns the client's next frame. `None` at the end of the connection.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = self.parser.next_frame().unwrap() {
                return Some(frame);
            }
            match self.socket.read(&mut buffer) {
                Ok(count @ 1..) => self.parser.push(&buffer[..count]),
                _ => return None,
            }
        }
    }

    /// Accepts the client: INFO, CONNECT, PING, PONG.
    pub(crate) fn accept(&mut self) -> Option<String> {
        self.send(INFO);
        let Some(Frame::Connect(json)) = self.next() else { return None };
        assert_eq!(self.next(), Some(Frame::Ping));
        self.send("PONG\r\n");
        Some(json)
    }

    /// Returns the client's next publication or request. `None` at the end of the connection.
    pub(crate) fn next_request(&mut self) -> Option<NatsMessage> {
        loop {
            match self.next()? {
                Frame::Publish(message) => return Some(message),
                Frame::Subscribe { subject, sid, .. } => self.subscriptions.push((subject, sid)),
                Frame::Ping => drop(self.send("PONG\r\n")),
                _ => {}
            }
        }
    }

    /// Sends a message to the newest subscription to its subject.
    pub(crate) fn tell(&mut self, message: NatsMessage) {
        self.tell_on(&message.subject.clone(), message);
    }

    /// Sends a message to the newest subscription to `subject`. Consumers keep the stored message's own subject.
    pub(crate) fn tell_on(&mut self, subject: &str, message: NatsMessage) {
        let matches = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => subject.starts_with(start),
            None => subject == pattern,
        };
        let found = self.subscriptions.iter().rev().find(|(pattern, _)| matches(pattern));
        let sid = found.unwrap_or_else(|| panic!("nobody listens on {subject}")).1;
        let mut bytes = Vec::new();
        Frame::Message { sid, message }.write(&mut bytes).unwrap();
        self.send(bytes);
    }

    /// Answers a request.
    pub(crate) fn answer(&mut self, request: &NatsMessage, headers: NatsHeaders, payload: impl Into<Vec<u8>>) {
        let subject = request.reply.clone().unwrap();
        self.tell(NatsMessage { subject, reply: None, headers, payload: payload.into() });
    }

    /// Reads until the client closes the connection.
    pub(crate) fn drain(&mut self) {
        self.socket.set_read_timeout(Some(Duration::from_secs(600))).unwrap();
        while self.next().is_some() {}
    }
}
