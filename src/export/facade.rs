//! Export to the `metrics` facade.

use std::collections::BTreeSet;
use std::fmt;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use super::{Labels, MetricKind, MetricSink, MetricValue, of_controllers, of_manager};
use crate::base::sync::Mutex;
use crate::controller::{ControllerHandle, ControllerStatus, EndedRun};
use crate::manager::{Manager, WeakManager};
use crate::queue::Key;

/// Exports the counts of controllers and sources to the `metrics` facade. Feature `metrics`.
///
/// Create it before the controllers start. The durations of runs are recorded at the end of each run. Counters and
/// gauges are set by [`export`](Self::export): call it before the facade's recorder is read.
///
/// Most names come from client-go's work queue (`workqueue_…`, labels `name` and `controller`) and from
/// controller-runtime (`controller_runtime_…`, label `controller`). Other names begin with `homeostat_`. With an
/// elector there are also `leader_election_master_status` (1 if this process leads), `homeostat_leader` (1 for the
/// leader that its label names) and `homeostat_leader_since_seconds`, each with the manager's name as label `name`. The
/// [guide](crate::guide::observability) has a table of all.
///
/// The facade cannot remove a gauge. The gauges of controllers, sources and leaders that have gone since the last
/// export become zero, except `homeostat_source_synced`: it becomes 1, because no listing is missing.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Controller, Manager, MetricsExporter};
///
/// let manager = Manager::builder().build()?;
/// let exporter = MetricsExporter::new(&manager);
/// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// manager.add(Controller::builder("vm", reconcile).build()?)?;
/// exporter.export(); // in the handler of GET /metrics
/// # Ok::<_, homeostat::StartError>(())
/// ```
pub struct MetricsExporter {
    exported: Exported,
    /// The gauges of the last export.
    gauges: Mutex<BTreeSet<ExportedGauge>>,
}

enum Exported {
    Manager(WeakManager),
    Controller(Box<dyn Fn() -> ControllerStatus + Send + Sync>),
}

/// The name and the labels of a gauge.
type ExportedGauge = (&'static str, Vec<(&'static str, String)>);

impl MetricsExporter {
    /// Creates an exporter for a manager, which it does not keep alive. Records the durations of runs from now on, also
    /// of controllers that are added later. They use the recorder that is installed when the controller is added.
    #[must_use]
    pub fn new(manager: &Manager) -> Self {
        manager.observe_runs(record_times);
        Self::of(Exported::Manager(manager.downgrade()))
    }

    /// Creates an exporter for one controller that belongs to no manager.
    #[must_use]
    pub fn of_controller<K: Key + Sync + fmt::Debug>(controller: &ControllerHandle<K>) -> Self {
        controller.observe_runs(record_times(controller.name()));
        let controller = controller.clone();
        Self::of(Exported::Controller(Box::new(move || controller.status())))
    }

    fn of(exported: Exported) -> Self {
        Self { exported, gauges: Mutex::new(BTreeSet::new()) }
    }

    /// Sets the counters and gauges to their current values.
    pub fn export(&self) {
        let mut sink = FacadeSink::default();
        match &self.exported {
            Exported::Manager(manager) => {
                if let Some(manager) = manager.upgrade() {
                    of_manager(&mut sink, &manager.summary());
                }
            }
            Exported::Controller(status) => of_controllers(&mut sink, &[status()], &[]),
        }
        let before = std::mem::replace(&mut *self.gauges.lock(), sink.gauges.clone());
        for (name, labels) in before.difference(&sink.gauges) {
            gauge!(*name, labels).set(if *name == "homeostat_source_synced" { 1.0 } else { 0.0 });
        }
    }
}

impl fmt::Debug for MetricsExporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsExporter").field("gauges", &self.gauges.lock().len()).finish_non_exhaustive()
    }
}

/// Sets counters and gauges. Histograms are recorded at the end of each run instead.
#[derive(Default)]
struct FacadeSink {
    family: Option<(&'static str, MetricKind)>,
    gauges: BTreeSet<ExportedGauge>,
}

impl MetricSink for FacadeSink {
    fn family(&mut self, name: &'static str, kind: MetricKind, help: &'static str) {
        self.family = Some((name, kind));
        let unit = if name.ends_with("_seconds") { Unit::Seconds } else { Unit::Count };
        match kind {
            MetricKind::Counter => describe_counter!(name, unit, help),
            MetricKind::Gauge => describe_gauge!(name, unit, help),
            MetricKind::Histogram => describe_histogram!(name, unit, help),
        }
    }

    fn sample(&mut self, labels: Labels<'_>, value: MetricValue<'_>) {
        let Some((name, kind)) = self.family else { return };
        let labels: Vec<_> = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        #[expect(clippy::cast_precision_loss, reason = "a number of things")]
        let number = match value {
            MetricValue::Count(count) if kind == MetricKind::Counter => {
                counter!(name, &labels).absolute(count);
                return;
            }
            MetricValue::Count(count) => count as f64,
            MetricValue::Seconds(time) => time.as_secs_f64(),
            MetricValue::Times(_) => return,
        };
        gauge!(name, &labels).set(number);
        self.gauges.insert((name, labels));
    }
}

/// Returns an observer that records the durations of a controller's runs. It uses the currently installed recorder.
fn record_times(controller: &str) -> impl Fn(&EndedRun<'_>) + Send + Sync + use<> {
    let labels = ["name", "controller"].map(|label| (label, controller.to_owned()));
    let queue_duration = histogram!("workqueue_queue_duration_seconds", &labels);
    let work_duration = histogram!("workqueue_work_duration_seconds", &labels);
    let reconcile_time = histogram!("controller_runtime_reconcile_time_seconds", &labels[1..]);
    move |run| {
        queue_duration.record(run.queued_for);
        work_duration.record(run.took);
        reconcile_time.record(run.took);
    }
}
