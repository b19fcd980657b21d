//! Own writes: a key runs again only once a watch has shown the writes of its last run.
//!
//! Without this, a reconciler that reads from a watch might not see the writes of its last run, and would repeat them.
//! `journal.rs` records the writes of a run, `shown.rs` knows which of them a watch has shown, `gate.rs` makes keys
//! wait.

mod gate;
mod journal;
mod shown;

pub(super) use self::gate::OwnWrites;
pub(super) use self::shown::{ShownObjects, note_deletion, note_write};
