//! The writes of a run: recorded on the thread of the run, and read at its end.
//!
//! # Invariants
//!
//! - In a simulation, runs nest on one thread. A run records only its own writes: at its end, the journal of the outer
//!   run is restored.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A write of a run.
#[derive(Clone)]
pub(super) struct OwnWrite {
    /// The hash of the object's key.
    pub(super) object: u64,
    /// The write itself. Watches know the type.
    pub(super) write: Arc<dyn Any + Send + Sync>,
}

/// The writes of a run, by the hashes of their objects.
pub(super) type Journal = BTreeMap<u64, Vec<OwnWrite>>;

thread_local! {
    /// The writes of the run on this thread. `None` if they are not recorded.
    static JOURNAL: RefCell<Option<Journal>> = const { RefCell::new(None) };
}

/// Calls `add` with the writes of the run on this thread. Does nothing if that run is not recorded.
pub(super) fn note(add: impl FnOnce(&mut Journal)) {
    JOURNAL.with_borrow_mut(|journal| journal.as_mut().map(add));
}

/// Records the writes on this thread until this is dropped.
pub(super) struct RecordedWrites {
    outer: Option<Journal>,
}

impl RecordedWrites {
    pub(super) fn begin() -> Self {
        Self { outer: JOURNAL.replace(Some(Journal::new())) }
    }

    /// Returns the writes so far of the innermost recorded run on this thread.
    pub(super) fn take() -> Vec<OwnWrite> {
        let writes = JOURNAL.with_borrow_mut(|journal| journal.as_mut().map(std::mem::take));
        writes.unwrap_or_default().into_values().flatten().collect()
    }
}

impl Drop for RecordedWrites {
    fn drop(&mut self) {
        JOURNAL.replace(self.outer.take());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn texts() -> Vec<&'static str> {
        RecordedWrites::take().iter().filter_map(|noted| noted.write.downcast_ref::<&str>().copied()).collect()
    }

    fn note_text(text: &'static str) {
        note(|journal| journal.entry(0).or_default().push(OwnWrite { object: 0, write: Arc::new(text) }));
    }

    #[test]
    fn nested_runs_note_their_own_writes() {
        note(|_| unreachable!("no run is recorded"));
        let outer = RecordedWrites::begin();
        note_text("outer 1");
        {
            let _inner = RecordedWrites::begin();
            note_text("inner");
            assert_eq!(texts(), ["inner"]);
            note_text("nobody takes it");
        }
        note_text("outer 2");
        assert_eq!(texts(), ["outer 1", "outer 2"]);
        drop(outer);
        note(|_| unreachable!("no run is recorded"));
    }
}
