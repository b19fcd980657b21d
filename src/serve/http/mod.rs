//! HTTP/1.1 on plain threads.

mod message;

pub(crate) use self::message::{Handler, IncomingRequest, Reply, ReplyBody, ReplySink};
