//! Clients that keep their objects in this process: in memory, and optionally in a file.
//!
//! `verbs` implements the client methods on `server`, the engine. The engine runs the transactions of `rules` on the
//! state (`state` and `labels`, on the maps of `persistent`), and wakes the watches (`stream`, `watchers`).

mod builder;
mod client;
mod cost;
#[cfg(feature = "file-client")]
mod file;
mod group;
mod journal;
mod labels;
mod page;
mod server;
mod state;
mod stream;
mod verbs;
mod watchers;

pub use self::builder::EmbeddedBuilder;
pub use self::client::MemoryClient;
#[cfg(feature = "file-client")]
pub use self::file::{CompactError, FileClient, OpenError};
