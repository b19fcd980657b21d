//! The context of a run: its deadline, its reasons and its cancellation.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::error::Cancelled;
use crate::base::cancel::{CancellationToken, OnCancel};
use crate::base::clock::Clock;
use crate::base::group::WorkerSlot;
use crate::base::time::Nanos;
use crate::base::wait::AutoResetEvent;
use crate::queue::{Priority, Reasons};

/// The context of a run: its deadline, its cancellation, and the reasons for the call.
///
/// Threads cannot be killed, so cancellation is cooperative: a run calls [`is_cancelled`](Self::is_cancelled) or
/// [`check`](Self::check) between its steps, waits with [`sleep`](Self::sleep), and unblocks other calls with
/// [`on_cancel`](Self::on_cancel). It is cancelled when its deadline passes, and when its workers are aborted: after
/// the grace period of a shutdown, not at its beginning.
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
    /// Cancelled when everything is aborted.
    abort: CancellationToken,
    /// A child of `abort`, made when it is first asked for: most runs never do.
    token: OnceLock<CancellationToken>,
    /// Where the watchdog finds the token.
    slot: Option<Arc<WorkerSlot>>,
    pub(crate) call: RunInfo,
}

/// The reasons for a call of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunInfo {
    pub(crate) reasons: Reasons,
    pub(crate) failures: u32,
    pub(crate) priority: Priority,
    pub(crate) queued_for: Option<Duration>,
}

impl Context {
    /// A context of no run, for calling a reconciler by hand or in a test: on the system's clock, without a deadline, never
    /// cancelled.
    #[must_use]
    pub fn detached() -> Self {
        Self::detached_with(Clock::system(), CancellationToken::new())
    }

    /// A context of no run that goes by `clock` and is cancelled with `abort`; without a deadline.
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
        Self { clock, deadline, abort, token: OnceLock::new(), slot, call }
    }

    /// The thread of the runs to come has another slot.
    pub(crate) fn sit(&mut self, slot: &Arc<WorkerSlot>) {
        self.slot = Some(Arc::clone(slot));
    }

    /// Makes this the context of another run on the same slot; the one before has [ended](Self::end).
    #[inline]
    pub(crate) fn renew(&mut self, deadline: Nanos, call: RunInfo) {
        debug_assert!(self.token.get().is_none(), "a token is its run's alone");
        self.deadline = deadline;
        self.call = call;
    }

    /// Ends the run, and drops the detached callbacks on its token.
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

    /// The time left until the deadline, zero once it has passed; `None` without a deadline.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        (self.deadline != Nanos::NEVER).then(|| self.deadline.since(self.clock.nanos()))
    }

    /// Whether the run should end: its deadline has passed, or its workers have been aborted.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.check().is_err()
    }

    /// Returns with an error once the run should end: `cx.check()?` between two steps.
    ///
    /// # Errors
    ///
    /// [`Cancelled`], saying which of the two it is.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.abort.is_cancelled() || self.is_being_aborted() {
            return Err(Cancelled::Aborted);
        }
        if self.clock.reached(self.deadline) {
            return Err(Cancelled::DeadlineExceeded);
        }
        Ok(())
    }

    /// Whether an abort is under way. The token reads as cancelled a moment before its parent.
    fn is_being_aborted(&self) -> bool {
        self.token.get().is_some_and(CancellationToken::is_cancelled) && self.abort.is_closed()
    }

    /// Blocks for `duration` by the queue's clock. Cancellation wakes it early.
    ///
    /// # Errors
    ///
    /// [`Cancelled`] if the run should end.
    pub fn sleep(&self, duration: Duration) -> Result<(), Cancelled> {
        let signal = AutoResetEvent::new(self.clock.clone());
        let until = self.clock.nanos().after(duration).min(self.deadline);
        let wake = Arc::clone(&signal);
        // The deadline ends the wait by itself. The run's own token does not: cancelling it does not end the run.
        let _guard = self.abort.on_cancel(move || wake.set());
        signal.wait_until(until);
        self.check()
    }

    /// Calls `f` once the run is cancelled, or at once if it is: the way to unblock a socket or a child process. Dropping
    /// the guard takes it back; see [`OnCancel`].
    ///
    /// It is called on the thread that cancels (at the deadline, the watchdog), so it must be short. If the guard outlives the
    /// run, an abort still calls `f`. A [detached](OnCancel::detach) callback ends with the run, unless a clone of the
    /// [`token`](Self::token) outlives it.
    pub fn on_cancel<F: FnOnce() + Send + 'static>(&self, f: F) -> OnCancel {
        self.token().on_cancel(f)
    }

    /// A token that is cancelled with this run, to hand to other code.
    pub fn token(&self) -> &CancellationToken {
        self.token.get_or_init(|| {
            let token = self.abort.child();
            if let Some(slot) = &self.slot {
                slot.expose(&token);
            }
            // The watchdog may have come by before the token was there to be found.
            if self.clock.reached(self.deadline) {
                token.cancel();
            }
            token
        })
    }

    /// Why this run was called: all reasons given since the last one began.
    #[must_use]
    pub fn reasons(&self) -> Reasons {
        self.call.reasons
    }

    /// The number of this try: 1, or one more than the runs in a row that have failed before it.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.call.failures.saturating_add(1)
    }

    /// The lane from which the key was taken.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.call.priority
    }

    /// How long the key was in line; if it was there before the workers started, since then. `None` in a poll, and in a
    /// context of no run.
    #[must_use]
    pub fn queued_for(&self) -> Option<Duration> {
        self.call.queued_for
    }

    /// The clock by which this run goes.
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
