//! An HTTP server for people and tools, on plain threads. Feature `serve`.
#![allow(dead_code, unused_imports, reason = "the parts are written at the same time; remove this at the end")]

mod access;
mod http;
mod page;
mod server;
mod status;

pub use self::access::{Access, AccessRequest, AccessTarget, UserInfo};
pub use self::page::StatusPages;
pub use self::server::{Server, ServerBuilder, ServerControl, ServerCounts};
