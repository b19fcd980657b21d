//! Reads frames from bytes that arrive in pieces.

use std::error::Error;
use std::fmt;

use super::frame::{Frame, NatsMessage};
use super::headers::{NatsHeaders, text};
use homeostat::rt::debug_with_causes;

/// The limits for frames that a [`FrameParser`] accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameLimits {
    /// The length of a line in bytes, without its end. Default: 1 MiB, because `INFO` lists all servers of a cluster.
    pub line: usize,
    /// The size of a header block in bytes. Default: 1 MiB.
    pub headers: usize,
    /// The size of a payload with its headers in bytes. Default: 64 MiB, the largest limit that a server can have.
    pub payload: usize,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self { line: 1 << 20, headers: 1 << 20, payload: 64 << 20 }
    }
}

/// Reads frames from bytes that arrive in pieces.
///
/// Reserves memory only for bytes that have arrived. After an error, all further calls return the same error.
///
/// # Examples
///
/// ```
/// use homeostat_nats::protocol::FrameParser;
///
/// let mut parser = FrameParser::new();
/// parser.push(b"HELO\r\n");
/// assert_eq!(parser.next_frame().unwrap_err().to_string(), "unknown verb \"HELO\"");
/// ```
#[derive(Debug, Default)]
pub struct FrameParser {
    limits: FrameLimits,
    /// Received bytes. Those before `start` are consumed.
    buffer: Vec<u8>,
    start: usize,
    /// How many bytes after `start` are known to have no line end.
    scanned: usize,
    /// The first line of a message that is still incomplete.
    pending: Option<Pending>,
    failed: Option<ProtocolError>,
}

/// The first line of a message.
#[derive(Debug)]
struct Pending {
    /// `None` for a publication.
    sid: Option<u64>,
    subject: String,
    reply: Option<String>,
    headers: usize,
    total: usize,
}

/// How many consumed bytes may stay in the buffer before it is compacted.
const SLACK: usize = 64 << 10;

impl FrameParser {
    /// Creates a parser with the default limits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a parser with these limits.
    #[must_use]
    pub fn with_limits(limits: FrameLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Appends bytes that have arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// Returns the next frame, or `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not a frame, or exceed a limit.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, ProtocolError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.advance();
        if let Err(error) = &result {
            self.failed = Some(error.clone());
            (self.buffer, self.start, self.pending) = (Vec::new(), 0, None);
        }
        result
    }

    /// Returns how many received bytes belong to no finished frame.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len() - self.start
    }

    fn advance(&mut self) -> Result<Option<Frame>, ProtocolError> {
        if self.pending.is_none() {
            let Some(line) = self.find_line()? else { return Ok(None) };
            match parse_line(&self.buffer[self.start..self.start + line], &self.limits)? {
                Line::Whole(frame) => {
                    self.consume(line + 2);
                    return Ok(Some(frame));
                }
                Line::Begin(pending) => self.pending = Some(pending),
            }
            self.consume(line + 2);
        }
        let Some(total) = self.pending.as_ref().map(|pending| pending.total) else { return Ok(None) };
        let rest = &self.buffer[self.start..];
        // Report a wrong line end before the rest of the next frame arrives.
        match (rest.get(total), rest.get(total + 1)) {
            (Some(b'\r'), Some(b'\n')) => {}
            (None | Some(b'\r'), None) => return Ok(None),
            _ => return Err(ProtocolError::new(FrameFault::End)),
        }
        let Some(Pending { sid, subject, reply, headers, .. }) = self.pending.take() else { return Ok(None) };
        let (block, payload) = rest[..total].split_at(headers);
        let message = NatsMessage { subject, reply, headers: NatsHeaders::parse(block), payload: payload.to_vec() };
        self.consume(total + 2);
        Ok(Some(match sid {
            Some(sid) => Frame::Message { sid, message },
            None => Frame::Publish(message),
        }))
    }

    /// Returns the length of the line at the start, without its end.
    fn find_line(&mut self) -> Result<Option<usize>, ProtocolError> {
        let rest = &self.buffer[self.start..];
        let end = rest[self.scanned..].iter().position(|byte| *byte == b'\n').map(|at| at + self.scanned);
        let length = end.unwrap_or(rest.len());
        if length > self.limits.line + 1 {
            return Err(ProtocolError::new(FrameFault::Limit("line", length, self.limits.line)));
        }
        match end {
            None => {
                self.scanned = rest.len();
                Ok(None)
            }
            Some(end) if end > 0 && rest[end - 1] == b'\r' => Ok(Some(end - 1)),
            Some(_) => Err(ProtocolError::new(FrameFault::End)),
        }
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.scanned = 0;
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
            // One large message must not occupy its memory permanently.
            self.buffer.shrink_to(4 * SLACK);
        } else if self.start > SLACK.max(self.buffered()) {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
    }
}

enum Line {
    Whole(Frame),
    Begin(Pending),
}

fn parse_line(line: &[u8], limits: &FrameLimits) -> Result<Line, ProtocolError> {
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (verb, rest) = (&line[..end], line[end..].trim_ascii());
    let is = |name: &str| verb.eq_ignore_ascii_case(name.as_bytes());
    let json = |name| {
        let json = std::str::from_utf8(rest).ok().filter(|json| json.starts_with('{'));
        json.map(str::to_owned).ok_or_else(|| ProtocolError::new(FrameFault::Arguments(name, shown(rest))))
    };
    let bare = |frame: Frame, name| {
        if rest.is_empty() { Ok(frame) } else { Err(ProtocolError::new(FrameFault::Arguments(name, shown(rest)))) }
    };
    Ok(Line::Whole(match () {
        () if is("MSG") => return content("MSG", rest, true, false, limits),
        () if is("HMSG") => return content("HMSG", rest, true, true, limits),
        () if is("PUB") => return content("PUB", rest, false, false, limits),
        () if is("HPUB") => return content("HPUB", rest, false, true, limits),
        () if is("PING") => bare(Frame::Ping, "PING")?,
        () if is("PONG") => bare(Frame::Pong, "PONG")?,
        () if is("+OK") => bare(Frame::Ok, "+OK")?,
        () if is("-ERR") => {
            let unquoted = rest.strip_prefix(b"'").and_then(|rest| rest.strip_suffix(b"'"));
            Frame::Err(text(unquoted.unwrap_or(rest)).into_owned())
        }
        () if is("INFO") => Frame::Info(json("INFO")?),
        () if is("CONNECT") => Frame::Connect(json("CONNECT")?),
        () if is("SUB") => subscribe(rest)?,
        () if is("UNSUB") => unsubscribe(rest)?,
        () => return Err(ProtocolError::new(FrameFault::Verb(shown(verb)))),
    }))
}

/// Parses the arguments of a frame that has content.
fn content(
    verb: &'static str,
    rest: &[u8],
    has_sid: bool,
    has_headers: bool,
    limits: &FrameLimits,
) -> Result<Line, ProtocolError> {
    let malformed = || ProtocolError::new(FrameFault::Arguments(verb, shown(rest)));
    let mut all = words(rest);
    let mut found = [&b""[..]; 5];
    let count = found.iter_mut().map_while(|place| all.next().map(|word| *place = word)).count();
    let (words, fixed) = (&found[..count], 2 + usize::from(has_sid) + usize::from(has_headers));
    if all.next().is_some() || (count != fixed && count != fixed + 1) {
        return Err(malformed());
    }
    let size = |word: &[u8]| number(word).and_then(|size| usize::try_from(size).ok()).ok_or_else(malformed);
    let sid = if has_sid { Some(number(words[1]).ok_or_else(malformed)?) } else { None };
    let reply = (words.len() > fixed).then(|| text(words[1 + usize::from(has_sid)]).into_owned());
    let total = size(words[words.len() - 1])?;
    let headers = if has_headers { size(words[words.len() - 2])? } else { 0 };
    if headers > limits.headers {
        return Err(ProtocolError::new(FrameFault::Limit("header block", headers, limits.headers)));
    }
    if total > limits.payload {
        return Err(ProtocolError::new(FrameFault::Limit("payload", total, limits.payload)));
    }
    if headers > total {
        return Err(malformed());
    }
    Ok(Line::Begin(Pending { sid, subject: text(words[0]).into_owned(), reply, headers, total }))
}

fn subscribe(rest: &[u8]) -> Result<Frame, ProtocolError> {
    let malformed = || ProtocolError::new(FrameFault::Arguments("SUB", shown(rest)));
    let words: Vec<_> = words(rest).collect();
    let (subject, group, sid) = match words[..] {
        [subject, sid] => (subject, None, sid),
        [subject, group, sid] => (subject, Some(text(group).into_owned()), sid),
        _ => return Err(malformed()),
    };
    let sid = number(sid).ok_or_else(malformed)?;
    Ok(Frame::Subscribe { subject: text(subject).into_owned(), group, sid })
}

fn unsubscribe(rest: &[u8]) -> Result<Frame, ProtocolError> {
    let malformed = || ProtocolError::new(FrameFault::Arguments("UNSUB", shown(rest)));
    let numbers: Option<Vec<_>> = words(rest).map(number).collect();
    match numbers.as_deref() {
        Some(&[sid]) => Ok(Frame::Unsubscribe { sid, max: None }),
        Some(&[sid, max]) => Ok(Frame::Unsubscribe { sid, max: Some(max) }),
        _ => Err(malformed()),
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Parses a decimal number without a sign.
fn number(word: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(word).ok()?;
    if word.iter().all(u8::is_ascii_digit) { digits.parse().ok() } else { None }
}

/// Returns the beginning of unknown bytes, for an error.
fn shown(bytes: &[u8]) -> String {
    let most = 60;
    let dots = if bytes.len() > most { "…" } else { "" };
    format!("{}{dots}", text(&bytes[..bytes.len().min(most)]))
}

/// An error of a [`FrameParser`]: the bytes are not a frame, or they exceed a limit.
#[derive(Clone, PartialEq, Eq)]
pub struct ProtocolError(FrameFault);

#[derive(Clone, Debug, PartialEq, Eq)]
enum FrameFault {
    Verb(String),
    Arguments(&'static str, String),
    End,
    /// The part that is too large, its size, and the limit.
    Limit(&'static str, usize, usize),
}

impl ProtocolError {
    fn new(fault: FrameFault) -> Self {
        Self(fault)
    }

    /// Returns whether a frame exceeds a limit.
    #[must_use]
    pub fn is_limit(&self) -> bool {
        matches!(self.0, FrameFault::Limit(..))
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            FrameFault::Verb(verb) => write!(f, "unknown verb {verb:?}"),
            FrameFault::Arguments(verb, rest) => write!(f, "malformed arguments of {verb}: {rest:?}"),
            FrameFault::End => f.write_str("a frame does not end with CR LF"),
            FrameFault::Limit(part, size, limit) => {
                write!(f, "a {part} of {size} bytes exceeds the limit of {limit} bytes")
            }
        }
    }
}

debug_with_causes!(ProtocolError);

impl Error for ProtocolError {}
