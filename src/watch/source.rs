//! The health of a source: a poller or a watch.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::source_state::SourceState;
use crate::base::error::StartError;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::text::{OneLine, one_line};
use crate::base::time::{Nanos, Rounded};
use crate::base::wait::Latch;

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
            None => "the first listing has not completed".to_owned(),
        };
        write!(f, "{}: {state}", OneLine(&self.name))?;
        if let Some(error) = &self.undecodable_error {
            write!(f, "; {} objects do not match their type: {}", self.undecodable, OneLine(error))?;
        }
        Ok(())
    }
}

/// A handle to check the health of a source, to trigger a listing and to change the period. Cheap to clone. It neither
/// keeps the source running nor stops it, and stays valid after the source has been given to a
/// [`Manager`](crate::Manager) or has ended.
///
/// The handle of a running [`Poller`](crate::Poller) derefs to it. [`Watch::source`](crate::Watch::source),
/// [`ControllerHandle::sources`](crate::ControllerHandle::sources) and [`Manager::source`](crate::Manager::source)
/// return it too.
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
    /// Set once the first listing is complete.
    synced: Arc<Latch>,
    pub(super) state: Arc<SourceState>,
}

impl SourceHandle {
    pub(crate) fn new(state: &Arc<SourceState>, synced: &Arc<Latch>) -> Self {
        Self { name: state.name().into(), synced: Arc::clone(synced), state: Arc::clone(state) }
    }

    /// Returns a handle of the same source with another name.
    pub(crate) fn named(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Returns a handle of the same source that counts as synced once `synced` is set.
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

    /// Starts a listing now, independent of the schedule. Any number of calls during a listing cause one more. Returns
    /// whether the source can list on demand: pollers and watches of listings and directories can. A source that has
    /// ended ignores the call.
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
    /// poller.shutdown(Duration::from_secs(1))?;
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    #[expect(clippy::must_use_candidate, reason = "it is called for what it does")]
    pub fn trigger(&self) -> bool {
        self.state.poller.get().inspect(|poller| poller.trigger()).is_some()
    }

    /// Sets the period. The next poll begins one `period` after this call. A poll that is already due is not postponed,
    /// and a running poll keeps its deadline. Returns at once; does nothing once the source has ended.
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
    /// poller.shutdown(Duration::ZERO)?;
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn set_period(&self, period: Duration) -> Result<(), StartError> {
        StartError::check_time("period", period)?;
        let poller = self.state.poller.get();
        let poller = poller.ok_or_else(|| StartError::named("source", &self.name, "has no period"))?;
        poller.set_period(period);
        Ok(())
    }
}

impl fmt::Debug for SourceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceHandle").field("status", &self.status()).finish_non_exhaustive()
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
