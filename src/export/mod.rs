//! The metrics of controllers, sources and leadership: one table, from which all exports are made.
//!
//! [`of_manager`] passes all metrics of a manager to a [`MetricSink`], which writes them in one format. The feature
//! `metrics` has a sink for the `metrics` facade, `MetricsExporter`. The crate
//! [`homeostat-serve`](https://docs.rs/homeostat-serve) has a sink for the text format of Prometheus. Dashboards of
//! client-go and controller-runtime read the names and labels; the [guide](crate::guide::observability) lists them.
//!
//! # Examples
//!
//! Prints the samples of a manager's counters:
//!
//! ```
//! use homeostat::export::{Labels, MetricKind, MetricSink, MetricValue, of_manager};
//! use homeostat::{Action, BoxError, Context, Controller, Manager};
//!
//! #[derive(Default)]
//! struct Counters {
//!     family: &'static str,
//!     lines: Vec<String>,
//! }
//!
//! impl MetricSink for Counters {
//!     fn family(&mut self, name: &'static str, _kind: MetricKind, _help: &'static str) {
//!         self.family = name;
//!     }
//!
//!     fn sample(&mut self, labels: Labels<'_>, value: MetricValue<'_>) {
//!         if let MetricValue::Count(count) = value {
//!             self.lines.push(format!("{} {labels:?} {count}", self.family));
//!         }
//!     }
//! }
//!
//! let manager = Manager::builder().build()?;
//! let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
//! manager.add(Controller::builder("vm", reconcile).build()?)?;
//! let mut counters = Counters::default();
//! of_manager(&mut counters, &manager.status());
//! assert!(counters.lines.iter().any(|line| line.starts_with("workqueue_adds_total")));
//! # Ok::<_, homeostat::StartError>(())
//! ```

#[cfg(feature = "metrics")]
mod facade;

use std::time::{Duration, UNIX_EPOCH};

#[cfg(feature = "metrics")]
pub use self::facade::MetricsExporter;

use self::MetricKind::{Counter, Gauge};
use self::MetricValue::{Count, Seconds, Times};
use crate::controller::{ControllerMetrics, ControllerStatus};
use crate::manager::ManagerStatus;
use crate::run::Histogram;
use crate::watch::SourceStatus;

/// The kind of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows.
    Counter,
    /// A number that grows and shrinks.
    Gauge,
    /// How many durations fell into which range.
    Histogram,
}

/// The value of a sample.
#[derive(Clone, Copy, Debug)]
pub enum MetricValue<'a> {
    /// A number of things; a truth is 0 or 1.
    Count(u64),
    /// A duration. Exports write it in seconds.
    Seconds(Duration),
    /// The durations of runs or of waits.
    Times(&'a Histogram),
}

/// The labels of a sample, as names and values. The names are constants of this crate.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

/// Receives metrics: the head of each family, then its samples.
pub trait MetricSink {
    /// Begins a family. It is called once for each name.
    fn family(&mut self, name: &'static str, kind: MetricKind, help: &'static str);

    /// Adds a sample of the current family.
    fn sample(&mut self, labels: Labels<'_>, value: MetricValue<'_>);
}

/// A metric family with one sample for each `T`.
struct Family<T> {
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    value: fn(&T) -> MetricValue<'_>,
}

const fn family<T>(
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    value: fn(&T) -> MetricValue<'_>,
) -> Family<T> {
    Family { name, kind, help, value }
}

/// The families with the labels `name` and `controller`, as in controller-runtime.
static OF_QUEUES: [Family<ControllerMetrics>; 6] = [
    family("workqueue_adds_total", Counter, "Times a key became ready.", |all| Count(all.queue.adds)),
    family("workqueue_retries_total", Counter, "Failed runs that are tried again.", |all| Count(all.runs.retries)),
    family("workqueue_unfinished_work_seconds", Gauge, "Total time of the active runs so far.", |all| {
        Seconds(all.unfinished_work)
    }),
    family("workqueue_longest_running_processor_seconds", Gauge, "Time of the longest active run so far.", |all| {
        Seconds(all.longest_running)
    }),
    family(
        "workqueue_queue_duration_seconds",
        MetricKind::Histogram,
        "How long keys were ready before their runs.",
        |all| Times(&all.queue_time),
    ),
    family("workqueue_work_duration_seconds", MetricKind::Histogram, "How long runs took.", |all| {
        Times(&all.work_time)
    }),
];

/// The families with the label `controller`.
static OF_RUNS: [Family<ControllerMetrics>; 12] = [
    family("controller_runtime_reconcile_errors_total", Counter, "Runs that failed.", |all| Count(all.runs.errors())),
    family(
        "controller_runtime_terminal_reconcile_errors_total",
        Counter,
        "Runs that failed with a terminal error.",
        |all| Count(all.runs.terminal_errors),
    ),
    family("controller_runtime_reconcile_panics_total", Counter, "Runs that panicked.", |all| Count(all.runs.panics)),
    family("controller_runtime_reconcile_timeouts_total", Counter, "Runs that ended after their deadline.", |all| {
        Count(all.runs.timeouts)
    }),
    family(
        "homeostat_reconcile_overruns_total",
        Counter,
        "Runs that were still active 100 ms after their deadline.",
        |all| Count(all.runs.overruns),
    ),
    family("controller_runtime_max_concurrent_reconciles", Gauge, "The largest number of active runs.", |all| {
        Count(all.max_concurrent_reconciles as u64)
    }),
    family("controller_runtime_active_workers", Gauge, "Active runs.", |all| Count(all.runs.active as u64)),
    family("homeostat_failing_keys", Gauge, "Keys whose last run failed and is tried again.", |all| {
        Count(all.failing as u64)
    }),
    family("homeostat_parked_keys", Gauge, "Keys whose last run failed and is not tried again.", |all| {
        Count(all.parked as u64)
    }),
    family("homeostat_suspended_keys", Gauge, "Keys that are suspended one by one.", |all| Count(all.suspended as u64)),
    family("homeostat_overdue_runs", Gauge, "Active runs past their deadline.", |all| Count(all.overdue as u64)),
    family("controller_runtime_reconcile_time_seconds", MetricKind::Histogram, "How long runs took.", |all| {
        Times(&all.work_time)
    }),
];

/// The families with the labels `controller` and `source`.
static OF_SOURCES: [Family<SourceStatus>; 6] = [
    family("homeostat_source_listings_total", Counter, "Listings that have begun.", |all| Count(all.listings)),
    family("homeostat_source_failures_total", Counter, "Failures of a source.", |all| Count(all.failures)),
    family("homeostat_source_synced", Gauge, "Whether the first listing of a source has completed.", |all| {
        Count(all.synced.into())
    }),
    family("homeostat_source_failing_seconds", Gauge, "For how long a source has been failing.", |all| {
        Seconds(all.failing_for.unwrap_or_default())
    }),
    family("homeostat_source_undecodable", Gauge, "Objects that do not match their type.", |all| {
        Count(all.undecodable as u64)
    }),
    family("homeostat_source_overdue", Gauge, "Whether a listing has passed its deadline.", |all| {
        Count(all.overdue.into())
    }),
];

/// Passes the metrics of a manager to `sink`.
pub fn of_manager(sink: &mut impl MetricSink, manager: &ManagerStatus) {
    of_controllers(sink, &manager.controllers, &manager.sources);
    leadership(sink, manager);
}

/// Passes the metrics of controllers, and of sources that belong to none, to `sink`.
pub fn of_controllers(sink: &mut impl MetricSink, controllers: &[ControllerStatus], sources: &[SourceStatus]) {
    sink.family("workqueue_depth", Gauge, "Keys ready to run.");
    for ControllerStatus { name, metrics, .. } in controllers {
        let queue = &metrics.queue;
        for (priority, depth) in [("high", queue.high), ("normal", queue.normal), ("low", queue.low)] {
            sink.sample(&[("name", name), ("controller", name), ("priority", priority)], Count(depth as u64));
        }
    }
    each(
        sink,
        &OF_QUEUES,
        &controllers.iter().map(|of| ([("name", &*of.name), ("controller", &of.name)], &of.metrics)),
    );
    sink.family("controller_runtime_reconcile_total", Counter, "Runs by result.");
    for ControllerStatus { name, metrics, .. } in controllers {
        let runs = &metrics.runs;
        let results = [("success", runs.successes), ("requeue_after", runs.requeues), ("error", runs.errors())];
        for (result, count) in results {
            sink.sample(&[("controller", name), ("result", result)], Count(count));
        }
    }
    each(sink, &OF_RUNS, &controllers.iter().map(|of| ([("controller", &*of.name)], &of.metrics)));
    sink.family("homeostat_suspended", Gauge, "Whether all keys of a controller are suspended.");
    for ControllerStatus { name, suspended_since, .. } in controllers {
        sink.sample(&[("controller", name)], Count(suspended_since.is_some().into()));
    }
    // The label `controller` is empty if the source does not belong to exactly one controller.
    let owned = controllers.iter().flat_map(|of| of.sources.iter().map(|source| (of.name.as_str(), source)));
    let sources = owned.chain(sources.iter().map(|source| ("", source)));
    each(sink, &OF_SOURCES, &sources.map(|(of, source)| ([("controller", of), ("source", &*source.name)], source)));
}

/// Passes families to `sink`, each with one sample for each item.
fn each<'a, T: 'a, const N: usize>(
    sink: &mut impl MetricSink,
    families: &[Family<T>],
    items: &(impl Iterator<Item = ([(&'static str, &'a str); N], &'a T)> + Clone),
) {
    for Family { name, kind, help, value } in families {
        sink.family(name, *kind, help);
        for (labels, item) in items.clone() {
            sink.sample(&labels, value(item));
        }
    }
}

/// Passes the leadership to `sink`, if there is an elector.
fn leadership(sink: &mut impl MetricSink, manager: &ManagerStatus) {
    if !manager.elected {
        return;
    }
    let name = manager.name.as_str();
    sink.family("leader_election_master_status", Gauge, "Whether this process leads.");
    sink.sample(&[("name", name)], Count(manager.leading.into()));
    let leader = manager.leader.as_ref();
    if let Some(leader) = leader.and_then(|leader| leader.name.as_deref()) {
        sink.family("homeostat_leader", Gauge, "The leader, by its name.");
        sink.sample(&[("name", name), ("leader", leader)], Count(1));
    }
    let since = leader.and_then(|leader| leader.since).and_then(|since| since.duration_since(UNIX_EPOCH).ok());
    let help = "When the leader began to lead, in seconds since 1970.";
    sink.family("homeostat_leader_since_seconds", Gauge, help);
    sink.sample(&[("name", name)], Seconds(since.unwrap_or_default()));
}
