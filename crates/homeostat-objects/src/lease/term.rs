//! Terms with an end by a clock that counts the sleep of the machine.
//!
//! # Invariants
//!
//! - Once a thread has found the end of a term, the term is not extended.
//! - Only the thread that renews the lease extends a term.

use std::sync::Arc;
use std::time::Duration;

use super::boot::boot_nanos;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering;
use homeostat::base::Clock;
use homeostat::rt::Nanos;
use homeostat::run::{Fence, TermLimit};

/// A term that ends unless it is extended. `C` is its clock.
pub(crate) struct LimitedTerm<C = Clock> {
    fence: Fence,
    deadline: Arc<Deadline<C>>,
}

/// A clock that counts the sleep of the machine.
pub(crate) trait BootClock: Send + Sync + 'static {
    fn now(&self) -> Nanos;
}

impl BootClock for Clock {
    fn now(&self) -> Nanos {
        boot_nanos(self)
    }
}

struct Deadline<C = Clock> {
    clock: C,
    /// The time from which no work may begin, by a clock that counts sleep.
    work_ends: AtomicU64,
    /// Whether the number of the fence rises within the term, as it does with divided keys.
    number_rises: bool,
}

impl LimitedTerm {
    /// Begins a term with this fencing number. Work may begin until `work_ends`.
    pub(crate) fn new(number: u64, clock: Clock, work_ends: Nanos) -> Self {
        Self::begin(number, Deadline { clock, work_ends: AtomicU64::new(work_ends.0), number_rises: false })
    }

    /// Begins a term like [`new`](Self::new) with a number that rises.
    pub(crate) fn with_rising_number(number: u64, clock: Clock, work_ends: Nanos) -> Self {
        Self::begin(number, Deadline { clock, work_ends: AtomicU64::new(work_ends.0), number_rises: true })
    }
}

impl<C: BootClock> LimitedTerm<C> {
    fn begin(number: u64, deadline: Deadline<C>) -> Self {
        let deadline = Arc::new(deadline);
        Self { fence: Fence::limited(number, Arc::clone(&deadline) as Arc<dyn TermLimit>), deadline }
    }

    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Sets a new end of the term, after a renewal. Count it from a time *before* the renewal was sent: the answer may
    /// arrive late.
    ///
    /// Returns false if the end does not change, because it is the same or because the term has ended.
    #[must_use = "a term that has ended is not extended"]
    pub(crate) fn extend(&self, work_ends: Nanos) -> bool {
        if self.fence.check().is_err() {
            return false;
        }
        let before = self.deadline.work_ends.swap(work_ends.0, Ordering::AcqRel);
        // Another thread may have found the end since.
        if self.deadline.clock.now().0 >= before {
            self.fence.ended().cancel();
            return false;
        }
        before != work_ends.0
    }
}

impl<C: BootClock> TermLimit for Deadline<C> {
    fn remaining(&self) -> Option<Duration> {
        // Read the clock first: if this finds the end, a later extension finds it too.
        let now = self.clock.now();
        Some(Nanos(self.work_ends.load(Ordering::Acquire)).since(now))
    }
}

/// Ends the term of a fence, because an object has a greater number. Does nothing if this process itself may have a
/// greater number by now.
pub(super) fn found_later(fence: &Fence) {
    if !fence.limit::<Deadline>().is_some_and(|deadline| deadline.number_rises) {
        fence.ended().cancel();
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::thread;

    use super::*;
    use crate::sync::Mutex;

    /// A clock that the model checker sees.
    impl BootClock for Arc<Mutex<Nanos>> {
        fn now(&self) -> Nanos {
            *self.lock()
        }
    }

    #[test]
    fn a_term_whose_end_was_found_is_not_extended() {
        loom::model(|| {
            let clock = Arc::new(Mutex::new(Nanos::ZERO));
            let (ends, later) = (Nanos(1), Nanos(10));
            let work_ends = AtomicU64::new(ends.0);
            let term = LimitedTerm::begin(1, Deadline { clock: Arc::clone(&clock), work_ends, number_rises: false });
            let finder = thread::spawn({
                let (fence, clock) = (term.fence().clone(), Arc::clone(&clock));
                move || {
                    *clock.lock() = ends;
                    fence.lasts()
                }
            });
            let was_extended = term.extend(later);
            let lasted = finder.join().unwrap();
            assert!(lasted || !was_extended);
            assert_eq!(term.fence().lasts(), was_extended);
        });
    }
}
