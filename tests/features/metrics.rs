//! Exported metrics, checked by value on a held clock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use homeostat::watch::{SourceHandle, SourceStatus};
use homeostat::{
    Action, BoxError, Component, Context, Controller, Exponential, Manager, ManualClock, MetricsExporter, Poller,
    WorkQueue, terminal,
};
use homeostat_test_support::until::until;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

const SECOND: Duration = Duration::from_secs(1);

/// Returns the recorded values by name and labels. The value of a histogram is its list of values.
fn read(recorder: &metrics_util::debugging::Snapshotter) -> BTreeMap<String, String> {
    let metrics = recorder.snapshot().into_vec().into_iter();
    metrics
        .map(|(key, _, _, value)| {
            let labels: Vec<_> = key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            let value = match value {
                DebugValue::Counter(count) => count.to_string(),
                DebugValue::Gauge(value) => value.to_string(),
                DebugValue::Histogram(values) => format!("{values:?}"),
            };
            (format!("{}{{{}}}", key.key().name(), labels.join(",")), value)
        })
        .collect()
}

/// Set once the slow run has begun.
static WAITS: AtomicBool = AtomicBool::new(false);

fn reconcile(cx: &Context, key: &&'static str) -> Result<Action, BoxError> {
    match *key {
        "slow" => {
            let token = cx.token();
            WAITS.store(true, SeqCst);
            token.wait();
        }
        "requeue" => return Ok(Action::requeue_after(3600 * SECOND)),
        "error" => return Err("no answer".into()),
        "terminal" => return Err(terminal("no such image").into()),
        "panic" => panic!("out of luck"),
        _ => {}
    }
    Ok(Action::await_change())
}

#[test]
fn metrics_of_sources_show_failures_and_hangs() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let clock = ManualClock::new();
    let manager = Manager::builder().clock(clock.clock()).threads(1).build().unwrap();
    let idle = |_: &Context, _: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    let (answer, answers) = crossbeam_channel::unbounded::<Result<[&str; 1], &str>>();
    let list = move |_: &Context| answers.recv().unwrap_or(Err("the test is over"));
    let poller = Poller::new(SECOND, list).name("inventory");
    manager.add(Controller::builder("vm", idle).clock(clock.clock()).poller(poller).build().unwrap()).unwrap();
    let queue = WorkQueue::builder().clock(clock.clock()).build();
    let own = Poller::new(3600 * SECOND, |_: &Context| Ok::<_, BoxError>(["vm-1"])).clock(clock.clock());
    manager.add(Component::poller("own", own, &queue)).unwrap();
    metrics::with_local_recorder(&recorder, || {
        let exporter = MetricsExporter::new(&manager);
        let running = manager.start().unwrap();
        let source = manager.controller::<&str>("vm").unwrap().sources().remove(0);
        let until_listed = |source: &SourceHandle, listings: u64, under_way: bool| {
            let is_so = |status: SourceStatus| status.listings == listings && status.listing_for.is_some() == under_way;
            until("the source has listed", || is_so(source.status()));
        };
        let see = |expected: [&str; 5], labels: &str| {
            exporter.export();
            let seen = read(&snapshots);
            let names = ["listings_total", "failures_total", "synced", "failing_seconds", "overdue"];
            let values = names.map(|name| seen[&format!("homeostat_source_{name}{{{labels}}}")].clone());
            assert_eq!(values, expected);
        };
        answer.send(Err("no answer")).unwrap();
        until_listed(&source, 1, false);
        until_listed(&manager.source("own").unwrap(), 1, false);
        see(["1", "1", "0", "0", "0"], "controller=vm,source=inventory");
        see(["1", "0", "1", "0", "0"], "controller=,source=own");
        clock.advance(SECOND);
        until_listed(&source, 2, true);
        clock.advance(2 * SECOND);
        see(["2", "1", "0", "3", "1"], "controller=vm,source=inventory");
        answer.send(Ok(["vm-1"])).unwrap();
        drop(answer);
        until_listed(&source, 3, false);
        see(["3", "2", "1", "0", "0"], "controller=vm,source=inventory");
        manager.stop();
        running.join().unwrap();
    });
}

/// Each value is read only after the export that follows the removal, because this recorder forgets the values that it
/// returns.
#[test]
fn gauges_of_removed_controllers_and_sources_show_no_fault() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let clock = ManualClock::new();
    let manager = Manager::builder().clock(clock.clock()).threads(1).build().unwrap();
    let idle = |_: &Context, _: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    let broken = |name: &str| {
        let list = |_: &Context| Err::<[&str; 1], _>("no answer");
        Poller::new(3600 * SECOND, list).name(name).clock(clock.clock())
    };
    let vms = Controller::builder("vm", idle).clock(clock.clock()).poller(broken("inventory"));
    manager.add(vms.poller(broken("images")).build().unwrap()).unwrap();
    let queue = WorkQueue::builder().clock(clock.clock()).build();
    manager.add(Component::poller("own", broken("own"), &queue)).unwrap();
    metrics::with_local_recorder(&recorder, || {
        let exporter = MetricsExporter::new(&manager);
        let running = manager.start().unwrap();
        let vms = manager.controller::<&str>("vm").unwrap();
        for source in vms.sources().into_iter().chain([manager.source("own").unwrap()]) {
            until("the source has failed", || source.status().failures > 0);
        }
        // It does not run before the first listings have completed.
        vms.enqueue("vm-1");
        clock.advance(3 * SECOND);
        let seen = || {
            exporter.export();
            let seen = read(&snapshots);
            // Sets the gauges once more.
            exporter.export();
            let names = [
                "homeostat_source_failing_seconds{controller=vm,source=inventory}",
                "homeostat_source_synced{controller=vm,source=inventory}",
                "homeostat_source_failing_seconds{controller=vm,source=images}",
                "homeostat_source_failing_seconds{controller=,source=own}",
                "workqueue_depth{name=vm,controller=vm,priority=normal}",
                "controller_runtime_max_concurrent_reconciles{controller=vm}",
            ];
            names.map(|name| seen[name].clone())
        };
        assert_eq!(seen(), ["3", "0", "3", "3", "1", "1"]);
        assert!(vms.remove_source("inventory", 60 * SECOND).unwrap());
        assert_eq!(seen()[..4], ["0", "1", "3", "3"]);
        for component in ["vm", "own"] {
            manager.remove(component, 60 * SECOND).unwrap();
        }
        let last = seen();
        assert_eq!(last[0], "0");
        assert_eq!(last[2..], ["0"; 4]);
        manager.stop();
        running.join().unwrap();
    });
}

#[test]
fn every_metric_moves() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let clock = ManualClock::new();
    let manager = Manager::builder().clock(clock.clock()).threads(1).build().unwrap();
    let vms = Controller::builder("vm", reconcile)
        .clock(clock.clock())
        .reconcile_timeout(5 * SECOND)
        .retry(Exponential::new(3600 * SECOND, 3600 * SECOND))
        .build()
        .unwrap();
    let handle = vms.handle();
    manager.add(vms).unwrap();
    metrics::with_local_recorder(&recorder, || {
        let exporter = MetricsExporter::new(&manager);
        // Its drop stops everything, even when the test fails.
        let running = manager.start().unwrap();
        // Waits until `count` runs have ended.
        let ended = |count| {
            until("the runs have ended", || handle.metrics().runs.runs() >= count && handle.metrics().runs.active == 0);
        };
        for (before, key) in ["well", "requeue", "error", "terminal", "panic"].into_iter().enumerate() {
            handle.enqueue(key);
            ended(before as u64 + 1);
        }
        handle.enqueue("slow");
        until("the run waits", || WAITS.load(SeqCst));
        handle.enqueue("waiting");
        clock.advance(2 * SECOND);
        exporter.export();
        let seen = read(&snapshots);
        let all = [
            ("workqueue_depth{name=vm,controller=vm,priority=high}", "0"),
            ("workqueue_depth{name=vm,controller=vm,priority=normal}", "1"),
            ("workqueue_depth{name=vm,controller=vm,priority=low}", "0"),
            ("workqueue_adds_total{name=vm,controller=vm}", "7"),
            ("workqueue_retries_total{name=vm,controller=vm}", "2"),
            ("workqueue_unfinished_work_seconds{name=vm,controller=vm}", "2"),
            ("workqueue_longest_running_processor_seconds{name=vm,controller=vm}", "2"),
            ("workqueue_queue_duration_seconds{name=vm,controller=vm}", "[0.0, 0.0, 0.0, 0.0, 0.0]"),
            ("workqueue_work_duration_seconds{name=vm,controller=vm}", "[0.0, 0.0, 0.0, 0.0, 0.0]"),
            ("controller_runtime_reconcile_time_seconds{controller=vm}", "[0.0, 0.0, 0.0, 0.0, 0.0]"),
            ("controller_runtime_reconcile_total{controller=vm,result=success}", "1"),
            ("controller_runtime_reconcile_total{controller=vm,result=requeue_after}", "1"),
            ("controller_runtime_reconcile_total{controller=vm,result=error}", "3"),
            ("controller_runtime_reconcile_errors_total{controller=vm}", "3"),
            ("controller_runtime_terminal_reconcile_errors_total{controller=vm}", "1"),
            ("controller_runtime_reconcile_panics_total{controller=vm}", "1"),
            ("controller_runtime_reconcile_timeouts_total{controller=vm}", "0"),
            ("homeostat_failing_keys{controller=vm}", "2"),
            ("homeostat_parked_keys{controller=vm}", "1"),
            ("homeostat_suspended_keys{controller=vm}", "0"),
            ("homeostat_suspended{controller=vm}", "0"),
            ("homeostat_overdue_runs{controller=vm}", "0"),
            ("homeostat_reconcile_overruns_total{controller=vm}", "0"),
            ("controller_runtime_max_concurrent_reconciles{controller=vm}", "1"),
            ("controller_runtime_active_workers{controller=vm}", "1"),
        ];
        let expected: BTreeMap<_, _> = all.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(seen, expected);

        // The slow run ends at its deadline. The waiting key has waited for the same time.
        clock.advance(3 * SECOND);
        for key in ["slow", "waiting"] {
            handle.wait(&key, 60 * SECOND).unwrap();
        }
        handle.set_max_concurrent_reconciles(3).unwrap();
        exporter.export();
        let seen = read(&snapshots);
        let value = |name: &str| seen[name].as_str();
        assert_eq!(value("controller_runtime_reconcile_timeouts_total{controller=vm}"), "1");
        assert_eq!(value("homeostat_reconcile_overruns_total{controller=vm}"), "0");
        assert_eq!(value("controller_runtime_reconcile_total{controller=vm,result=success}"), "3");
        assert_eq!(value("controller_runtime_max_concurrent_reconciles{controller=vm}"), "3");
        assert_eq!(value("controller_runtime_active_workers{controller=vm}"), "0");
        assert_eq!(value("workqueue_depth{name=vm,controller=vm,priority=normal}"), "0");
        assert_eq!(value("workqueue_unfinished_work_seconds{name=vm,controller=vm}"), "0");
        assert_eq!(value("workqueue_longest_running_processor_seconds{name=vm,controller=vm}"), "0");
        // This recorder returns each value of a histogram once.
        assert_eq!(value("workqueue_queue_duration_seconds{name=vm,controller=vm}"), "[0.0, 5.0]");
        assert_eq!(value("workqueue_work_duration_seconds{name=vm,controller=vm}"), "[5.0, 0.0]");
        assert_eq!(value("controller_runtime_reconcile_time_seconds{controller=vm}"), "[5.0, 0.0]");
        manager.stop();
        running.join().unwrap();
    });
}
