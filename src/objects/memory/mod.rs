//! Clients that keep their objects in this process: in memory, or also in a file.
//!
//! `verbs` implements the client methods on `server`, the engine. The engine runs transactions (`txn`, with the rules in `write`,
//! `apply`, `cascade`, `check` and `limits`) on the state (`state`, `index` and `labels`, on the maps of `persistent`), and wakes the watches (`stream`, `watchers`). The
//! builder, the changes and the limits are plain values that all of them use.

mod apply;
mod builder;
mod cascade;
mod change;
mod check;
mod client;
mod cost;
mod expiry;
#[cfg(feature = "file-client")]
mod file;
mod group;
mod index;
mod labels;
mod limits;
mod names;
mod page;
mod patch;
mod persistent;
mod server;
mod state;
mod stream;
mod txn;
mod verbs;
mod watchers;
mod write;

pub use self::builder::EmbeddedBuilder;
pub use self::client::MemoryClient;
#[cfg(feature = "file-client")]
pub use self::file::{CompactError, FileClient, OpenError};
#[cfg(test)]
pub(crate) use self::limits::dismantle;
