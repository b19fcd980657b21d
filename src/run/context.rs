//! The context of a run: its deadline, its reasons and its cancellation.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::error::Cancelled;
use super::fence::Fence;
use crate::base::cancel::{CancellationToken, OnCancel};
use crate::base::clock::Clock;
use crate::base::group::WorkerSlot;
use crate::base::time::Nanos;
use crate::base::wait::AutoResetEvent;
use crate::queue::{Priority, Reasons};

/// The context of a run: its deadline, its cancellation and its reasons.
///
/// Threads cannot be killed, so cancellation is cooperative. Call [`is_cancelled`](Self::is_cancelled) or
/// [`check`](Self::check) between steps, wait with [`sleep`](Self::sleep), and unblock other calls with
/// [`on_cancel`](Self::on_cancel). A run is cancelled when its deadline passes, and when its workers are aborted. A
/// shutdown aborts after its grace period, not at its beginning.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context};
/// use std::time::Duration;
///
/// fn reconcile(cx: &Context, vm: &String) -> Result<Action, BoxError> {
///     for step in ["disk", "network", "boot"] {
///         cx.check()?; // between two steps
///         log::debug!("{vm}: {step}, try {}", cx.attempt());
///         cx.sleep(Duration::from_millis(1))?; // ends early when the run is cancelled
///     }
///     Ok(Action::await_change())
/// }
/// # reconcile(&Context::detached(), &"vm-1".to_owned()).unwrap();
/// ```
pub struct Context {
    clock: Clock,
    deadline: Nanos,
    /// Cancelled when the workers are aborted.
    abort: CancellationToken,
    /// A child of `abort`, created on first use. Most runs do not use it.
    token: OnceLock<RunToken>,
    /// The watchdog finds the token in this slot.
    slot: Option<Arc<WorkerSlot>>,
    /// The term that the run belongs to, if there was an election.
    pub(super) fence: Option<Fence>,
    pub(crate) call: RunInfo,
}

/// The token of a run.
struct RunToken {
    token: CancellationToken,
    /// Cancels the token at the end of the term.
    _at_term_end: Option<OnCancel>,
}

/// The data that a run passes to its context: reasons, failures, priority and queueing time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunInfo {
    pub(crate) reasons: Reasons,
    pub(crate) failures: u32,
    pub(crate) priority: Priority,
    pub(crate) queued_for: Option<Duration>,
}

impl Context {
    /// Creates a context without a run, for manual calls and tests. It uses the system clock, has no deadline and is
    /// never cancelled.
    #[must_use]
    pub fn detached() -> Self {
        Self::detached_with(Clock::system(), CancellationToken::new())
    }

    /// Creates a context without a run. It uses `clock`, has no deadline, and is cancelled with `abort`.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat::{CancellationToken, Clock, Context};
    /// use homeostat::run::Cancelled;
    /// use std::time::Duration;
    ///
    /// let stop = CancellationToken::new();
    /// let cx = Context::detached_with(Clock::system(), stop.clone());
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| stop.cancel());
    ///     assert_eq!(cx.sleep(Duration::MAX), Err(Cancelled::Aborted));
    /// });
    /// ```
    #[must_use]
    pub fn detached_with(clock: Clock, abort: CancellationToken) -> Self {
        Self::new(clock, Nanos::NEVER, abort, None, RunInfo::default())
    }

    pub(crate) fn new(
        clock: Clock,
        deadline: Nanos,
        abort: CancellationToken,
        slot: Option<Arc<WorkerSlot>>,
        call: RunInfo,
    ) -> Self {
        Self { clock, deadline, abort, token: OnceLock::new(), slot, fence: None, call }
    }

    /// Ties the context to a term: it is cancelled when the term ends. For tests of reconcilers that lead.
    #[must_use]
    pub fn in_term(self, fence: Option<Fence>) -> Self {
        Self { fence, ..self }
    }

    /// Moves this context to another worker slot.
    pub(crate) fn use_slot(&mut self, slot: &Arc<WorkerSlot>) {
        self.slot = Some(Arc::clone(slot));
    }

    /// Returns the name of the run's thread.
    pub(crate) fn thread(&self) -> Option<&str> {
        self.slot.as_deref().map(|slot| slot.name.as_str())
    }

    /// Prepares the context for the next run on the same slot. The previous run must have [ended](Self::end).
    #[inline]
    pub(crate) fn renew(&mut self, deadline: Nanos, call: RunInfo) {
        debug_assert!(self.token.get().is_none(), "a token is its run's alone");
        self.deadline = deadline;
        self.call = call;
    }

    /// Ends the run, and drops detached callbacks on its token.
    #[inline]
    pub(crate) fn end(&mut self) {
        if self.token.get().is_some() {
            self.token = OnceLock::new();
        }
    }

    /// Returns the deadline of the run, if any.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.clock.instant(self.deadline)
    }

    /// Returns the time until the deadline; zero if it has passed. `None` without a deadline.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        (self.deadline != Nanos::NEVER).then(|| self.deadline.since(self.clock.nanos()))
    }

    /// Returns whether the run should end: its deadline has passed, its workers were aborted, or its term has ended.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.check().is_err()
    }

    /// Returns an error if the run should end. Call `cx.check()?` between two steps.
    ///
    /// # Errors
    ///
    /// Returns [`Cancelled`] with the reason.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.abort.is_cancelled() || self.is_being_aborted() {
            return Err(Cancelled::Aborted);
        }
        if self.clock.reached(self.deadline) {
            return Err(Cancelled::DeadlineExceeded);
        }
        self.check_term()
    }

    /// Returns an error if the term of the run has ended. The run must then stop writing. Unlike
    /// [`check`](Self::check), ignores the deadline and an abort: work that has begun may be completed.
    ///
    /// # Errors
    ///
    /// Returns [`Cancelled::TermEnded`].
    pub fn check_term(&self) -> Result<(), Cancelled> {
        self.fence.as_ref().map_or(Ok(()), Fence::check)
    }

    /// Returns the right of this process to write while it leads.
    ///
    /// Without an election, the right never ends and has no [number](Fence::number).
    ///
    /// # Errors
    ///
    /// Returns [`Cancelled::TermEnded`] if this process has lost its leadership or its membership of the group. The run
    /// must then stop writing.
    pub fn fence(&self) -> Result<Fence, Cancelled> {
        let fence = self.fence.clone().unwrap_or_else(|| Fence::unlimited(None));
        fence.check()?;
        Ok(fence)
    }

    /// Returns whether an abort is in progress. The token is cancelled a moment before its parent.
    fn is_being_aborted(&self) -> bool {
        self.token.get().is_some_and(|run| run.token.is_cancelled()) && self.abort.is_closed()
    }

    /// Blocks for `duration`, by the queue's clock. A cancellation wakes it early.
    ///
    /// # Errors
    ///
    /// Returns [`Cancelled`] if the run should end.
    pub fn sleep(&self, duration: Duration) -> Result<(), Cancelled> {
        let signal = AutoResetEvent::new(self.clock.clone());
        let until = self.clock.nanos().after(duration).min(self.deadline);
        let wake = Arc::clone(&signal);
        // The deadline limits the wait itself. The run's own token must not wake it: its cancellation does not end the
        // run.
        let _guard = self.abort.on_cancel(move || wake.set());
        let wake = Arc::clone(&signal);
        let _at_term_end = self.fence.as_ref().map(|fence| fence.ended().on_cancel(move || wake.set()));
        signal.wait_until(until);
        self.check()
    }

    /// Calls `f` when the run is cancelled, or at once if it already is.
    ///
    /// Use it to unblock a socket or a child process. Dropping the guard unregisters `f`; see [`OnCancel`]. At the
    /// deadline, at a stop of a function and at an abort, the callbacks have a thread of their own, one after the
    /// other. A manager gives up a callback that blocks after its abort grace. If the system refuses the thread, the
    /// callbacks run on the thread that cancels. At the end of a [term](Self::fence), they run on the thread that ends
    /// it.
    ///
    /// If the guard outlives the run, an abort still calls `f`. A [detached](OnCancel::detach) callback ends with the
    /// run, unless a clone of the [`token`](Self::token) outlives the run.
    pub fn on_cancel<F: FnOnce() + Send + 'static>(&self, f: F) -> OnCancel {
        self.token().on_cancel(f)
    }

    /// Returns a token that is cancelled with this run, for use in other code.
    pub fn token(&self) -> &CancellationToken {
        let run = self.token.get_or_init(|| {
            let token = self.abort.child();
            if let Some(slot) = &self.slot {
                slot.expose(&token);
            }
            // The deadline may have passed before the watchdog could find the token.
            if self.clock.reached(self.deadline) {
                token.cancel();
            }
            let at_term_end = self.fence.as_ref().map(|fence| {
                let ended = token.clone();
                fence.ended().on_cancel(move || ended.cancel())
            });
            RunToken { token, _at_term_end: at_term_end }
        });
        &run.token
    }

    /// Returns the reasons of all requests since the previous run began.
    #[must_use]
    pub fn reasons(&self) -> Reasons {
        self.call.reasons
    }

    /// Returns the number of this try: one more than the failed runs in a row before it.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.call.failures.saturating_add(1)
    }

    /// Returns the priority level of the key when it was taken.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.call.priority
    }

    /// Returns how long the key was queued, counted from the start of the workers at the earliest. `None` in a poll and
    /// in a context without a run.
    #[must_use]
    pub fn queued_for(&self) -> Option<Duration> {
        self.call.queued_for
    }

    /// Returns the clock of this run.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("remaining", &self.remaining())
            .field("cancelled", &self.check().err())
            .field("attempt", &self.attempt())
            .field("reasons", &self.call.reasons)
            .field("priority", &self.call.priority)
            .finish_non_exhaustive()
    }
}
