//! The frames of the protocol, and their text form.

use std::error::Error;
use std::fmt;
use std::io::Write;

use super::headers::NatsHeaders;
use homeostat::rt::debug_with_causes;

/// A message on a subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsMessage {
    /// The subject that the message was published to.
    pub subject: String,
    /// The subject for the answer.
    pub reply: Option<String>,
    /// The headers. Empty if the message has none.
    pub headers: NatsHeaders,
    /// The content.
    pub payload: Vec<u8>,
}

/// One frame of the protocol, from a client or a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame {
    /// `INFO`: a server's description of itself, as JSON.
    Info(String),
    /// `CONNECT`: a client's options and credentials, as JSON.
    Connect(String),
    /// `PING`: the other side must answer with [`Pong`](Self::Pong).
    Ping,
    /// `PONG`: the answer to [`Ping`](Self::Ping).
    Pong,
    /// `PUB`, or `HPUB` with headers: a message from a client.
    Publish(NatsMessage),
    /// `SUB`: a client subscribes to a subject.
    Subscribe {
        /// The subject, which may have wildcards.
        subject: String,
        /// The queue group, if any. Each message goes to one member of the group.
        group: Option<String>,
        /// The number that the client has chosen for the subscription.
        sid: u64,
    },
    /// `UNSUB`: a client ends a subscription.
    Unsubscribe {
        /// The number of the subscription.
        sid: u64,
        /// The number of messages after which the subscription ends. `None` ends it at once.
        max: Option<u64>,
    },
    /// `MSG`, or `HMSG` with headers: a message for a subscription.
    Message {
        /// The number of the subscription.
        sid: u64,
        /// The message.
        message: NatsMessage,
    },
    /// `+OK`: the server has accepted a frame of a client in verbose mode.
    Ok,
    /// `-ERR`: the server reports an error. The text has no quotes.
    Err(String),
}

impl Frame {
    /// Appends the bytes of this frame to `out`.
    ///
    /// # Errors
    ///
    /// Returns an error and writes nothing if a text in the frame contains a line end, or breaks another rule of the
    /// protocol.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), InvalidFrame> {
        match self {
            Self::Info(json) => write_line(out, "INFO", json)?,
            Self::Connect(json) => write_line(out, "CONNECT", json)?,
            Self::Ping => out.extend_from_slice(b"PING\r\n"),
            Self::Pong => out.extend_from_slice(b"PONG\r\n"),
            Self::Ok => out.extend_from_slice(b"+OK\r\n"),
            Self::Err(text) => write_line(out, "-ERR", &format!("'{text}'"))?,
            Self::Publish(NatsMessage { subject, reply, headers, payload }) => {
                write_publish(out, subject, reply.as_deref(), headers, payload)?;
            }
            Self::Subscribe { subject, group, sid } => write_subscribe(out, subject, group.as_deref(), *sid)?,
            Self::Unsubscribe { sid, max } => write_unsubscribe(out, *sid, *max),
            Self::Message { sid, message: NatsMessage { subject, reply, headers, payload } } => {
                write_content(out, ("MSG", Some(*sid)), subject, reply.as_deref(), headers, payload)?;
            }
        }
        Ok(())
    }
}

/// Appends `PUB` or `HPUB`.
pub(crate) fn write_publish(
    out: &mut Vec<u8>,
    subject: &str,
    reply: Option<&str>,
    headers: &NatsHeaders,
    payload: &[u8],
) -> Result<(), InvalidFrame> {
    write_content(out, ("PUB", None), subject, reply, headers, payload)
}

/// Appends `SUB`.
pub(crate) fn write_subscribe(
    out: &mut Vec<u8>,
    subject: &str,
    group: Option<&str>,
    sid: u64,
) -> Result<(), InvalidFrame> {
    check_subject(subject)?;
    group.map_or(Ok(()), check_subject)?;
    let (space, group) = group.map_or(("", ""), |group| (" ", group));
    put(out, format_args!("SUB {subject}{space}{group} {sid}\r\n"));
    Ok(())
}

/// Appends `UNSUB`.
pub(crate) fn write_unsubscribe(out: &mut Vec<u8>, sid: u64, max: Option<u64>) {
    match max {
        Some(max) => put(out, format_args!("UNSUB {sid} {max}\r\n")),
        None => put(out, format_args!("UNSUB {sid}\r\n")),
    }
}

fn write_content(
    out: &mut Vec<u8>,
    (verb, sid): (&str, Option<u64>),
    subject: &str,
    reply: Option<&str>,
    headers: &NatsHeaders,
    payload: &[u8],
) -> Result<(), InvalidFrame> {
    check_subject(subject)?;
    reply.map_or(Ok(()), check_subject)?;
    if let Some((text, rule)) = headers.fault() {
        return Err(InvalidFrame::new(text, rule));
    }
    let has_headers = !headers.is_empty();
    put(out, format_args!("{}{verb} {subject}", if has_headers { "H" } else { "" }));
    if let Some(sid) = sid {
        put(out, format_args!(" {sid}"));
    }
    if let Some(reply) = reply {
        put(out, format_args!(" {reply}"));
    }
    if has_headers {
        let block = headers.block_len();
        put(out, format_args!(" {block} {}\r\n", block + payload.len()));
        headers.write(out);
    } else {
        put(out, format_args!(" {}\r\n", payload.len()));
    }
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

fn write_line(out: &mut Vec<u8>, verb: &str, text: &str) -> Result<(), InvalidFrame> {
    if text.contains(['\r', '\n']) {
        return Err(InvalidFrame::new(text, "a text without line ends"));
    }
    put(out, format_args!("{verb} {text}\r\n"));
    Ok(())
}

fn put(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = out.write_fmt(text);
}

/// Checks that a subject has no spaces, control characters or empty parts.
pub(crate) fn check_subject(subject: &str) -> Result<(), InvalidFrame> {
    if subject.is_empty() || subject.bytes().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control()) {
        return Err(InvalidFrame::new(subject, "a subject without spaces and control characters"));
    }
    if subject.split('.').any(str::is_empty) {
        return Err(InvalidFrame::new(subject, "a subject without empty parts between its dots"));
    }
    Ok(())
}

/// A text that cannot be written into a frame.
///
/// # Examples
///
/// ```
/// use homeostat_nats::protocol::{Frame, NatsMessage};
///
/// let frame = Frame::Publish(NatsMessage { subject: "two words".into(), ..NatsMessage::default() });
/// let error = frame.write(&mut Vec::new()).unwrap_err();
/// assert_eq!(error.to_string(), "\"two words\" is not a subject without spaces and control characters");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct InvalidFrame {
    text: String,
    rule: &'static str,
}

impl InvalidFrame {
    fn new(text: &str, rule: &'static str) -> Self {
        Self { text: text.to_owned(), rule }
    }

    /// Returns the text that cannot be written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the rule that the text breaks, such as "a subject without …".
    #[must_use]
    pub fn rule(&self) -> &'static str {
        self.rule
    }
}

impl fmt::Display for InvalidFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not {}", self.text, self.rule)
    }
}

debug_with_causes!(InvalidFrame);

impl Error for InvalidFrame {}
