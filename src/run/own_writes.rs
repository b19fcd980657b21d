//! The writes of a run: noted on the thread of the run, and read at its end.
//!
//! # Invariants
//!
//! - In a simulation, runs nest on one thread. A run notes its own writes only: the journal of the outer run is put back at the end.

use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;

/// A write of a run.
#[derive(Clone)]
pub(crate) struct OwnWrite {
    /// The hash of the object's key.
    pub(crate) object: u64,
    /// The write itself. Watches know the type.
    pub(crate) write: Arc<dyn Any + Send + Sync>,
}

thread_local! {
    /// The writes of the run on this thread. `None` if nobody asks for them.
    static JOURNAL: RefCell<Option<Vec<OwnWrite>>> = const { RefCell::new(None) };
}

/// Notes a write if the run on this thread is recorded.
#[cfg(feature = "objects")]
pub(crate) fn note(write: impl FnOnce() -> OwnWrite) {
    let is_recorded = JOURNAL.with_borrow(Option::is_some);
    if is_recorded {
        let write = write();
        JOURNAL.with_borrow_mut(|journal| journal.get_or_insert_default().push(write));
    }
}

/// Records the writes on this thread until it is dropped.
pub(crate) struct RecordedWrites {
    outer: Option<Vec<OwnWrite>>,
}

impl RecordedWrites {
    pub(crate) fn begin() -> Self {
        Self { outer: JOURNAL.replace(Some(Vec::new())) }
    }

    /// Returns the writes so far of the innermost recorded run on this thread.
    pub(crate) fn take() -> Vec<OwnWrite> {
        JOURNAL.with_borrow_mut(|journal| journal.as_mut().map(std::mem::take)).unwrap_or_default()
    }
}

impl Drop for RecordedWrites {
    fn drop(&mut self) {
        JOURNAL.replace(self.outer.take());
    }
}

#[cfg(all(test, feature = "objects", not(loom)))]
mod tests {
    use super::*;

    fn texts() -> Vec<&'static str> {
        RecordedWrites::take().iter().filter_map(|noted| noted.write.downcast_ref::<&str>().copied()).collect()
    }

    fn write(text: &'static str) -> OwnWrite {
        OwnWrite { object: 0, write: Arc::new(text) }
    }

    #[test]
    fn nested_runs_note_their_own_writes() {
        note(|| unreachable!("no run is recorded"));
        let outer = RecordedWrites::begin();
        note(|| write("outer 1"));
        {
            let _inner = RecordedWrites::begin();
            note(|| write("inner"));
            assert_eq!(texts(), ["inner"]);
            note(|| write("nobody takes it"));
        }
        note(|| write("outer 2"));
        assert_eq!(texts(), ["outer 1", "outer 2"]);
        drop(outer);
        note(|| unreachable!("no run is recorded"));
    }
}
