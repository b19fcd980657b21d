//! The limit of a term: work of a leader asks it before each write.
//!
//! # Invariants
//!
//! - A term that has ended never begins again: the token is cancelled before a check reports the end, and a term whose end any thread has
//!   found is not extended.
//! - Only the elector's thread extends a term.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::error::Cancelled;
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::process::OwnerProcess;
use crate::base::sync::atomic::AtomicU64;
use crate::base::sync::atomic::Ordering;
use crate::base::time::Nanos;

/// The right of a leader to write, from [`Context::fence`](crate::Context::fence).
///
/// Ask it before each write that must not overlap with another leader's. A process may be paused between the question and the write.
/// If that would do harm, write the [number](Self::number) too, and let the store refuse lower numbers.
///
/// # Examples
///
/// ```
/// use homeostat::Context;
///
/// let fence = Context::detached().fence()?; // no election: always allowed
/// assert_eq!(fence.number(), None);
/// fence.check()?;
/// # Ok::<_, homeostat::run::Cancelled>(())
/// ```
#[derive(Clone)]
pub struct Fence {
    number: Option<u64>,
    /// Whether the number can rise within the term, as that of divided keys does.
    is_divided: bool,
    term: Arc<FencedTerm>,
}

struct FencedTerm {
    clock: Clock,
    /// The time, with the sleep of the machine, from which on no work may begin. [`Nanos::NEVER`] if the term has no limit.
    work_ends: AtomicU64,
    ended: CancellationToken,
    owner: OwnerProcess,
}

impl Fence {
    /// Creates the fence of a term without a limit and without a number.
    pub(crate) fn unlimited() -> Self {
        Self::of(None, Clock::system(), Nanos::NEVER)
    }

    /// Creates the fence of a term that ends by itself, for [`Term::fenced`](crate::manager::Term::fenced).
    ///
    /// `number` is the fencing number, which must be greater than the numbers of all earlier leaders, or `None`. Work may begin
    /// until `end`, a time of [`Clock::boot_time`]. Choose a time that is earlier by the [stop
    /// margin](crate::Elector::stop_margin) than the time from which on another process may lead.
    #[must_use]
    pub fn until(number: impl Into<Option<u64>>, clock: Clock, end: Duration) -> Self {
        Self::of(number.into(), clock, Nanos::ZERO.after(end))
    }

    fn of(number: Option<u64>, clock: Clock, work_ends: Nanos) -> Self {
        let (work_ends, ended) = (AtomicU64::new(work_ends.0), CancellationToken::new());
        let owner = OwnerProcess::current();
        Self { number, is_divided: false, term: Arc::new(FencedTerm { clock, work_ends, ended, owner }) }
    }

    /// Returns a fence of the same term with another number.
    #[cfg(feature = "objects")]
    pub(crate) fn numbered(&self, number: u64) -> Self {
        Self { number: Some(number), is_divided: true, term: Arc::clone(&self.term) }
    }

    /// Sets a new end of the term, a time of [`Clock::boot_time`]. For electors, after a renewal.
    ///
    /// Count from a time *before* the renewal was sent: the answer may come late. Returns false if the end stays as it was, because it
    /// is the same or because the term has ended. A term that has ended never begins again. Only one thread may extend a term.
    #[must_use = "a term that has ended is not extended"]
    pub fn extend(&self, end: Duration) -> bool {
        if self.check().is_err() {
            return false;
        }
        let work_ends = Nanos::ZERO.after(end);
        let before = self.term.work_ends.swap(work_ends.0, Ordering::AcqRel);
        // Another thread may have found the end of the time meanwhile.
        if before != Nanos::NEVER.0 && self.term.clock.boot_nanos().0 >= before {
            self.term.ended.cancel();
            return false;
        }
        before != work_ends.0
    }

    /// Returns the fencing number of the term. Each later leader has a greater one.
    ///
    /// `None` without an election, and if the elector has no numbers, as [`FileElector`](crate::FileElector).
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// Checks that the term has not ended. Ends it if its time is over.
    ///
    /// # Errors
    ///
    /// Returns [`Cancelled::TermEnded`] if the leadership was lost or given back, and in a process that was forked from the leader.
    #[inline]
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.term.ended.is_cancelled() || self.is_over() || !self.term.owner.is_current() {
            return Err(Cancelled::TermEnded);
        }
        Ok(())
    }

    /// Returns the time until no work may begin, if the term is not extended. `None` if it has no limit.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let work_ends = Nanos(self.term.work_ends.load(Ordering::Acquire));
        (work_ends != Nanos::NEVER).then(|| work_ends.since(self.term.clock.boot_nanos()))
    }

    /// Returns whether the term has not ended. Cancels no token, so this can be called under a lock.
    pub(crate) fn lasts(&self) -> bool {
        !self.term.ended.is_cancelled() && !self.has_run_out()
    }

    /// Returns whether the time is over. If so, cancels the token.
    fn is_over(&self) -> bool {
        let is_over = self.has_run_out();
        if is_over {
            self.term.ended.cancel();
        }
        is_over
    }

    fn has_run_out(&self) -> bool {
        let work_ends = || self.term.work_ends.load(Ordering::Acquire);
        // The clock first: if this finds the end, an extension that comes later finds it too.
        work_ends() != Nanos::NEVER.0 && {
            let now = self.term.clock.boot_nanos();
            now.0 >= work_ends()
        }
    }

    /// Notes that an object has a greater number. Ends the term, unless this process itself may have a greater number by now.
    #[cfg(feature = "objects")]
    pub(crate) fn found_later(&self) {
        if !self.is_divided {
            self.term.ended.cancel();
        }
    }

    /// Returns the token that is cancelled when the term ends.
    pub(crate) fn ended(&self) -> &CancellationToken {
        &self.term.ended
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("number", &self.number)
            .field("is_divided", &self.is_divided)
            .field("remaining", &self.remaining())
            .field("ended", &self.term.ended.is_cancelled())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, loom, feature = "objects"))]
mod models {
    use loom::thread;

    use super::*;
    use crate::base::clock::ManualClock;

    #[test]
    fn a_term_whose_end_was_found_is_not_extended() {
        loom::model(|| {
            let clock = ManualClock::new();
            let (ends, later) = (Nanos(1), Duration::from_nanos(10));
            let fence = Fence::until(1, clock.clock(), Duration::from_nanos(1));
            let finder = thread::spawn({
                let (fence, clock) = (fence.clone(), clock.clone());
                move || {
                    clock.advance_to(ends);
                    fence.lasts()
                }
            });
            let was_extended = fence.extend(later);
            let lasted = finder.join().unwrap();
            assert!(lasted || !was_extended);
            assert_eq!(fence.lasts(), was_extended);
        });
    }
}
