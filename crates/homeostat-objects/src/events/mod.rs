//! Events: report changes of objects to people, in the log and as Kubernetes `Event` objects.
//!
//! A recorder counts events in `record`. A thread (`writer`) or a caller of `flush` stores them with `storing`.

mod record;
mod recorder;
mod storing;
#[cfg(all(test, not(loom)))]
mod tests;
mod writer;

pub use self::record::EventType;
pub use self::recorder::{EventRecorder, EventRecorderBuilder};
