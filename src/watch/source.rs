//! The health of a source: a poller or a watch.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::base::text::{OneLine, bounded, one_line};
use crate::base::time::{Nanos, Rounded};
use crate::base::wait::{Latch, Progress};

/// The health of a source: a poller, or a watch of a listing, of a directory or of objects.
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// How long the current listing has been running.
    pub listing_for: Option<Duration>,
    /// Whether the current listing has passed its deadline.
    pub overdue: bool,
    /// The number of listings that were still running 100 ms after their deadline.
    pub overruns: u64,
    /// The number of objects that do not match the type of the watch. Each keeps the last value that did, if any.
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

    pub(crate) fn overdue_text(&self) -> String {
        let time = self.listing_for.unwrap_or_default();
        format!("a listing has been running for {}, past its deadline", Rounded(time))
    }
}

impl fmt::Display for SourceStatus {
    /// Formats the status as one line, with control characters escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.fault() {
            Some(fault) => fault,
            None if self.synced => "ok".to_owned(),
            None => "the first listing is not in".to_owned(),
        };
        write!(f, "{}: {state}", OneLine(&self.name))?;
        if let Some(error) = &self.undecodable_error {
            write!(f, "; {} objects do not match their type: {}", self.undecodable, OneLine(error))?;
        }
        Ok(())
    }
}

/// A handle to check the health of a source, to trigger a listing and to change the period. Cheap to clone. It neither keeps the
/// source running nor stops it, and stays valid after the source has been given to a [`Manager`](crate::Manager) or has ended.
///
/// The handle of a running [`Poller`](crate::Poller) derefs to it. [`Watch::source`](crate::Watch::source),
/// [`ControllerHandle::sources`](crate::ControllerHandle::sources) and [`Manager::source`](crate::Manager::source) return it too.
///
/// # Examples
///
/// ```
/// use homeostat::{Context, Manager, Poller};
/// use std::time::Duration;
///
/// let list = |_cx: &Context| Ok::<_, std::io::Error>([("disk-1", 10)]);
/// let disks = Poller::new(Duration::from_secs(3600), list).name("disks").watch()?;
/// let source = disks.source();
/// let manager = Manager::builder().build()?;
/// manager.add(disks)?;
/// assert!(source.trigger());
/// assert_eq!(manager.source("disks")?.status().failures, 0);
/// # Ok::<_, homeostat::StartError>(())
/// ```
#[derive(Clone)]
pub struct SourceHandle {
    name: Arc<str>,
    /// Opens once the first listing is complete.
    synced: Arc<Latch>,
    pub(super) state: Arc<SourceState>,
}

impl SourceHandle {
    pub(crate) fn new(state: &Arc<SourceState>, synced: &Arc<Latch>) -> Self {
        Self { name: state.name.as_str().into(), synced: Arc::clone(synced), state: Arc::clone(state) }
    }

    /// Returns a handle of the same source with another name.
    pub(crate) fn named(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Returns a handle of the same source that counts as synced once `synced` is open.
    pub(crate) fn synced_by(self, synced: &Arc<Latch>) -> Self {
        Self { synced: Arc::clone(synced), ..self }
    }

    pub(crate) fn synced(&self) -> &Arc<Latch> {
        &self.synced
    }

    /// Returns the name of the source.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the current health.
    #[must_use]
    pub fn status(&self) -> SourceStatus {
        let state = &*self.state;
        let now = state.clock.nanos();
        let record = state.record.lock();
        let failures = if record.is_calm(now) { 0 } else { record.failures };
        SourceStatus {
            name: self.name.to_string(),
            synced: self.synced.is_open(),
            listings: state.listings.load(SeqCst),
            failures: state.failures.load(SeqCst),
            failures_in_a_row: failures,
            failing_for: (failures > 0).then(|| now.since(record.failing_since)),
            last_error: record.last_error.clone(),
            listing_for: record.listing.map(|listing| now.since(listing.since)),
            overdue: record.listing.is_some_and(|listing| listing.deadline <= now && listing.deadline != Nanos::NEVER),
            overruns: state.overruns.load(SeqCst),
            undecodable: record.undecodable,
            undecodable_error: record.undecodable_error.clone(),
        }
    }

    /// Starts a listing now, independent of the schedule. Any number of calls during a listing cause one more. Returns whether
    /// the source can list on demand: pollers and watches of listings and directories can. A source that has ended ignores the
    /// call.
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
    #[expect(clippy::must_use_candidate, reason = "it is called for what it does")]
    pub fn trigger(&self) -> bool {
        self.state.poller.get().inspect(|poller| poller.trigger()).is_some()
    }

    /// Sets the period. The next poll begins one `period` after this call. A poll that is already due is not postponed, and a
    /// running poll keeps its deadline. Returns at once; does nothing once the source has ended.
    ///
    /// # Errors
    ///
    /// If the period is zero, or if the source does not poll. The old period stays in force.
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
        let poller = self.state.poller.get();
        let poller = poller.ok_or_else(|| StartError::named("source", &self.name, "has no period"))?;
        poller.set_period(period);
        Ok(())
    }
}

pub(crate) fn check_period(period: Duration) -> Result<(), StartError> {
    if period.is_zero() {
        return Err(StartError::setting("period", &period, "longer than zero"));
    }
    Ok(())
}

/// A source of keys, as its controller sees it: the state of a poller, or a subscription.
pub(crate) trait KeySource: Send + Sync {
    /// Sets a callback for each time that keys have been enqueued, and for the end. The first call counts.
    fn on_progress(&self, progress: Progress);

    /// Returns the number of changes that the source has accepted by now. It may wrap.
    fn accepted(&self) -> usize;

    /// Returns whether this number of accepted changes has been enqueued, or never will be.
    fn has_enqueued(&self, accepted: usize) -> bool;

    /// Returns the number of accepted changes that have not been enqueued.
    fn pending(&self) -> usize;

    /// Returns whether the caller is in the source's listing or mapping.
    fn is_current(&self) -> bool;

    /// Stops the source, and with `abort` cancels its listing. Drops user code, so call it without a lock.
    fn end(&self, abort: bool);

    /// Enqueues all keys, or with `moved_only` those that have moved to or from this process. A poller does nothing. Runs user
    /// code, so call it without a lock.
    fn resync(&self, _moved_only: bool) {}

    /// Lists all keys now, if the source polls.
    fn trigger(&self) {}

    /// Sets the period. Returns false if the source has none.
    fn set_period(&self, _period: Duration) -> bool {
        false
    }
}

impl fmt::Debug for SourceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceHandle").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// The health of a source, as its thread records it.
pub(crate) struct SourceState {
    name: String,
    /// The name of the controller, if the source belongs to one alone.
    controller: Option<String>,
    clock: Clock,
    listings: AtomicU64,
    failures: AtomicU64,
    record: Mutex<Record>,
    overruns: AtomicU64,
    /// Lists for this source, if it polls.
    poller: OnceLock<Arc<dyn KeySource>>,
}

#[derive(Default)]
struct Record {
    /// Failures since the last success.
    failures: u32,
    failing_since: Nanos,
    last_error: Option<String>,
    listing: Option<Listing>,
    /// When the stream was resumed, if it has neither succeeded nor failed since.
    resumed: Option<Nanos>,
    /// The number of objects that do not match their type.
    undecodable: usize,
    undecodable_error: Option<String>,
}

/// A resumed stream that has not failed for this long counts as healthy.
const CALM: Duration = Duration::from_secs(5);

impl Record {
    fn is_calm(&self, now: Nanos) -> bool {
        self.resumed.is_some_and(|since| since.after(CALM) <= now)
    }
}

/// A running listing.
#[derive(Clone, Copy)]
struct Listing {
    since: Nanos,
    deadline: Nanos,
}

/// A running listing, which ends when this is dropped.
pub(crate) struct Listed<'a>(&'a SourceState);

impl Drop for Listed<'_> {
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
            listings: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            record: Mutex::new(Record::default()),
            overruns: AtomicU64::new(0),
            poller: OnceLock::new(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the source lists on a thread of its own.
    pub(crate) fn polls(&self) -> bool {
        self.poller.get().is_some()
    }

    /// Sets the poller that lists for this source.
    pub(super) fn set_poller(&self, poller: &Arc<dyn KeySource>) {
        let _ = self.poller.set(Arc::clone(poller));
    }

    /// Records the beginning of a listing.
    pub(crate) fn begin(&self, since: Nanos, deadline: Nanos) -> Listed<'_> {
        let mut record = self.record.lock();
        self.listings.fetch_add(1, SeqCst);
        record.listing = Some(Listing { since, deadline });
        Listed(self)
    }

    /// Records a success. Logs the end of a series of failures.
    pub(crate) fn succeeded(&self) {
        let (failures, time) = {
            let mut record = self.record.lock();
            record.resumed = None;
            let failures = std::mem::take(&mut record.failures);
            (failures, self.clock.nanos().since(record.failing_since))
        };
        if failures > 0 {
            self.log(log::Level::Info, None, failures, |source| {
                format!("{source}: works again after {failures} failures in {}", Rounded(time))
            });
        }
    }

    /// Records an error. In a series of failures, the first, second, fourth and so on are logged as warnings, the others at
    /// debug.
    pub(crate) fn failed(&self, error: String) {
        self.note(log::Level::Warn, &bounded(error), "error");
    }

    /// Records a panic.
    pub(crate) fn panicked(&self, message: &str) {
        self.note(log::Level::Error, &bounded(message.to_owned()), "panic");
    }

    /// Records that a stream was resumed, which may be quiet: it counts as healthy if it does not fail soon.
    #[cfg(feature = "objects")]
    pub(crate) fn resumed(&self) {
        self.record.lock().resumed = Some(self.clock.nanos());
    }

    /// Records that a stream ended without an error and without an event since [`resumed`](Self::resumed).
    #[cfg(feature = "objects")]
    pub(crate) fn ended_without_event(&self) {
        if self.record.lock().is_calm(self.clock.nanos()) {
            self.succeeded();
        } else {
            self.failed(format!("the stream ended without an event in less than {}", Rounded(CALM)));
        }
    }

    /// Records the number of objects that do not match their type, and the error of a new one.
    #[cfg(feature = "objects")]
    pub(crate) fn undecodable(&self, count: usize, error: Option<String>) {
        let mut record = self.record.lock();
        record.undecodable = count;
        if count == 0 {
            record.undecodable_error = None;
        } else if let Some(error) = error {
            record.undecodable_error = Some(bounded(error));
        }
    }

    /// Records that the running listing goes on after its deadline.
    pub(crate) fn overran(&self) {
        self.overruns.fetch_add(1, SeqCst);
        self.log(log::Level::Warn, None, 0, |source| {
            format!("{source}: a poll has passed its deadline and still runs")
        });
    }

    /// Records a failure. `kind` is "error" or "panic".
    fn note(&self, level: log::Level, text: &str, kind: &'static str) {
        if self.record.lock().is_calm(self.clock.nanos()) {
            self.succeeded();
        }
        let cause = if kind == "panic" { format!("panic: {text}") } else { text.to_owned() };
        let failures = {
            let mut record = self.record.lock();
            self.failures.fetch_add(1, SeqCst);
            if record.failures == 0 {
                record.failing_since = self.clock.nanos();
            }
            record.resumed = None;
            record.failures = record.failures.saturating_add(1);
            record.last_error = Some(cause.clone());
            record.failures
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

#[cfg(feature = "metrics")]
impl SourceStatus {
    /// Exports the health to the `metrics` facade. The label `controller` is empty if the source belongs to no single
    /// controller.
    pub(crate) fn export(&self, controller: &str) {
        use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

        describe_counter!("homeostat_source_listings_total", Unit::Count, "Listings that have begun");
        describe_counter!("homeostat_source_failures_total", Unit::Count, "Failures of a source");
        describe_gauge!("homeostat_source_synced", Unit::Count, "Whether the first listing of a source has completed");
        describe_gauge!("homeostat_source_failing_seconds", Unit::Seconds, "For how long a source has been failing");
        describe_gauge!("homeostat_source_undecodable", Unit::Count, "Objects that do not match their type");
        describe_gauge!("homeostat_source_overdue", Unit::Count, "Whether a listing has passed its deadline");
        let labels = [("controller", controller.to_owned()), ("source", self.name.clone())];
        counter!("homeostat_source_listings_total", &labels).absolute(self.listings);
        counter!("homeostat_source_failures_total", &labels).absolute(self.failures);
        gauge!("homeostat_source_synced", &labels).set(f64::from(u8::from(self.synced)));
        gauge!("homeostat_source_failing_seconds", &labels).set(self.failing_for.unwrap_or_default());
        #[expect(clippy::cast_precision_loss, reason = "a count of objects")]
        gauge!("homeostat_source_undecodable", &labels).set(self.undecodable as f64);
        gauge!("homeostat_source_overdue", &labels).set(f64::from(u8::from(self.overdue)));
    }

    /// Exports that a source was removed: it has no fault, and no listing is missing.
    pub(crate) fn export_removed(controller: &str, source: &str) {
        use metrics::gauge;

        let labels = [("controller", controller.to_owned()), ("source", source.to_owned())];
        gauge!("homeostat_source_synced", &labels).set(1.0);
        for fault in ["homeostat_source_failing_seconds", "homeostat_source_undecodable", "homeostat_source_overdue"] {
            gauge!(fault, &labels).set(0.0);
        }
    }
}
