//! Sends a body while it is created. A short body gets a length. A longer one is sent in chunks, and compressed if the
//! client accepts that.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::message::PART;
use super::registry::{ConnectionRegistry, ConnectionSlot};
use super::reply::{ReplyFrame, chunk, full_reply, stream_head};
use super::transport::ServerTransport;
use homeostat::base::Clock;
use homeostat::rt::Nanos;

/// How much memory the compression of one body needs, in bytes.
pub(super) const GZIP_MEMORY: usize = 512 << 10;

/// Ends the reply to a HEAD request. This is not a failure.
const HEAD_SENT: io::ErrorKind = io::ErrorKind::Other;

/// Sends the body that is written to it.
pub(super) struct PartSender<'a> {
    transport: &'a mut ServerTransport,
    slot: &'a ConnectionSlot,
    clock: &'a Clock,
    reply: PartHead,
    /// When the client must have read the complete reply.
    end: Nanos,
    /// Whether the reply began after a stop.
    is_last: bool,
    /// The bytes that are not yet sent.
    buffer: Vec<u8>,
    state: PartState,
}

/// The head of a reply.
pub(super) struct PartHead {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) frame: ReplyFrame,
    pub(super) date: String,
}

enum PartState {
    /// The head is not sent yet, because the body may be short.
    Begins,
    Plain,
    Compressed(GzEncoder<Vec<u8>>),
    /// The head was sent, and the client wants nothing else.
    HeadSent,
}

impl<'a> PartSender<'a> {
    pub(super) fn new(
        transport: &'a mut ServerTransport,
        slot: &'a ConnectionSlot,
        registry: &ConnectionRegistry,
        clock: &'a Clock,
        reply: PartHead,
    ) -> Self {
        let end = clock.nanos().after(slot.begin_write().whole);
        let is_last = registry.is_stopping();
        Self { transport, slot, clock, reply, end, is_last, buffer: Vec::new(), state: PartState::Begins }
    }

    /// Ends the body. `written` is the result of writing it. Returns the error if the body is broken off.
    pub(super) fn finish(mut self, written: io::Result<()>) -> io::Result<()> {
        match std::mem::replace(&mut self.state, PartState::HeadSent) {
            PartState::HeadSent => return Ok(()),
            _ if written.is_err() => return written,
            PartState::Begins => {
                let PartHead { status, headers, frame, date } = &self.reply;
                let bytes = full_reply(*status, headers, &self.buffer, *frame, date);
                return self.send(&bytes);
            }
            PartState::Plain => {}
            PartState::Compressed(encoder) => self.buffer = encoder.finish()?,
        }
        self.send_chunk()?;
        if self.reply.frame.chunks { self.send(b"0\r\n\r\n") } else { Ok(()) }
    }

    /// Sends the head, because the body is not short.
    fn begin(&mut self) -> io::Result<()> {
        let PartHead { status, headers, frame, date } = &mut self.reply;
        let compresses = compresses(*frame, headers);
        vary(headers, header::ACCEPT_ENCODING);
        if compresses {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let head = stream_head(*status, headers, *frame, date);
        self.send(&head)?;
        if self.reply.frame.head_only {
            self.state = PartState::HeadSent;
            return Err(HEAD_SENT.into());
        }
        self.state = if compresses {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&std::mem::take(&mut self.buffer))?;
            PartState::Compressed(encoder)
        } else {
            PartState::Plain
        };
        Ok(())
    }

    fn send_chunk(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.buffer);
        if bytes.is_empty() {
            // An empty chunk would end the body.
            return Ok(());
        }
        if self.reply.frame.chunks { self.send(&chunk(&bytes)) } else { self.send(&bytes) }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.is_last && self.slot.is_cut() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let mut limits = self.slot.begin_write();
        limits.whole = limits.whole.min(self.end.since(self.clock.nanos()));
        self.transport.write(bytes, limits)
    }
}

impl Write for PartSender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(PART)];
        match &mut self.state {
            PartState::HeadSent => return Err(HEAD_SENT.into()),
            PartState::Compressed(encoder) => {
                encoder.write_all(bytes)?;
                if encoder.get_ref().len() >= PART {
                    self.buffer = std::mem::take(encoder.get_mut());
                    self.send_chunk()?;
                }
                return Ok(bytes.len());
            }
            PartState::Begins | PartState::Plain => self.buffer.extend_from_slice(bytes),
        }
        if self.buffer.len() > PART {
            if matches!(self.state, PartState::Begins) {
                self.begin()?;
            }
            if matches!(self.state, PartState::Plain) {
                self.send_chunk()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether to compress a long body of this reply.
pub(super) fn compresses(frame: ReplyFrame, headers: &HeaderMap) -> bool {
    frame.gzip && frame.chunks && !headers.contains_key(header::CONTENT_ENCODING)
}

/// Tells caches that the reply depends on a request header.
fn vary(headers: &mut HeaderMap, on: HeaderName) {
    headers.append(header::VARY, on.into());
}
