//! HTTP/1.1 on plain threads.
//!
//! No HTTP library for blocking sockets has deadlines, limits per client and streams that a stop can end, so this is a
//! server of our own over `httparse`.

mod accept;
mod activity;
#[cfg(feature = "tls")]
mod certificate;
mod connection;
mod counts;
mod date;
mod head;
mod idle;
mod limits;
mod memory;
mod message;
mod parser;
mod parts;
mod poll;
mod registry;
mod reply;
mod request;
mod roster;
mod service;
mod shared;
mod target;
#[cfg(feature = "tls")]
mod tls;
mod transport;

pub(crate) use self::accept::Acceptor;
pub(crate) use self::activity::SeenConnection;
pub(crate) use self::counts::{HttpCounts, ReplyCount, increment, of_class, value};
pub(crate) use self::head::RequestHead;
pub(crate) use self::idle::IdleSockets;
pub(crate) use self::limits::HttpLimits;
#[cfg(test)]
pub(crate) use self::message::ReplySink;
pub(crate) use self::message::{Handler, LoggedOutcome, ReplyBody, SinkWriter};
pub use self::message::{Reply, ReplyStream};
#[cfg(test)]
pub(crate) use self::parser::parse_request_head;
pub(crate) use self::poll::Poll;
pub(crate) use self::registry::{ConnectionRegistry, client_of};
pub use self::request::IncomingRequest;
pub(crate) use self::request::is_false;
pub(crate) use self::roster::ThreadRoster;
pub(crate) use self::service::{PeerInfo, RefusedRequest, Service};
pub(crate) use self::shared::HttpShared;
pub(crate) use self::target::{RequestTarget, canonical_path};
#[cfg(feature = "tls")]
pub(crate) use self::tls::{ServerTls, TlsFiles};
