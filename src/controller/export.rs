//! Export of a controller's metrics to the `metrics` facade, with the names that client-go and controller-runtime
//! dashboards read.

use std::time::Duration;

use metrics::{Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use super::status::ControllerMetrics;
use crate::watch::source::SourceStatus;

/// The histograms that record each run.
pub(super) struct RunTimings {
    queue_duration: Histogram,
    work_duration: Histogram,
    reconcile_time: Histogram,
}

impl RunTimings {
    /// Uses the currently installed recorder.
    pub(super) fn new(controller: &str) -> Self {
        describe();
        let labels = queue_labels(controller);
        Self {
            queue_duration: histogram!("workqueue_queue_duration_seconds", &labels),
            work_duration: histogram!("workqueue_work_duration_seconds", &labels),
            reconcile_time: histogram!("controller_runtime_reconcile_time_seconds", "controller" => controller.to_owned()),
        }
    }

    pub(super) fn record(&self, queued: Duration, worked: Duration) {
        self.queue_duration.record(queued);
        self.work_duration.record(worked);
        self.reconcile_time.record(worked);
    }
}

/// Returns the labels of a controller's queue, as in controller-runtime.
fn queue_labels(controller: &str) -> [(&'static str, String); 2] {
    ["name", "controller"].map(|label| (label, controller.to_owned()))
}

/// Sets the counters and gauges to their current values.
pub(super) fn export(name: &str, metrics: &ControllerMetrics, sources: &[SourceStatus]) {
    let ControllerMetrics { runs, queue, unfinished_work, longest_running, max_concurrent_reconciles, .. } = *metrics;
    let labels = queue_labels(name);
    let name = name.to_owned();
    for (priority, depth) in [("high", queue.high), ("normal", queue.normal), ("low", queue.low)] {
        let [queue, controller] = queue_labels(&name);
        gauge!("workqueue_depth", &[queue, controller, ("priority", priority.to_owned())]).set(float(depth));
    }
    counter!("workqueue_adds_total", &labels).absolute(queue.adds);
    counter!("workqueue_retries_total", &labels).absolute(runs.retries);
    gauge!("workqueue_unfinished_work_seconds", &labels).set(unfinished_work);
    gauge!("workqueue_longest_running_processor_seconds", &labels).set(longest_running);
    for (result, count) in [("success", runs.successes), ("requeue_after", runs.requeues), ("error", runs.errors())] {
        counter!("controller_runtime_reconcile_total", "controller" => name.clone(), "result" => result)
            .absolute(count);
    }
    let total = |metric: &'static str, count: u64| counter!(metric, "controller" => name.clone()).absolute(count);
    total("controller_runtime_reconcile_errors_total", runs.errors());
    total("controller_runtime_terminal_reconcile_errors_total", runs.terminal_errors);
    total("controller_runtime_reconcile_panics_total", runs.panics);
    total("controller_runtime_reconcile_timeouts_total", runs.timeouts);
    total("homeostat_reconcile_overruns_total", runs.overruns);
    let now = |metric: &'static str, value: usize| gauge!(metric, "controller" => name.clone()).set(float(value));
    now("controller_runtime_max_concurrent_reconciles", max_concurrent_reconciles);
    now("controller_runtime_active_workers", runs.active);
    for source in sources {
        source.export(&name);
    }
}

/// Sets the gauges of a controller that was removed to zero.
pub(crate) fn export_removed(name: &str) {
    for priority in ["high", "normal", "low"] {
        let [queue, controller] = queue_labels(name);
        gauge!("workqueue_depth", &[queue, controller, ("priority", priority.to_owned())]).set(0.0);
    }
    let labels = queue_labels(name);
    gauge!("workqueue_unfinished_work_seconds", &labels).set(0.0);
    gauge!("workqueue_longest_running_processor_seconds", &labels).set(0.0);
    for metric in ["controller_runtime_max_concurrent_reconciles", "controller_runtime_active_workers"] {
        gauge!(metric, "controller" => name.to_owned()).set(0.0);
    }
}

fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn describe() {
    describe_gauge!("workqueue_depth", Unit::Count, "Keys ready to run");
    describe_counter!("workqueue_adds_total", Unit::Count, "Times a key became ready");
    describe_counter!("workqueue_retries_total", Unit::Count, "Failed runs that are tried again");
    describe_histogram!(
        "workqueue_queue_duration_seconds",
        Unit::Seconds,
        "How long keys were ready before their runs"
    );
    describe_histogram!("workqueue_work_duration_seconds", Unit::Seconds, "How long runs took");
    describe_gauge!("workqueue_unfinished_work_seconds", Unit::Seconds, "Total time of the active runs so far");
    describe_gauge!(
        "workqueue_longest_running_processor_seconds",
        Unit::Seconds,
        "Time of the longest active run so far"
    );
    describe_counter!("controller_runtime_reconcile_total", Unit::Count, "Runs by result");
    describe_counter!("controller_runtime_reconcile_errors_total", Unit::Count, "Runs that failed");
    describe_counter!(
        "controller_runtime_terminal_reconcile_errors_total",
        Unit::Count,
        "Runs that failed permanently"
    );
    describe_counter!("controller_runtime_reconcile_panics_total", Unit::Count, "Runs that panicked");
    describe_counter!(
        "controller_runtime_reconcile_timeouts_total",
        Unit::Count,
        "Runs that ended after their deadline"
    );
    describe_counter!(
        "homeostat_reconcile_overruns_total",
        Unit::Count,
        "Runs that were still active 100 ms after their deadline"
    );
    describe_histogram!("controller_runtime_reconcile_time_seconds", Unit::Seconds, "How long runs took");
    describe_gauge!("controller_runtime_max_concurrent_reconciles", Unit::Count, "The largest number of active runs");
    describe_gauge!("controller_runtime_active_workers", Unit::Count, "Active runs");
}
