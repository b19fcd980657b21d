//! The thread of a poller: when it polls, and how it handles the outcome of a poll.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::base::backoff::Draws;
use crate::base::clock::Clock;
use crate::base::group::{ThreadGroup, WorkerSlot};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use crate::base::task::{Next, Task};
use crate::base::thread::{panic_message, shielded};
use crate::base::time::Nanos;
use crate::base::wait::{AutoResetEvent, Latch, Progress};
use crate::queue::{Enqueue, EnqueueRequest, Reasons};
use crate::run::context::{Context, RunInfo};
use crate::run::error::{BoxError, Chain};
use crate::watch::source::SourceState;

/// The state that the handle and the thread share.
pub(super) struct PollerShared {
    pub(super) triggered: AtomicBool,
    pub(super) overruns: AtomicU64,
    pub(super) signal: Arc<AutoResetEvent>,
    /// A new period that the thread has not applied yet, and when it was set.
    pub(super) new_period: Mutex<Option<(Duration, Nanos)>>,
    /// The number of listings that have returned, and of those that have been enqueued. A listing that panics while it is
    /// enqueued counts as enqueued.
    pub(super) returned: AtomicU64,
    pub(super) handed_over: AtomicU64,
    /// Called after each listing that has been enqueued.
    pub(super) progress: OnceLock<Progress>,
}

impl PollerShared {
    pub(super) fn trigger(&self) {
        self.triggered.store(true, SeqCst);
        self.signal.set();
    }
}

/// Where a poller records its health.
pub(super) struct SourceOf {
    pub(super) state: Arc<SourceState>,
    /// Opens once a poll has succeeded and its keys are in the queue; given up if the poller ends before.
    pub(super) listed: Arc<Latch>,
}

/// Counts a listing as enqueued when it is dropped.
struct HandingOver<'a>(&'a PollerShared);

impl<'a> HandingOver<'a> {
    fn new(shared: &'a PollerShared) -> Self {
        shared.returned.fetch_add(1, SeqCst);
        Self(shared)
    }
}

impl Drop for HandingOver<'_> {
    fn drop(&mut self) {
        self.0.handed_over.fetch_add(1, SeqCst);
        if let Some(progress) = self.0.progress.get() {
            progress();
        }
    }
}

impl SourceOf {
    pub(super) fn new(name: &str, controller: Option<String>, clock: Clock) -> Self {
        Self { state: SourceState::new(name, controller, clock.clone()), listed: Latch::new(clock) }
    }
}

/// The body of the thread.
pub(super) struct Polling<F, Q> {
    pub(super) crew: Arc<ThreadGroup>,
    pub(super) shared: Arc<PollerShared>,
    pub(super) source: Arc<SourceState>,
    pub(super) listed: Arc<Latch>,
    pub(super) seat: Arc<WorkerSlot>,
    pub(super) to: Q,
    pub(super) list: F,
    pub(super) period: Duration,
    /// The next multiple of the period, counted from the start or from the last new period.
    pub(super) planned: Nanos,
    /// `planned` with jitter.
    pub(super) due: Nanos,
    pub(super) jitter: f64,
    pub(super) draws: Draws,
    pub(super) request: EnqueueRequest,
}

impl<F, Q> Polling<F, Q> {
    /// Plans the next poll at the first multiple of the period, from `planned` on, that is not before `earliest`.
    pub(super) fn plan(&mut self, earliest: Nanos) {
        if self.planned < earliest {
            let period = u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX);
            let missed = (earliest.0 - self.planned.0).div_ceil(period);
            self.planned = Nanos(self.planned.0.saturating_add(missed.saturating_mul(period)));
        }
        let share = self.jitter * crate::base::backoff::unit(self.draws.next());
        self.due = self.planned.after(self.period.mul_f64(share));
    }

    /// Applies a new period to the plan. A poll that was due when the period was set is not postponed.
    fn take_new_period(&mut self, earliest: Nanos) {
        let Some((period, since)) = self.shared.new_period.lock().take() else { return };
        self.period = period;
        if since < self.due {
            self.planned = since.after(period);
            self.plan(earliest);
        }
    }
}

impl<F, Q> Drop for Polling<F, Q> {
    fn drop(&mut self) {
        self.listed.set(false);
        let source = self.source.name();
        shielded("the log of an end", || log::info!(source; "{source}: the poller has ended"));
    }
}

impl<F, I, E, Q> Task for Polling<F, Q>
where
    F: FnMut(&Context) -> Result<I, E> + Send,
    I: IntoIterator,
    E: Into<BoxError>,
    Q: Enqueue<I::Item> + Send,
{
    fn step(&mut self, now: Nanos) -> Next {
        if self.crew.is_stopping() {
            return Next::Finished;
        }
        self.take_new_period(Nanos::ZERO);
        // Cleared before the poll: a trigger during the poll causes another one.
        if self.shared.triggered.swap(false, SeqCst) || now >= self.due {
            self.poll(now);
            // Also after a triggered poll: skips planned polls that would have begun while it ran.
            let now = self.crew.clock.nanos();
            if now >= self.due {
                self.planned = self.planned.after(self.period);
                self.plan(now);
            }
            // A new period may have been set during the poll. Its polls that would have begun meanwhile are skipped too.
            self.take_new_period(now);
        }
        self.seat.plan(self.due.after(self.period));
        // A trigger, a new period or a stop during the poll has set the event, so the next step follows at once.
        Next::At(self.due)
    }
}

impl<F, I, E, Q> Polling<F, Q>
where
    F: FnMut(&Context) -> Result<I, E>,
    I: IntoIterator,
    E: Into<BoxError>,
    Q: Enqueue<I::Item>,
{
    fn poll(&mut self, now: Nanos) {
        let deadline = now.after(self.period);
        // Dropped last: a thread that sees the listing ended also sees its outcome.
        let _listing = self.source.begin(now, deadline);
        let outcome = {
            let _run = self.crew.begin_until(&self.seat, deadline, 0);
            let call = RunInfo { reasons: Reasons::POLL, ..RunInfo::default() };
            let seat = Some(Arc::clone(&self.seat));
            let cx = Context::new(self.crew.clock.clone(), deadline, self.crew.abort.clone(), seat, call);
            catch_unwind(AssertUnwindSafe(|| {
                let keys = (self.list)(&cx).map_err(Into::into)?;
                let _handing_over = HandingOver::new(&self.shared);
                Ok::<_, BoxError>(self.to.request_all(&mut keys.into_iter(), self.request))
            }))
        };
        match outcome {
            Ok(Ok(tally)) => {
                let (source, keys) = (self.source.name(), tally.total());
                log::debug!(source, keys; "{source}: polled, keys: {keys}");
                self.source.succeeded();
                self.listed.set(true);
            }
            Ok(Err(error)) => {
                self.source.failed(Chain(&*error).to_string());
                // The `Drop` of an error is user code.
                shielded("the drop of an error", || drop(error));
            }
            Err(panic) => {
                self.source.panicked(panic_message(&*panic));
                shielded("the drop of a panic", || drop(panic));
            }
        }
    }
}
