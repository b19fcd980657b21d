//! A poller: lists keys at a fixed rate and enqueues them.

mod polling;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use self::polling::{HandingOver, PollerShared, Polling};
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::group::{Handle, Overrun, ThreadGroup, ThreadGroupKind};
use crate::base::running::Running;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use crate::base::thread::ThreadOptions;
use crate::base::time::{Nanos, Rounded};
use crate::base::wait::{AutoResetEvent, HandedOver, Latch, Progress};
use crate::queue::{Enqueue, EnqueueMethod, EnqueueRequest, Priority, Reasons};
use crate::run::context::Context;
use crate::run::error::BoxError;
use crate::watch::source::{SourceHandle, SourceState};

/// Calls a listing function at a fixed rate, and enqueues the keys that it returns.
///
/// Keys are enqueued with [`enqueue_if_absent`](Enqueue::enqueue_if_absent), unless [`edge`](Self::edge) is set.
///
/// Polls begin at multiples of the period after the start, or after the last [`set_period`](PollerControl::set_period). A poll
/// that would begin while another one runs is skipped. The listing function receives a [`Context`] with a deadline: one period
/// after the beginning of the poll.
///
/// After an error or a panic the next poll comes as planned. [`PollerControl::source`] reports failures. In a series of
/// failures, the first, second, fourth and so on are logged, errors as warnings and panics as errors; the others are logged at
/// debug. The poll that ends the series is logged at info.
///
/// # Examples
///
/// ```
/// use homeostat::{Poller, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// let poller = Poller::new(Duration::from_secs(30), |_cx| Ok::<_, std::io::Error>(vec!["vm-1", "vm-2"])).start(&queue)?;
/// assert_eq!(*queue.dequeue()?, "vm-1");
/// poller.shutdown(Duration::ZERO);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a poller does nothing until it is started"]
#[doc(alias = "feeder")]
pub struct Poller<F> {
    period: Duration,
    list: F,
    pub(super) name: String,
    /// The name of the threads, if it differs from `name`.
    thread_name: Option<String>,
    controller: Option<String>,
    /// Where the poller records its health, once that is made.
    source: Option<SourceHandle>,
    jitter: f64,
    first_after: bool,
    retry: Option<Duration>,
    method: EnqueueMethod,
    priority: Priority,
    pub(super) clock: Clock,
    grace: Duration,
    threads: Option<ThreadOptions>,
}

impl<F> Poller<F> {
    /// Calls `list` every `period`, the first time at once.
    pub fn new<I, E>(period: Duration, list: F) -> Self
    where
        F: FnMut(&Context) -> Result<I, E>,
        I: IntoIterator,
        E: Into<BoxError>,
    {
        Self {
            period,
            list,
            name: "poller".to_owned(),
            thread_name: None,
            controller: None,
            source: None,
            jitter: 0.0,
            first_after: false,
            retry: None,
            method: EnqueueMethod::EnqueueIfAbsent,
            priority: Priority::Normal,
            clock: Clock::system(),
            grace: Duration::from_secs(30),
            threads: None,
        }
    }

    /// Sets the name for log lines, status, metrics and threads (`<name>-0`, `<name>-watchdog`). Default: `poller`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Makes the poller a source of this controller, and sets the name of its threads.
    pub(crate) fn of_controller(mut self, controller: &str, thread_name: String) -> Self {
        self.controller = Some(controller.to_owned());
        self.thread_name = Some(thread_name);
        self
    }

    /// Sets where the poller records its health. The handle counts as synced once the first listing has been enqueued.
    pub(super) fn with_source(mut self, source: SourceHandle) -> Self {
        self.source = Some(source);
        self
    }

    /// Delays each poll by a random time of up to `share` of the period. Use it to keep many pollers from polling at once. The
    /// schedule itself does not drift. `share` is between 0 (the default) and 1.
    pub fn jitter(mut self, share: f64) -> Self {
        self.jitter = share;
        self
    }

    /// Delays the first poll by one period.
    pub fn first_after_period(mut self) -> Self {
        self.first_after = true;
        self
    }

    /// Repeats a failed poll after this time, before the next planned poll. The poller counts as synced once its first poll has
    /// ended, even if that poll failed.
    #[cfg(feature = "objects")]
    pub(crate) fn retry_after(mut self, delay: Duration) -> Self {
        self.retry = Some(delay);
        self
    }

    /// Enqueues keys with [`enqueue`](Enqueue::enqueue): a key that is being processed runs again. Use it if the function lists
    /// changed keys.
    pub fn edge(mut self) -> Self {
        self.method = EnqueueMethod::Enqueue;
        self
    }

    /// Sets the priority level of the keys. Default: normal.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the clock. Default: the system clock. A poller of a controller uses the clock of the controller.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets how long a running poll may continue after its handle is dropped. Then the poll is aborted. Default: 30 s.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets how the threads are made. Default: the options of the controller if it is the source of one, or else of the
    /// platform.
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.threads = Some(options);
        self
    }

    /// Sets the thread options, unless the user has set them.
    pub(crate) fn or_thread_options(mut self, options: &ThreadOptions) -> Self {
        self.threads.get_or_insert_with(|| options.clone());
        self
    }

    /// Checks the name and the settings.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        StartError::check_name(&self.name)?;
        check_period(self.period)?;
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(StartError::setting("jitter", &self.jitter, "between 0 and 1"));
        }
        Ok(())
    }

    /// Returns the handle of the poller's health. It takes the name and the clock that are set by now.
    pub(crate) fn source(&mut self) -> SourceHandle {
        let Self { source, name, controller, clock, .. } = self;
        let new =
            || SourceHandle::new(&SourceState::new(name, controller.take(), clock.clone()), &Latch::new(clock.clone()));
        source.get_or_insert_with(new).clone()
    }

    /// Starts polling into `to`.
    ///
    /// # Errors
    ///
    /// If the name contains a NUL character, the period is zero, the jitter is not between 0 and 1, or the system cannot start
    /// a thread.
    pub fn start<K, I, E, Q>(self, to: &Q) -> Result<Running<PollerControl>, StartError>
    where
        F: FnMut(&Context) -> Result<I, E> + Send + 'static,
        I: IntoIterator<Item = K> + 'static,
        E: Into<BoxError>,
        Q: Enqueue<K> + Clone + Send + 'static,
        K: 'static,
    {
        let to = to.clone();
        let request = EnqueueRequest::new(self.method).at(self.priority).because(Reasons::POLL);
        let deliver = move |keys: I| to.request_all(&mut keys.into_iter(), request).total();
        self.start_with(deliver, || {}, |control| control)
    }

    /// Starts polling. `deliver` gets each listing and returns the number of its keys. Each stop calls `on_stop`. The returned
    /// handle derefs to the result of `control`.
    pub(super) fn start_with<I, E, C>(
        mut self,
        mut deliver: impl FnMut(I) -> usize + Send + 'static,
        on_stop: impl Fn() + Send + Sync + 'static,
        control: impl FnOnce(PollerControl) -> C,
    ) -> Result<Running<C>, StartError>
    where
        F: FnMut(&Context) -> Result<I, E> + Send + 'static,
        E: Into<BoxError>,
    {
        self.check()?;
        let source = self.source();
        let group = ThreadGroup::new(ThreadGroupKind::Poller, self.thread_name.unwrap_or(self.name), self.clock, 1);
        let event = AutoResetEvent::new(group.clock.clone());
        let shared = Arc::new(PollerShared {
            triggered: AtomicBool::new(false),
            overruns: AtomicU64::new(0),
            event: Arc::clone(&event),
            new_period: Mutex::new(None),
            returned: AtomicU64::new(0),
            handed_over: AtomicU64::new(0),
            progress: OnceLock::new(),
        });
        let triggered = Arc::clone(&shared);
        source.state.on_trigger(move || triggered.trigger());
        let mut list = self.list;
        let list = Box::new(move |cx: &Context, shared: &PollerShared| {
            let keys = list(cx).map_err(Into::into)?;
            let _handing_over = HandingOver::new(shared);
            Ok(deliver(keys))
        });
        let now = group.clock.nanos();
        let mut polling = Polling {
            group: Arc::clone(&group),
            shared: Arc::clone(&shared),
            source: source.clone(),
            list,
            period: self.period,
            planned: if self.first_after { now.after(self.period) } else { now },
            due: Nanos::ZERO,
            jitter: self.jitter,
            retry: self.retry,
            retry_at: Nanos::NEVER,
            draws: group.clock.draws(),
        };
        polling.plan(now);
        let (name, period) = (source.state.name(), Rounded(self.period));
        log::info!(source = name, period:%; "{name}: the poller starts, with a period of {period}");
        let watched = (Arc::clone(&shared), source.clone());
        let joiners = group.start_one(
            &self.threads.unwrap_or_default(),
            polling,
            &event,
            Some(Box::new(move |_: Overrun| {
                let (shared, source) = &watched;
                shared.overruns.fetch_add(1, SeqCst);
                source.state.overran();
            })),
        )?;
        let wake = move || {
            on_stop();
            event.set();
        };
        let control = control(PollerControl { group: Arc::clone(&group), shared, source });
        Ok(Running::new(control, Handle::new(group, joiners, wake), self.grace))
    }
}

impl<F> fmt::Debug for Poller<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller")
            .field("name", &self.name)
            .field("period", &self.period)
            .field("jitter", &self.jitter)
            .field("method", &self.method)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

fn check_period(period: Duration) -> Result<(), StartError> {
    if period.is_zero() {
        return Err(StartError::setting("period", &period, "longer than zero"));
    }
    Ok(())
}

/// The methods of a running [`Poller`], which its handle [`Running<PollerControl>`](Running) derefs to. Cheap to clone; clones
/// neither keep the poller running nor stop it.
///
/// # Examples
///
/// ```
/// use homeostat::{Poller, WorkQueue};
/// use std::{convert::Infallible, time::Duration};
///
/// let queue = WorkQueue::new();
/// let hourly = Poller::new(Duration::from_secs(3600), |_cx| Ok::<_, Infallible>(["vm-1"])).first_after_period();
/// let poller = hourly.start(&queue)?;
/// poller.trigger();
/// assert_eq!(*queue.dequeue()?, "vm-1");
/// poller.shutdown(Duration::from_secs(1));
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[derive(Clone)]
pub struct PollerControl {
    group: Arc<ThreadGroup>,
    shared: Arc<PollerShared>,
    source: SourceHandle,
}

impl PollerControl {
    /// Returns the name in log lines.
    #[must_use]
    pub fn name(&self) -> &str {
        self.source.state.name()
    }

    /// Starts a poll now, independent of the schedule. Any number of calls during a poll cause one more.
    pub fn trigger(&self) {
        self.shared.trigger();
    }

    /// Sets the period. The next poll begins one `period` after this call. A poll that is already due is not postponed, and a
    /// running poll keeps its deadline. Returns at once; does nothing once the poller has stopped.
    ///
    /// # Errors
    ///
    /// If the period is zero. The old period stays in force.
    ///
    /// ```
    /// use homeostat::{ManualClock, Poller, WorkQueue};
    /// use std::{convert::Infallible, time::Duration};
    ///
    /// let clock = ManualClock::new();
    /// let queue = WorkQueue::builder().clock(clock.clock()).build();
    /// let hourly = Poller::new(Duration::from_secs(3600), |_cx| Ok::<_, Infallible>(["vm-1"])).first_after_period();
    /// let poller = hourly.clock(clock.clock()).start(&queue)?;
    /// poller.set_period(Duration::from_secs(10))?;
    /// clock.advance(Duration::from_secs(10));
    /// assert_eq!(*queue.dequeue()?, "vm-1");
    /// poller.shutdown(Duration::ZERO);
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn set_period(&self, period: Duration) -> Result<(), StartError> {
        check_period(period)?;
        {
            let mut new_period = self.shared.new_period.lock();
            *new_period = Some((period, self.group.clock.nanos()));
        }
        self.shared.event.set();
        Ok(())
    }

    /// Returns a handle to check the health of the poller and to trigger polls. It stays valid when the poller has been given
    /// to a [`Manager`](crate::Manager).
    #[must_use]
    pub fn source(&self) -> SourceHandle {
        self.source.clone()
    }

    /// Returns a call that stops the poller, for a caller that must release a lock first. With `abort`, it also cancels the listing.
    pub(crate) fn ending(&self, abort: bool) -> Box<dyn FnOnce()> {
        let (group, shared) = (Arc::clone(&self.group), Arc::clone(&self.shared));
        Box::new(move || {
            group.stop();
            shared.event.set();
            if abort {
                group.abort.cancel();
            }
        })
    }

    /// Returns whether the caller is in a poll of this poller.
    pub(crate) fn is_current(&self) -> bool {
        self.group.slots[0].is_current()
    }

    /// Sets a callback for each listing that has been enqueued. The first call counts.
    pub(crate) fn on_progress(&self, progress: Progress) {
        let _ = self.shared.progress.set(progress);
    }

    /// Returns a check whether every listing that has returned by now has been enqueued.
    pub(crate) fn accepted(&self) -> HandedOver {
        let (shared, returned) = (Arc::clone(&self.shared), self.shared.returned.load(SeqCst));
        Box::new(move || shared.handed_over.load(SeqCst) >= returned)
    }

    /// Returns whether the source counts as synced.
    pub(crate) fn has_listed(&self) -> bool {
        self.source.synced().is_open()
    }

    /// Returns the number of polls that have begun.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.source.status().listings
    }

    /// Returns the number of polls that returned an error or panicked.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.source.status().failures
    }

    /// Returns the number of polls that were still running 100 ms after their deadline.
    #[must_use]
    pub fn overruns(&self) -> u64 {
        self.shared.overruns.load(SeqCst)
    }

    /// Returns whether the current poll is still running 100 ms or more after its deadline.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.group.slots[0].is_overdue()
    }
}

impl fmt::Debug for PollerControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollerControl")
            .field("polls", &self.polls())
            .field("listed", &self.has_listed())
            .finish_non_exhaustive()
    }
}
