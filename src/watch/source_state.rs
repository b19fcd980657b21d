//! A source of keys, as its controller uses it, and its health, which its thread records.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::base::text::{OneLine, bounded, one_line};
use crate::base::time::{Nanos, Rounded};
use crate::base::wait::Progress;
use crate::queue::EnqueueMethod;

/// The health of a source: a poller, or a watch of a listing, a directory or objects.
///
/// # Examples
///
/// ```
/// use homeostat::{Poller, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::<String>::new();
/// let broken = |_cx: &homeostat::Context| Err::<Vec<String>, _>("no route to host");
/// let poller = Poller::new(Duration::from_millis(1), broken).name("vms").start(&queue)?;
/// while poller.status().failures_in_a_row < 2 {
///     std::thread::yield_now();
/// }
/// let status = poller.status();
/// assert!(status.to_string().starts_with("vms: failing for "));
/// assert_eq!((status.synced, status.last_error.as_deref()), (false, Some("no route to host")));
/// # Ok::<_, homeostat::StartError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceStatus {
    /// The name of the source.
    pub name: String,
    /// Whether the first listing is complete. For a source of a controller, whether its keys have been enqueued too.
    pub synced: bool,
    /// The number of listings that have begun.
    pub listings: u64,
    /// The number of failures: of listings, and of the streams that follow them.
    pub failures: u64,
    /// The number of failures since the last success.
    pub failures_in_a_row: u32,
    /// The time since the first of these failures; `None` if the source works.
    pub failing_for: Option<Duration>,
    /// The text of the last error or panic, with its sources, at most 1 KiB. Kept after the next success.
    pub last_error: Option<String>,
    /// The time since the last success; `None` before the first.
    pub last_success: Option<Duration>,
    /// The time until the next planned listing; `None` if none is planned, or if it is due.
    pub next_listing: Option<Duration>,
    /// The period of a poller; `None` for a watch.
    pub period: Option<Duration>,
    /// The time since the current listing began; `None` while none is running.
    pub listing_for: Option<Duration>,
    /// Whether the current listing has passed its deadline.
    pub overdue: bool,
    /// The number of listings that were still running 100 ms after their deadline.
    pub overruns: u64,
    /// The number of objects that do not match the type of the watch. The store keeps the last matching value of each.
    pub undecodable: usize,
    /// The text of the last error of such an object, at most 1 KiB. Kept until all objects match.
    pub undecodable_error: Option<String>,
}

impl SourceStatus {
    /// Returns why the source is unhealthy, without its name; `None` if it is healthy.
    pub(crate) fn fault(&self) -> Option<String> {
        let overdue = self.overdue.then(|| self.overdue_text());
        let failing = self.failing_for.map(|time| {
            let error = one_line(self.last_error.as_deref().unwrap_or_default());
            format!("failing for {} ({} in a row): {error}", Rounded(time), self.failures_in_a_row)
        });
        match (overdue, failing) {
            (Some(overdue), Some(failing)) => Some(format!("{overdue}; {failing}")),
            (overdue, failing) => overdue.or(failing),
        }
    }

    /// Returns the fault of a source that has been failing for longer than `bound`.
    pub(crate) fn failing_beyond(&self, bound: Duration) -> Option<String> {
        self.failing_for.filter(|time| *time > bound).and_then(|_| self.fault())
    }

    /// Formats the known fault of a source, for the end of a sentence about it.
    pub(crate) fn why(&self) -> String {
        self.fault().map_or_else(String::new, |fault| format!(" ({fault})"))
    }

    pub(crate) fn overdue_text(&self) -> String {
        format!("a listing has been running for {}, past its deadline", Rounded(self.listing_for.unwrap_or_default()))
    }
}

impl fmt::Display for SourceStatus {
    /// Formats the status as one line, with control characters escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.fault() {
            Some(fault) => fault,
            None if self.synced => "ok".to_owned(),
            None => "the first listing has not completed".to_owned(),
        };
        write!(f, "{}: {state}", OneLine(&self.name))?;
        if let Some(error) = &self.undecodable_error {
            write!(f, "; {} objects do not match their type: {}", self.undecodable, OneLine(error))?;
        }
        Ok(())
    }
}

/// The health of a source, recorded by its thread. [`SourceStatus`] shows it.
pub struct SourceState {
    name: String,
    /// The name of the controller, if the source belongs to one alone.
    controller: Option<String>,
    clock: Clock,
    record: Mutex<Record>,
    /// The poller that lists for this source, if it polls.
    pub(super) poller: OnceLock<Arc<dyn KeySource>>,
}

#[derive(Default)]
struct Record {
    /// Without the name, and without the fields that depend on the current time.
    status: SourceStatus,
    failing_since: Nanos,
    succeeded_at: Option<Nanos>,
    /// When the next listing begins.
    planned: Nanos,
    /// The start and the deadline of the running listing.
    listing: Option<(Nanos, Nanos)>,
    /// When a resumed stream counts as healthy, if it has neither succeeded nor failed since.
    healthy_at: Option<Nanos>,
}

/// A running listing of a source, which ends when this is dropped.
struct RunningListing<'a>(&'a SourceState);

impl Drop for RunningListing<'_> {
    fn drop(&mut self) {
        self.0.record.lock().listing = None;
    }
}

impl SourceState {
    pub(crate) fn new(name: &str, controller: Option<String>, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            controller,
            clock,
            record: Mutex::new(Record::default()),
            poller: OnceLock::new(),
        })
    }

    /// Returns the name of the source, as log lines show it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Records the beginning of a listing at the time `since`. It ends when the returned value is dropped. After
    /// `deadline`, the source counts as not live.
    #[must_use = "the listing ends when this is dropped"]
    pub fn begin(&self, since: Nanos, deadline: Nanos) -> impl Sized {
        let mut record = self.record.lock();
        record.status.listings += 1;
        record.listing = Some((since, deadline));
        RunningListing(self)
    }

    /// Returns the health of the source under another name.
    pub(super) fn status(&self, name: &str, synced: bool) -> SourceStatus {
        let now = self.clock.nanos();
        let record = self.record.lock();
        let mut status = SourceStatus { name: name.to_owned(), synced, ..record.status.clone() };
        if record.healthy_at.is_some_and(|time| time <= now) {
            status.failures_in_a_row = 0;
        }
        status.failing_for = (status.failures_in_a_row > 0).then(|| now.since(record.failing_since));
        status.last_success = record.succeeded_at.map(|time| now.since(time));
        status.next_listing = Some(record.planned).filter(|at| *at > now && *at < Nanos::NEVER).map(|at| at.since(now));
        status.listing_for = record.listing.map(|(since, _)| now.since(since));
        status.overdue = record.listing.is_some_and(|(_, deadline)| deadline <= now && deadline != Nanos::NEVER);
        status
    }

    /// Records when the next listing begins, and the period of a poller.
    pub fn plan(&self, next: Nanos, period: Option<Duration>) {
        let mut record = self.record.lock();
        (record.planned, record.status.period) = (next, period);
    }

    /// Records a success. Logs the end of a series of failures.
    pub fn succeeded(&self) {
        let (failures, time) = {
            let mut record = self.record.lock();
            (record.healthy_at, record.succeeded_at) = (None, Some(self.clock.nanos()));
            let failures = std::mem::take(&mut record.status.failures_in_a_row);
            (failures, self.clock.nanos().since(record.failing_since))
        };
        if failures > 0 {
            self.log(log::Level::Info, None, failures, |source| {
                format!("{source}: works again after {failures} failures in {}", Rounded(time))
            });
        }
    }

    /// Records an error. In a series of failures, the first, second, fourth and so on are logged as warnings, the
    /// others at debug.
    pub fn failed(&self, error: String) {
        self.note(log::Level::Warn, &bounded(error), "error");
    }

    /// Records a panic.
    pub fn panicked(&self, message: &str) {
        self.note(log::Level::Error, &bounded(message.to_owned()), "panic");
    }

    /// Records that a stream was resumed. Even without an event, it counts as healthy if it does not fail for `time`.
    pub fn resumed(&self, time: Duration) {
        self.record.lock().healthy_at = Some(self.clock.nanos().after(time));
    }

    /// Returns whether a [resumed](Self::resumed) stream counts as healthy by now, and records this as a success.
    pub fn recovered(&self) -> bool {
        let has_recovered = self.record.lock().healthy_at.is_some_and(|time| time <= self.clock.nanos());
        if has_recovered {
            self.succeeded();
        }
        has_recovered
    }

    /// Records the number of objects that do not match their type, and the error of a new one.
    pub fn undecodable(&self, count: usize, error: Option<String>) {
        let status = &mut self.record.lock().status;
        status.undecodable = count;
        let known = status.undecodable_error.take().filter(|_| count > 0);
        status.undecodable_error = error.map(bounded).or(known);
    }

    /// Records that the running listing continues after its deadline.
    pub(crate) fn overran(&self) {
        self.record.lock().status.overruns += 1;
        self.log(log::Level::Warn, None, 0, |name| format!("{name}: a poll has passed its deadline and still runs"));
    }

    /// Records a failure. `kind` is "error" or "panic".
    fn note(&self, level: log::Level, text: &str, kind: &'static str) {
        self.recovered();
        let cause = if kind == "panic" { format!("panic: {text}") } else { text.to_owned() };
        let failures = {
            let Record { status, failing_since, healthy_at, .. } = &mut *self.record.lock();
            if status.failures_in_a_row == 0 {
                *failing_since = self.clock.nanos();
            }
            *healthy_at = None;
            status.failures += 1;
            status.failures_in_a_row = status.failures_in_a_row.saturating_add(1);
            status.last_error = Some(cause.clone());
            status.failures_in_a_row
        };
        let level = if failures.is_power_of_two() { level } else { log::Level::Debug };
        let (text, cause) = (one_line(text), one_line(&cause));
        self.log(level, Some((kind, &text)), failures, |source| match failures {
            1 => format!("{source}: failed: {cause}"),
            _ => format!("{source}: failed {failures} times in a row: {cause}"),
        });
    }

    /// Logs with the names of the source and of its controller.
    fn log(
        &self,
        level: log::Level,
        cause: Option<(&'static str, &str)>,
        failures: u32,
        text: impl FnOnce(&str) -> String,
    ) {
        if !log::log_enabled!(level) {
            return;
        }
        let source = self.name.as_str();
        let text = match self.controller.as_deref() {
            Some(controller) => text(&format!("{}: {}", one_line(controller), one_line(source))),
            None => text(&one_line(source)),
        };
        let mut fields = vec![("source", log::kv::Value::from(source))];
        if failures > 0 {
            fields.push(("failures", failures.into()));
        }
        fields.extend(self.controller.as_deref().map(|controller| ("controller", controller.into())));
        fields.extend(cause.map(|(kind, text)| (kind, text.into())));
        let fields = fields.as_slice();
        let (target, module) = (module_path!(), Some(module_path!()));
        let mut record = log::Record::builder();
        let record = record.level(level).target(target).module_path_static(module).file_static(Some(file!()));
        let record = record.line(Some(line!())).key_values(&fields);
        log::logger().log(&record.args(format_args!("{text}")).build());
    }
}

impl fmt::Debug for SourceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status(&self.name, false);
        f.debug_struct("SourceState").field("status", &status).finish_non_exhaustive()
    }
}

/// A controller's view of a source of keys: the state of a poller, or a subscription.
pub(crate) trait KeySource: Send + Sync {
    /// Returns the numbers of accepted and enqueued changes.
    fn progress(&self) -> &SourceProgress;

    /// Returns whether the caller is in the source's listing or mapping.
    fn is_current(&self) -> bool;

    /// Stops the source, and with `abort` cancels its listing. Drops user code, so call it without a lock.
    fn end(&self, abort: bool);

    /// Returns the number of buffered entries. A poller has no buffer.
    fn buffered(&self) -> usize {
        0
    }

    /// Enqueues all keys by `method`. A poller does nothing. Runs user code, so call it without a lock.
    fn resync(&self, _method: EnqueueMethod) {}

    /// Lists all keys now, if the source polls.
    fn trigger(&self) {}

    /// Sets the period. Returns false if the source has none.
    fn set_period(&self, _period: Duration) -> bool {
        false
    }
}

/// The numbers of changes that a source has accepted and enqueued.
#[derive(Default)]
pub(crate) struct SourceProgress {
    accepted: AtomicU64,
    enqueued: AtomicU64,
    callback: OnceLock<Progress>,
}

impl SourceProgress {
    /// Sets a callback, which runs each time keys have been enqueued, and at the end. Only the first call counts.
    pub(crate) fn on_change(&self, callback: Progress) {
        let _ = self.callback.set(callback);
    }

    /// Returns the number of changes that the source has accepted by now.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(SeqCst)
    }

    /// Returns whether the first `accepted` changes have been enqueued, or never will be.
    pub(crate) fn has_enqueued(&self, accepted: u64) -> bool {
        self.enqueued.load(SeqCst) >= accepted
    }

    /// Records an accepted change.
    pub(super) fn accept(&self) {
        self.accepted.fetch_add(1, SeqCst);
    }

    /// Records that the first `enqueued` changes have been enqueued, or never will be. Call it without a lock.
    pub(super) fn advance_to(&self, enqueued: u64) {
        if self.enqueued.fetch_max(enqueued, SeqCst) < enqueued
            && let Some(callback) = self.callback.get()
        {
            callback();
        }
    }
}
