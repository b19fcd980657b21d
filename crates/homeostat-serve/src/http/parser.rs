//! Splits the bytes of a connection into heads and bodies. A plain value, without socket or clock.
//!
//! # Invariants
//!
//! - The results depend only on the bytes, not on how they are split into reads.
//! - The parser stores at most one head or body within the limits, and the bytes of one read.

use http::StatusCode;

use super::head::{BodyFraming, RequestHead, UnreadableRequest, body_too_large, parse_head, too_large};
use super::limits::HttpLimits;

/// The largest size of the line before a chunk in bytes.
const MOST_CHUNK_LINE: usize = 256;
/// The largest size of the headers after the last chunk in bytes.
const MOST_TRAILERS: usize = 4 << 10;

/// The parser of one connection.
#[derive(Debug)]
pub(super) struct RequestParser {
    buffer: Vec<u8>,
    /// How many bytes of the buffer are known to contain no end of a head.
    searched: usize,
    body: Vec<u8>,
    framing: Framing,
    most_line: usize,
    most_head: usize,
    most_body: usize,
}

/// The position within a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// This many bytes are missing.
    Length(usize),
    ChunkLine,
    /// This many bytes of the chunk are missing.
    Chunk(usize),
    ChunkEnd,
    /// This many bytes of lines after the last chunk were read.
    Trailers(usize),
    Done,
}

impl RequestParser {
    pub(super) fn new(limits: &HttpLimits) -> Self {
        Self {
            buffer: Vec::new(),
            searched: 0,
            body: Vec::new(),
            framing: Framing::Done,
            most_line: limits.request_line,
            most_head: limits.head,
            most_body: limits.body,
        }
    }

    /// Adds bytes of the connection.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns whether no byte of the next request has arrived.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Frees the memory of an empty buffer.
    pub(super) fn shrink(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = Vec::new();
        }
    }

    /// Takes the next head. Returns `None` if it is incomplete.
    pub(super) fn head(&mut self) -> Result<Option<RequestHead>, UnreadableRequest> {
        // Old clients send an empty line after a body.
        let blank = self.buffer.chunks_exact(2).take_while(|pair| pair == b"\r\n").count() * 2;
        self.buffer.drain(..blank);
        match self.buffer.first() {
            None => return Ok(None),
            Some(b'\r') if self.buffer.len() == 1 => return Ok(None),
            Some(byte) if !byte.is_ascii_uppercase() => {
                return Err(UnreadableRequest::bad("the request is not HTTP/1.1"));
            }
            Some(_) => {}
        }
        let line = self.buffer.iter().take(self.most_line + 1).position(|byte| *byte == b'\n');
        if line.is_none() && self.buffer.len() > self.most_line {
            return Err(UnreadableRequest::new(StatusCode::URI_TOO_LONG, "the request line is too long"));
        }
        let from = self.searched.saturating_sub(3);
        let end = self.buffer[from..].windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|at| from + at + 4);
        if end.unwrap_or(self.buffer.len()) > self.most_head {
            return Err(too_large("the head of the request is too large"));
        }
        self.searched = self.buffer.len();
        let Some(end) = end else { return Ok(None) };
        self.searched = 0;
        let head = parse_head(&self.buffer[..end], self.most_body)?;
        self.buffer.drain(..end);
        self.framing = match head.framing {
            BodyFraming::Length(length) => Framing::Length(length),
            BodyFraming::Chunked => Framing::ChunkLine,
        };
        Ok(Some(head))
    }

    /// Takes the body of the last head. Returns `None` if it is incomplete.
    pub(super) fn body(&mut self) -> Result<Option<Vec<u8>>, UnreadableRequest> {
        loop {
            self.framing = match self.framing {
                Framing::Done | Framing::Length(0) => {
                    self.framing = Framing::Done;
                    return Ok(Some(std::mem::take(&mut self.body)));
                }
                Framing::Length(missing) => match self.take_bytes(missing) {
                    0 => return Ok(None),
                    taken => Framing::Length(missing - taken),
                },
                Framing::ChunkLine => {
                    let Some(line) = self.line(MOST_CHUNK_LINE)? else { return Ok(None) };
                    match chunk_size(&line)? {
                        0 => Framing::Trailers(0),
                        size if size > self.most_body - self.body.len() => return Err(body_too_large()),
                        size => Framing::Chunk(size),
                    }
                }
                Framing::Chunk(0) => Framing::ChunkEnd,
                Framing::Chunk(missing) => match self.take_bytes(missing) {
                    0 => return Ok(None),
                    taken => Framing::Chunk(missing - taken),
                },
                Framing::ChunkEnd => match self.line(0)? {
                    None => return Ok(None),
                    Some(_) => Framing::ChunkLine,
                },
                Framing::Trailers(before) => match self.line(MOST_TRAILERS - before)? {
                    None => return Ok(None),
                    Some(line) if line.is_empty() => Framing::Done,
                    Some(line) => Framing::Trailers((before + line.len() + 2).min(MOST_TRAILERS)),
                },
            };
        }
    }

    /// Returns how many bytes of an incomplete body have arrived.
    pub(super) fn received(&self) -> usize {
        self.body.len()
    }

    /// Moves bytes from the buffer to the body. Returns their number.
    fn take_bytes(&mut self, most: usize) -> usize {
        let count = most.min(self.buffer.len());
        self.body.extend(self.buffer.drain(..count));
        count
    }

    /// Takes a line without its end. Returns `None` if it is incomplete.
    fn line(&mut self, most: usize) -> Result<Option<Vec<u8>>, UnreadableRequest> {
        let end = self.buffer.iter().take(most + 2).position(|byte| *byte == b'\n');
        let Some(end) = end else {
            if self.buffer.len() >= most + 2 {
                return Err(UnreadableRequest::bad("a line of a chunked body is too long"));
            }
            return Ok(None);
        };
        let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
        if !line.ends_with(b"\r\n") {
            return Err(UnreadableRequest::bad("a line of a chunked body does not end with CR LF"));
        }
        line.truncate(end - 1);
        if line.contains(&b'\r') {
            return Err(UnreadableRequest::bad("a line of a chunked body has a lone CR"));
        }
        Ok(Some(line))
    }
}

/// Parses the size of a chunk: hexadecimal digits, then optionally a semicolon and an extension.
fn chunk_size(line: &[u8]) -> Result<usize, UnreadableRequest> {
    let invalid = || UnreadableRequest::bad("the size of a chunk is invalid");
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(invalid());
    }
    let digits = std::str::from_utf8(digits).map_err(|_| invalid())?;
    usize::from_str_radix(digits, 16).map_err(|_| invalid())
}

/// Parses the head of a request.
#[cfg(test)]
pub(crate) fn parse_request_head(bytes: &[u8], limits: &HttpLimits) -> Result<RequestHead, UnreadableRequest> {
    let mut parser = RequestParser::new(limits);
    parser.feed(bytes);
    parser.head().map(|head| head.unwrap_or_else(|| panic!("the head is incomplete")))
}

#[cfg(test)]
mod tests;
