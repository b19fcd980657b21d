//! Counters without atomic additions.

use crate::base::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that only one thread changes, and others read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one. If two threads did so at once, one could be lost.
    #[inline]
    pub(crate) fn count(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }

    /// Adds a number, as [`count`](Self::count) adds one.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
