//! Responses, written in chunks to a connection.

use std::io::{self, Write};
use std::net::TcpStream;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::answer::ServerAnswer;

/// The body of a response. Each write is sent at once.
pub(super) struct Body<'a> {
    stream: &'a TcpStream,
    gzip: bool,
    /// How many bytes may still be sent before the connection is cut.
    left: Option<usize>,
}

impl<'a> Body<'a> {
    /// Sends the head of a response. With `last`, the connection ends after the response.
    pub(super) fn begin(stream: &'a TcpStream, status: u16, answer: &ServerAnswer, last: bool) -> io::Result<Self> {
        let mut head = format!("HTTP/1.1 {status} {}\r\nTransfer-Encoding: chunked\r\n", phrase(status));
        if last {
            head.push_str("Connection: close\r\n");
        }
        if !answer.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            head.push_str("Content-Type: application/json\r\n");
        }
        for (name, value) in &answer.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.push_str("\r\n");
        let mut writer = stream;
        writer.write_all(head.as_bytes())?;
        Ok(Self { stream, gzip: answer.gzip, left: answer.most })
    }

    /// Sends a chunk. Fails if the connection must be cut after it.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let kept = self.left.map_or(bytes, |left| &bytes[..bytes.len().min(left)]);
        if !kept.is_empty() {
            let compressed = if self.gzip { Some(compress(kept)?) } else { None };
            let sent = compressed.as_deref().unwrap_or(kept);
            let mut chunk = format!("{:x}\r\n", sent.len()).into_bytes();
            chunk.extend_from_slice(sent);
            chunk.extend_from_slice(b"\r\n");
            self.stream.write_all(&chunk)?;
        }
        if let Some(left) = &mut self.left {
            *left -= kept.len();
            if *left == 0 {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        Ok(())
    }

    /// Ends the body normally.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.stream.write_all(b"0\r\n\r\n")
    }
}

fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        _ => "Scripted",
    }
}
