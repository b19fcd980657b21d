//! Own writes: a key runs again only once a watch has shown the writes of its last run.
//!
//! A reconciler that reads from a watch would otherwise not see the writes of its last run, and would repeat them. `journal.rs` notes
//! the writes of a run, `shown.rs` knows which of them a watch has shown, `gate.rs` makes keys wait.

mod gate;
mod journal;
mod shown;

pub(super) use self::gate::OwnWrites;
pub(super) use self::shown::{ShownObjects, note_deletion, note_write};
