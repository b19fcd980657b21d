//! A client that can send any bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use super::LONG;
use crate::server::ServerControl;

pub(super) struct RawClient {
    pub(super) stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct RawReply {
    pub(super) status: u16,
    /// The head in lower case.
    pub(super) head: String,
    pub(super) body: String,
}

impl RawClient {
    pub(super) fn connect(server: &ServerControl) -> Self {
        let stream = TcpStream::connect(server.addresses()[0]).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    /// Connects, and sends these bytes.
    pub(super) fn with(server: &ServerControl, bytes: impl AsRef<[u8]>) -> Self {
        let mut client = Self::connect(server);
        client.send(bytes);
        client
    }

    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends bytes that the server may refuse. Returns whether it accepted them.
    pub(super) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    pub(super) fn half_close(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Reads a reply that has a length.
    pub(super) fn reply(&mut self) -> RawReply {
        let reply = self.head();
        let length = reply.head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let length = length.unwrap_or_else(|| panic!("no length: {}", reply.head)).parse().unwrap();
        self.fill(length);
        let body = self.buffer.drain(..length).collect();
        RawReply { body: String::from_utf8(body).unwrap(), ..reply }
    }

    /// Reads a head.
    pub(super) fn head(&mut self) -> RawReply {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
            self.fill(self.buffer.len() + 1);
        };
        let head = String::from_utf8(self.buffer.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        RawReply { status, head: head.to_lowercase(), body: String::new() }
    }

    /// Reads a chunk of text. An empty chunk is the last one.
    pub(super) fn chunk(&mut self) -> String {
        String::from_utf8(self.chunk_bytes()).unwrap()
    }

    /// Reads a chunk. An empty chunk is the last one.
    pub(super) fn chunk_bytes(&mut self) -> Vec<u8> {
        let end = loop {
            if let Some(at) = self.buffer.windows(2).position(|bytes| bytes == b"\r\n") {
                break at;
            }
            self.fill(self.buffer.len() + 1);
        };
        let line = String::from_utf8(self.buffer.drain(..end + 2).collect()).unwrap();
        let length = usize::from_str_radix(line.trim_end(), 16).unwrap();
        self.fill(length + 2);
        let mut chunk: Vec<u8> = self.buffer.drain(..length + 2).collect();
        assert_eq!(chunk.split_off(length), b"\r\n");
        chunk
    }

    /// Reads until the server closes the connection, and returns the bytes.
    pub(super) fn rest(&mut self) -> String {
        let mut rest = std::mem::take(&mut self.buffer);
        match self.stream.read_to_end(&mut rest) {
            // The server does not read bytes that a client sends too late.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            result => {
                result.unwrap();
            }
        }
        String::from_utf8(rest).unwrap()
    }

    fn fill(&mut self, length: usize) {
        let mut bytes = [0; 4_096];
        while self.buffer.len() < length {
            let read = self.stream.read(&mut bytes).unwrap();
            assert!(read > 0, "the connection ended after {:?}", String::from_utf8_lossy(&self.buffer));
            self.buffer.extend_from_slice(&bytes[..read]);
        }
    }
}
