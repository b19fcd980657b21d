//! The settings and the thread of a poller: when it polls, and how it handles the outcome of a poll.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::base::backoff::Draws;
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::group::{ThreadGroup, ThreadGroupKind};
use crate::base::running::Running;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::base::task::{Next, Task};
use crate::base::task_thread::TaskWaker;
use crate::base::thread::{ThreadOptions, panic_message};
use crate::base::time::{Nanos, Rounded};
use crate::base::wait::AutoResetEvent;
use crate::queue::{EnqueueMethod, Priority, Reasons};
use crate::run::context::{Context, RunInfo};
use crate::run::error::{BoxError, Chain};
use crate::watch::source::SourceHandle;
use crate::watch::source_state::{KeySource, SourceProgress};

/// The settings of a poller.
pub(super) struct PollerSettings {
    pub(super) name: String,
    pub(super) period: Duration,
    /// The name of the threads, if it differs from `name`.
    pub(super) thread_name: Option<String>,
    pub(super) controller: Option<String>,
    pub(super) jitter: f64,
    pub(super) first_after: bool,
    /// The time after which a failed poll is repeated. If set, even a failed first poll sets the latch of the source.
    pub(super) retry: Option<Duration>,
    pub(super) method: EnqueueMethod,
    pub(super) priority: Priority,
    pub(super) clock: Clock,
    pub(super) grace: Duration,
    pub(super) threads: Option<ThreadOptions>,
    /// The thread of the watchdog. `None` for an own one.
    pub(super) watchdog: Option<TaskWaker>,
}

/// The state that the handles and the thread share.
struct PollerState {
    group: Arc<ThreadGroup>,
    event: Arc<AutoResetEvent>,
    triggered: AtomicBool,
    /// A new period that the thread has not applied yet, and when it was set.
    new_period: Mutex<Option<(Duration, Nanos)>>,
    /// Counts the listings.
    progress: SourceProgress,
}

impl KeySource for PollerState {
    fn progress(&self) -> &SourceProgress {
        &self.progress
    }

    fn is_current(&self) -> bool {
        self.group.slots[0].is_current()
    }

    fn end(&self, abort: bool) {
        self.group.stop();
        self.event.set();
        if abort {
            self.group.cancel_aside(&self.group.abort);
        }
    }

    fn trigger(&self) {
        self.triggered.store(true, SeqCst);
        self.event.set();
    }

    fn set_period(&self, period: Duration) -> bool {
        *self.new_period.lock() = Some((period, self.group.clock.nanos()));
        self.event.set();
        true
    }
}

/// Calls the listing function, and enqueues or stores the listing. Returns the number of its keys.
pub(super) type ListAndDeliver = Box<dyn FnMut(&Context, &SourceProgress) -> Result<usize, BoxError> + Send>;

/// Combines a listing function with a function that enqueues or stores a listing, and returns the number of its keys.
pub(super) fn list_and_deliver<I: 'static>(
    mut list: impl FnMut(&Context) -> Result<I, BoxError> + Send + 'static,
    mut deliver: impl FnMut(I) -> usize + Send + 'static,
) -> ListAndDeliver {
    Box::new(move |cx, progress| {
        let listing = list(cx)?;
        progress.accept();
        Ok(deliver(listing))
    })
}

/// The body of the thread.
struct Polling {
    state: Arc<PollerState>,
    source: SourceHandle,
    list: ListAndDeliver,
    period: Duration,
    /// The next multiple of the period, counted from the start or from the last new period.
    planned: Nanos,
    /// `planned` with jitter.
    due: Nanos,
    jitter: f64,
    /// As in the settings.
    retry: Option<Duration>,
    /// When to repeat a failed poll.
    retry_at: Nanos,
    draws: Draws,
}

impl PollerSettings {
    /// Checks the name and the settings.
    pub(super) fn check(&self) -> Result<(), StartError> {
        StartError::check_name(&self.name)?;
        StartError::check_time("period", self.period)?;
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(StartError::setting("jitter", &self.jitter, "between 0 and 1"));
        }
        Ok(())
    }

    /// Starts polling. Each stop calls `on_stop`. The returned handle derefs to `control`.
    pub(super) fn start<C>(
        self,
        source: &SourceHandle,
        list: ListAndDeliver,
        on_stop: impl Fn() + Send + Sync + 'static,
        control: C,
    ) -> Result<(Arc<dyn KeySource>, Running<C>), StartError> {
        self.check()?;
        let name = self.thread_name.unwrap_or(self.name);
        let group = ThreadGroup::new(ThreadGroupKind::Poller, name, self.clock, 1);
        let state = Arc::new(PollerState {
            group: Arc::clone(&group),
            event: AutoResetEvent::new(group.clock.clone()),
            triggered: AtomicBool::new(false),
            new_period: Mutex::new(None),
            progress: SourceProgress::default(),
        });
        let keys: Arc<dyn KeySource> = Arc::clone(&state) as _;
        let _ = source.state.poller.set(Arc::clone(&keys));
        let first = group.clock.nanos().after(if self.first_after { self.period } else { Duration::ZERO });
        let mut polling = Polling {
            state: Arc::clone(&state),
            source: source.clone(),
            list,
            period: self.period,
            planned: first,
            due: first,
            jitter: self.jitter,
            retry: self.retry,
            retry_at: Nanos::NEVER,
            draws: group.clock.draws(),
        };
        polling.plan(first);
        source.state.plan(polling.due, Some(polling.period));
        let (name, period) = (source.state.name(), Rounded(self.period));
        log::info!(source = name, period:%; "{name}: the poller starts, with a period of {period}");
        let watched = source.clone();
        let report = Arc::new(move || watched.state.overran());
        self.watchdog.iter().for_each(|thread| group.watch_on(thread));
        let (threads, event) = (self.threads.unwrap_or_default(), Arc::clone(&state.event));
        let handle = group.start_one(&threads, polling, event, Some(report), on_stop)?;
        Ok((keys, Running::new(control, handle, self.grace)))
    }
}

impl Polling {
    /// Plans the next poll at the first multiple of the period, from `planned` on, that is not before `earliest`.
    fn plan(&mut self, earliest: Nanos) {
        if self.planned < earliest {
            let period = u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX);
            let missed = (earliest.0 - self.planned.0).div_ceil(period);
            self.planned = Nanos(self.planned.0.saturating_add(missed.saturating_mul(period)));
        }
        let share = self.jitter * Draws::unit(self.draws.draw());
        self.due = self.planned.after(self.period.mul_f64(share));
    }

    /// Applies a new period to the plan. A poll that was due when the period was set is not postponed.
    fn take_new_period(&mut self, earliest: Nanos) {
        let Some((period, since)) = self.state.new_period.lock().take() else { return };
        self.period = period;
        if since < self.due {
            self.planned = since.after(period);
            self.plan(earliest);
        }
    }

    fn poll(&mut self, now: Nanos) {
        let deadline = now.after(self.period);
        // Dropped last: a thread that sees the listing ended also sees its outcome.
        let _listing = self.source.state.begin(now, deadline);
        let outcome = {
            let slot = &self.state.group.slots[0];
            let _run = self.state.group.begin_until(slot, deadline, 0);
            let call = RunInfo { reasons: Reasons::POLL, ..RunInfo::default() };
            let (clock, abort) = (self.state.group.clock.clone(), self.state.group.abort.clone());
            let cx = Context::new(clock, deadline, abort, Some(Arc::clone(slot)), call);
            catch_unwind(AssertUnwindSafe(|| (self.list)(&cx, &self.state.progress)))
        };
        // A listing that panics while it is enqueued counts as enqueued.
        self.state.progress.advance_to(self.state.progress.accepted());
        let succeeded = matches!(outcome, Ok(Ok(_)));
        match outcome {
            Ok(Ok(keys)) => {
                let source = self.source.state.name();
                log::debug!(source, keys; "{source}: polled, keys: {keys}");
                self.source.state.succeeded();
            }
            Ok(Err(error)) => self.source.state.failed(Chain(&*error).to_string()),
            Err(panic) => self.source.state.panicked(panic_message(&*panic)),
        }
        let retry = self.retry.filter(|_| !succeeded);
        self.retry_at = retry.map_or(Nanos::NEVER, |delay| self.state.group.clock.nanos().after(delay));
        if succeeded || retry.is_some() {
            self.source.synced().set(true);
        }
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        self.source.synced().set(false);
        let source = self.source.state.name();
        log::info!(source; "{source}: the poller has ended");
    }
}

impl Task for Polling {
    fn step(&mut self, now: Nanos) -> Next {
        if self.state.group.is_stopping() {
            return Next::Finished;
        }
        if self.state.group.is_closed() {
            // The stop sets the event, which triggers the next step.
            return Next::At(Nanos::NEVER);
        }
        self.take_new_period(Nanos::ZERO);
        // Cleared before the poll: a trigger during the poll causes another one.
        if self.state.triggered.swap(false, SeqCst) || now >= self.due.min(self.retry_at) {
            self.poll(now);
            // Skips planned polls that would have begun during this poll, even if it was triggered.
            let now = self.state.group.clock.nanos();
            if now >= self.due {
                self.planned = self.planned.after(self.period);
                self.plan(now);
            }
            // A new period may have been set during the poll. Its polls that would have begun meanwhile are skipped
            // too.
            self.take_new_period(now);
        }
        let next = self.due.min(self.retry_at);
        self.state.group.slots[0].plan(next.after(self.period));
        self.source.state.plan(next, Some(self.period));
        // A trigger, a new period or a stop during the poll has set the event, so the next step follows at once.
        Next::At(next)
    }
}
