//! Terms with an end by a clock that counts the sleep of the machine.
//!
//! # Invariants
//!
//! - Once a thread has found the end of a term, the term is not extended. Both changes are exchanges of one value, so
//!   of two threads one is first. No order of the clock's values between threads is needed.
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

/// The end of a term that no extension replaces.
const ENDED: u64 = 0;

struct Deadline<C = Clock> {
    clock: C,
    /// The time from which no work may begin, by a clock that counts sleep. [`ENDED`] once a thread has found the end.
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
        let before = self.deadline.work_ends.load(Ordering::Acquire);
        // Fails if another thread has found the end since.
        let is_extended = before != ENDED && self.deadline.replace(before, work_ends.0);
        is_extended && before != work_ends.0
    }
}

impl<C> Deadline<C> {
    /// Replaces the end of the term. Fails if another thread has replaced it.
    fn replace(&self, before: u64, after: u64) -> bool {
        self.work_ends.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl<C: BootClock> TermLimit for Deadline<C> {
    fn remaining(&self) -> Option<Duration> {
        loop {
            let work_ends = self.work_ends.load(Ordering::Acquire);
            let left = Nanos(work_ends).since(self.clock.now());
            // The loaded end may be old. If so, the exchange fails.
            if !left.is_zero() || self.replace(work_ends, ENDED) {
                return Some(left);
            }
        }
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

    /// A clock that orders the memory of its threads.
    impl BootClock for Arc<Mutex<Nanos>> {
        fn now(&self) -> Nanos {
            *self.lock()
        }
    }

    /// A clock that orders no memory: a thread may see an old end of the term after it has read the newest time.
    impl BootClock for Arc<AtomicU64> {
        fn now(&self) -> Nanos {
            Nanos(self.load(Ordering::Relaxed))
        }
    }

    const ENDS: Nanos = Nanos(1);
    const LATER: Nanos = Nanos(10);

    /// Extends a term while other threads find its end.
    fn extend_at_the_end<C: BootClock + Clone>(clock: &C, advance: fn(&C), finders: usize) {
        let deadline = Deadline { clock: clock.clone(), work_ends: AtomicU64::new(ENDS.0), number_rises: false };
        let term = LimitedTerm::begin(1, deadline);
        let find = |_| {
            let (fence, clock) = (term.fence().clone(), clock.clone());
            thread::spawn(move || {
                advance(&clock);
                fence.lasts()
            })
        };
        let finders: Vec<_> = (0..finders).map(find).collect();
        let was_extended = term.extend(LATER);
        let lasted: Vec<_> = finders.into_iter().map(|finder| finder.join().unwrap()).collect();
        assert!(!was_extended || lasted.iter().all(|lasted| *lasted), "extended after its end was found");
        assert_eq!(term.fence().lasts(), was_extended);
    }

    #[test]
    fn a_term_whose_end_was_found_is_not_extended() {
        loom::model(|| {
            extend_at_the_end(&Arc::new(Mutex::new(Nanos::ZERO)), |clock| *clock.lock() = ENDS, 1);
        });
    }

    #[test]
    fn a_clock_that_orders_no_memory_extends_no_ended_term() {
        for finders in 1..=2 {
            loom::model(move || {
                let clock = Arc::new(AtomicU64::new(0));
                extend_at_the_end(&clock, |clock| clock.store(ENDS.0, Ordering::Relaxed), finders);
            });
        }
    }
}
