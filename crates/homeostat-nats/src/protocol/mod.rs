//! The frames of NATS' client protocol. Uses no sockets.
//!
//! A [`Frame`] goes in either direction. [`FrameParser`] reads frames from bytes that arrive in arbitrary pieces, and
//! [`Frame::write`] writes them. Both check their input: the parser refuses a malformed or too large frame before it
//! reserves memory.
//!
//! # Examples
//!
//! ```
//! use homeostat_nats::protocol::{Frame, FrameParser};
//!
//! let mut parser = FrameParser::new();
//! parser.push(b"MSG events.vm 7 5\r\nhel");
//! assert!(parser.next_frame()?.is_none());
//! parser.push(b"lo\r\nPING\r\n");
//! let Some(Frame::Message { sid, message }) = parser.next_frame()? else { panic!("not a message") };
//! assert_eq!((sid, message.subject.as_str(), message.payload.as_slice()), (7, "events.vm", &b"hello"[..]));
//! assert_eq!(parser.next_frame()?, Some(Frame::Ping));
//! # Ok::<_, homeostat_nats::protocol::ProtocolError>(())
//! ```

mod frame;
mod headers;
mod parser;
#[cfg(all(test, not(loom)))]
mod tests;

pub use self::frame::{Frame, InvalidFrame, NatsMessage};
pub(crate) use self::frame::{check_subject, write_publish, write_subscribe, write_unsubscribe};
pub use self::headers::NatsHeaders;
pub use self::parser::{FrameLimits, FrameParser, ProtocolError};
