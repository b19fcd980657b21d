//! `/metrics`.

use std::collections::BTreeMap;
use std::time::Duration;

use homeostat::{Action, BoxError, Context, Controller, Manager, Poller, terminal};
use homeostat_host::FileElector;

use super::Site;
use super::exposition::{Family, Labels, read};
use crate::until::until;

/// Returns a manager with one controller that has run three keys, one of which failed. Calls `prepare` before the
/// start.
fn measured(
    name: &str,
    folder: &std::path::Path,
    prepare: impl FnOnce(&Manager),
) -> (Manager, homeostat::Running<Manager>) {
    let elector = FileElector::new(folder.join("lock")).name("box-3");
    let manager = Manager::builder().name(name).elector(elector).build().unwrap();
    prepare(&manager);
    let reconcile = |_cx: &Context, key: &String| -> Result<Action, BoxError> {
        if key == "bad" { Err(terminal("no").into()) } else { Ok(Action::await_change()) }
    };
    let hour = Duration::from_secs(3600);
    let poller = Poller::new(hour, |_cx: &Context| Ok::<_, BoxError>(Vec::new())).name("disks \"a\\b\"");
    let controller = Controller::builder(name, reconcile).poller(poller).build().unwrap();
    let handle = controller.handle();
    manager.add(controller).unwrap();
    let running = manager.start().unwrap();
    for key in ["one", "two", "bad"] {
        handle.enqueue(key.to_owned());
        handle.wait(&key.to_owned(), Duration::MAX).unwrap();
    }
    (manager, running)
}

fn value(family: &Family, suffix: &str, labels: &[(&str, &str)]) -> f64 {
    let labels: Labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let sample = family.samples.iter().find(|(known, of, _)| known == suffix && *of == labels);
    sample.unwrap_or_else(|| panic!("no sample {suffix} {labels:?} in {family:?}")).2
}

#[test]
fn the_text_has_what_usual_dashboards_read() {
    let folder = tempfile::tempdir().unwrap();
    let (manager, running) = measured("dashboards", folder.path(), |_| ());
    let answer = Site::of(&manager).get("/metrics");
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{}", answer.head);
    let families = read(&answer.body);
    let is = |family: &str, suffix: &str, labels: &[(&str, &str)], expected: f64| {
        let value = value(&families[family], suffix, labels);
        assert!((value - expected).abs() < 1e-9, "{family}{suffix} {labels:?}: {value}");
    };
    let both = [("name", "dashboards"), ("controller", "dashboards")];
    let controller = [("controller", "dashboards")];
    is("workqueue_adds_total", "", &both, 3.0);
    is("workqueue_depth", "", &[both[0], both[1], ("priority", "normal")], 0.0);
    is("workqueue_queue_duration_seconds", "_count", &both, 3.0);
    is("workqueue_queue_duration_seconds", "_bucket", &[both[0], both[1], ("le", "+Inf")], 3.0);
    is("controller_runtime_reconcile_total", "", &[controller[0], ("result", "success")], 2.0);
    is("controller_runtime_reconcile_total", "", &[controller[0], ("result", "error")], 1.0);
    is("controller_runtime_reconcile_time_seconds", "_count", &controller, 3.0);
    is("controller_runtime_active_workers", "", &controller, 0.0);
    is("controller_runtime_max_concurrent_reconciles", "", &controller, 1.0);
    is("leader_election_master_status", "", &[both[0]], 1.0);
    is("homeostat_leader", "", &[both[0], ("leader", "box-3")], 1.0);
    is("homeostat_source_synced", "", &[controller[0], ("source", "disks \"a\\b\"")], 1.0);
    #[cfg(target_os = "linux")]
    for name in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_start_time_seconds",
        "process_open_fds",
        "process_max_fds",
    ] {
        assert!(value(&families[name], "", &[]) >= 0.0, "{name}");
    }
    running.shutdown(Duration::from_secs(10)).unwrap();
}

#[test]
fn the_text_has_the_counts_of_the_server() {
    use std::sync::Arc;

    use homeostat_objects::{Kind, MemoryClient};
    use homeostat_serve::{ObjectApi, ServedResource, StatusPages, UserInfo};

    const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
    let things = ServedResource::new(Kind::namespaced("example.com", "v1", "Thing"));
    let api = ObjectApi::builder(Arc::new(MemoryClient::new())).serve(things).build().unwrap();
    let manager = Manager::builder().name("counted").build().unwrap();
    let site = Site::served(StatusPages::new(&manager).unwrap(), |builder| {
        builder.objects(&api).token("token", UserInfo::new("ada")).allow_anonymous()
    });
    for _ in 0..2 {
        assert_eq!(site.get_as("token", THINGS).status, 200);
    }
    assert_eq!(site.get_as("wrong", THINGS).status, 401);
    assert_eq!(site.get(&format!("{THINGS}/none")).status, 404);
    assert_eq!(site.request("DELETE", &format!("{THINGS}/none")).status, 404);
    assert_eq!(site.request("BREW", "/").status, 405);
    assert_eq!(site.get("/a//b").status, 400);
    // Connections of earlier requests may still be closing. Each look opens a further connection.
    let (mut looks, mut families) = (0.0, BTreeMap::new());
    until("all other connections are closed", || {
        (looks, families) = (looks + 1.0, read(&site.get("/metrics").body));
        value(&families["homeostat_server_connections"], "", &[]) <= 1.0
    });
    let is = |family: &str, labels: &[(&str, &str)], expected: f64| {
        let value = value(&families[family], "", labels);
        assert!((value - expected).abs() < 1e-9, "{family} {labels:?}: {value}");
    };
    for (verb, code, count) in [
        ("LIST", "200", 2.0),
        ("LIST", "401", 1.0),
        ("GET", "404", 1.0),
        ("DELETE", "404", 1.0),
        ("other", "405", 1.0),
        ("other", "400", 1.0),
    ] {
        is("apiserver_request_total", &[("verb", verb), ("code", code)], count);
    }
    is("authentication_attempts", &[("result", "success")], 2.0);
    is("authentication_attempts", &[("result", "failure")], 1.0);
    is("homeostat_server_accepted_connections_total", &[], 7.0 + looks);
    is("homeostat_server_connections", &[], 1.0);
    for limit in ["server", "client"] {
        is("homeostat_server_refused_connections_total", &[("limit", limit)], 0.0);
    }
    for name in [
        "apiserver_longrunning_requests",
        "apiserver_terminated_watchers_total",
        "apiserver_tls_handshake_errors_total",
        "homeostat_server_reply_bytes",
    ] {
        is(name, &[], 0.0);
    }
}

/// The `metrics` facade receives the same metrics: names, types and labels.
#[test]
fn the_names_types_and_labels_are_those_of_the_facade() {
    use std::collections::BTreeSet;

    use metrics_util::MetricKind;
    use metrics_util::debugging::DebuggingRecorder;

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let folder = tempfile::tempdir().unwrap();
    let (manager, running) = ::metrics::with_local_recorder(&recorder, || {
        let mut exporter = None;
        let prepare = |manager: &Manager| exporter = Some(homeostat::MetricsExporter::new(manager));
        let (manager, running) = measured("facade", folder.path(), prepare);
        exporter.unwrap().export();
        (manager, running)
    });
    let is_ours =
        |labels: &Labels| ["name", "controller"].iter().any(|name| labels.get(*name).is_some_and(|of| of == "facade"));

    let exported: BTreeSet<_> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, _)| {
            let labels: Labels =
                key.key().labels().map(|label| (label.key().to_owned(), label.value().to_owned())).collect();
            let kind = match key.kind() {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram => "histogram",
            };
            (key.key().name().to_owned(), kind.to_owned(), labels)
        })
        .filter(|(_, _, labels)| is_ours(labels))
        .collect();

    let text = Site::of(&manager).get("/metrics").body;
    let mut served = BTreeSet::new();
    for (name, family) in read(&text) {
        for (_, mut labels, _) in family.samples {
            labels.remove("le");
            // The health checks are those of the pages.
            if is_ours(&labels) && name != "kubernetes_healthcheck" {
                served.insert((name.clone(), family.of_type.clone(), labels));
            }
        }
    }
    assert!(served.len() > 25);
    assert_eq!(served, exported);
    running.shutdown(Duration::from_secs(10)).unwrap();
}
