//! The state of a source: the health that its thread records, and the poller that lists on demand.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::base::text::{bounded, one_line};
use crate::base::time::{Nanos, Rounded};
use crate::base::wait::Progress;
use crate::queue::EnqueueMethod;

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

/// The health of a source, recorded by its thread. [`SourceStatus`](super::SourceStatus) shows it.
pub struct SourceState {
    name: String,
    /// The name of the controller, if the source belongs to one alone.
    controller: Option<String>,
    pub(super) clock: Clock,
    pub(super) listings: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) record: Mutex<Record>,
    pub(super) overruns: AtomicU64,
    /// The poller that lists for this source, if it polls.
    pub(super) poller: OnceLock<Arc<dyn KeySource>>,
}

#[derive(Default)]
pub(super) struct Record {
    /// Failures since the last success.
    pub(super) failures: u32,
    pub(super) failing_since: Nanos,
    pub(super) last_error: Option<String>,
    pub(super) listing: Option<Listing>,
    /// When the stream was resumed, if it has neither succeeded nor failed since.
    pub(super) resumed: Option<Nanos>,
    /// The number of objects that do not match their type.
    pub(super) undecodable: usize,
    pub(super) undecodable_error: Option<String>,
}

/// A resumed stream that has not failed for this long counts as healthy.
const CALM: Duration = Duration::from_secs(5);

impl Record {
    pub(super) fn is_calm(&self, now: Nanos) -> bool {
        self.resumed.is_some_and(|since| since.after(CALM) <= now)
    }
}

/// A running listing.
#[derive(Clone, Copy)]
pub(super) struct Listing {
    pub(super) since: Nanos,
    pub(super) deadline: Nanos,
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

    /// Returns the name of the source, as log lines show it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether a poller lists for this source, on its own thread.
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
    pub fn succeeded(&self) {
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

    /// Records an error. In a series of failures, the first, second, fourth and so on are logged as warnings, the
    /// others at debug.
    pub fn failed(&self, error: String) {
        self.note(log::Level::Warn, &bounded(error), "error");
    }

    /// Records a panic.
    pub fn panicked(&self, message: &str) {
        self.note(log::Level::Error, &bounded(message.to_owned()), "panic");
    }

    /// Records that a stream was resumed. Even without an event, it counts as healthy if it does not fail soon.
    pub fn resumed(&self) {
        self.record.lock().resumed = Some(self.clock.nanos());
    }

    /// Records that a stream ended without an error and without an event since [`resumed`](Self::resumed).
    pub fn ended_without_event(&self) {
        if self.record.lock().is_calm(self.clock.nanos()) {
            self.succeeded();
        } else {
            self.failed(format!("the stream ended without an event in less than {}", Rounded(CALM)));
        }
    }

    /// Records the number of objects that do not match their type, and the error of a new one.
    pub fn undecodable(&self, count: usize, error: Option<String>) {
        let mut record = self.record.lock();
        record.undecodable = count;
        if count == 0 {
            record.undecodable_error = None;
        } else if let Some(error) = error {
            record.undecodable_error = Some(bounded(error));
        }
    }

    /// Records that the running listing continues after its deadline.
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

impl fmt::Debug for SourceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = self.record.lock();
        f.debug_struct("SourceState")
            .field("name", &self.name)
            .field("failures", &record.failures)
            .field("last_error", &record.last_error)
            .finish_non_exhaustive()
    }
}
