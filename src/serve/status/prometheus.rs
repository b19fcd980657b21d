//! The metrics of a manager as text. Names and labels are the same as in the export to the `metrics` facade.

use std::time::{Duration, UNIX_EPOCH};

use super::exposition::{Exposition, FamilyType, Labels};
use super::process::ProcessFacts;
use crate::controller::{ControllerMetrics, ControllerStatus};
use crate::manager::{Holder, ManagerStatus};
use crate::run::Histogram;
use crate::serve::http::value;
use crate::serve::server::ServerVitals;
use crate::watch::SourceStatus;

pub(crate) use super::exposition::CONTENT_TYPE;

/// Returns the metrics of a manager, of the server that shows them, and of the process.
pub(crate) fn metrics_text(manager: &ManagerStatus, server: Option<&ServerVitals>, process: &ProcessFacts) -> String {
    let mut text = Exposition::default();
    let controllers = &manager.controllers;
    queues(&mut text, controllers);
    runs(&mut text, controllers);
    let of_controllers = controllers.iter().flat_map(|controller| {
        let name = controller.name.as_str();
        controller.sources.iter().map(move |source| (name, source))
    });
    let sources: Vec<_> = of_controllers.chain(manager.sources.iter().map(|source| ("", source))).collect();
    source_metrics(&mut text, &sources);
    leadership(&mut text, manager);
    if let Some(server) = server {
        server_metrics(&mut text, server);
    }
    process_metrics(&mut text, process);
    text.into_text()
}

type Controllers = [ControllerStatus<String>];

/// Writes one histogram for each controller.
fn histograms(text: &mut Exposition, controllers: &Controllers, of: fn(&ControllerMetrics) -> &Histogram, both: bool) {
    for controller in controllers {
        let labels = [("name", controller.name.as_str()), ("controller", &controller.name)];
        text.histogram(&labels[usize::from(!both)..], of(&controller.metrics));
    }
}

fn queues(text: &mut Exposition, controllers: &Controllers) {
    text.family("workqueue_depth", FamilyType::Gauge, "Keys ready to run.");
    for ControllerStatus { name, metrics, .. } in controllers {
        let queue = &metrics.queue;
        for (priority, depth) in [("high", queue.high), ("normal", queue.normal), ("low", queue.low)] {
            text.size(&[("name", name), ("controller", name), ("priority", priority)], depth);
        }
    }
    let mut each = |name, of_type, help, add: &dyn Fn(&mut Exposition, Labels<'_>, &ControllerMetrics)| {
        text.family(name, of_type, help);
        for controller in controllers {
            let labels = [("name", controller.name.as_str()), ("controller", &controller.name)];
            add(text, &labels, &controller.metrics);
        }
    };
    let (counter, gauge) = (FamilyType::Counter, FamilyType::Gauge);
    each("workqueue_adds_total", counter, "Times a key became ready.", &|text, labels, metrics| {
        text.count(labels, metrics.queue.adds);
    });
    each("workqueue_retries_total", counter, "Failed runs that are tried again.", &|text, labels, metrics| {
        text.count(labels, metrics.runs.retries);
    });
    let help = "Total time of the active runs so far.";
    each("workqueue_unfinished_work_seconds", gauge, help, &|text, labels, metrics| {
        text.seconds(labels, metrics.unfinished_work);
    });
    let help = "Time of the longest active run so far.";
    each("workqueue_longest_running_processor_seconds", gauge, help, &|text, labels, metrics| {
        text.seconds(labels, metrics.longest_running);
    });
    let help = "How long keys were ready before their runs.";
    text.family("workqueue_queue_duration_seconds", FamilyType::Histogram, help);
    histograms(text, controllers, |metrics| &metrics.queue_time, true);
    text.family("workqueue_work_duration_seconds", FamilyType::Histogram, "How long runs took.");
    histograms(text, controllers, |metrics| &metrics.work_time, true);
}

fn runs(text: &mut Exposition, controllers: &Controllers) {
    text.family("controller_runtime_reconcile_total", FamilyType::Counter, "Runs by result.");
    for ControllerStatus { name, metrics, .. } in controllers {
        let runs = &metrics.runs;
        let results = [("success", runs.successes), ("requeue_after", runs.requeues), ("error", runs.errors())];
        for (result, count) in results {
            text.count(&[("controller", name), ("result", result)], count);
        }
    }
    let mut each = |name, of_type, help, of: &dyn Fn(&ControllerMetrics) -> u64| {
        text.family(name, of_type, help);
        for controller in controllers {
            text.count(&[("controller", &controller.name)], of(&controller.metrics));
        }
    };
    let (counter, gauge) = (FamilyType::Counter, FamilyType::Gauge);
    let errors = "Runs that failed.";
    each("controller_runtime_reconcile_errors_total", counter, errors, &|metrics| metrics.runs.errors());
    let terminal = "Runs that failed permanently.";
    each("controller_runtime_terminal_reconcile_errors_total", counter, terminal, &|metrics| {
        metrics.runs.terminal_errors
    });
    let panics = "Runs that panicked.";
    each("controller_runtime_reconcile_panics_total", counter, panics, &|metrics| metrics.runs.panics);
    let timeouts = "Runs that ended after their deadline.";
    each("controller_runtime_reconcile_timeouts_total", counter, timeouts, &|metrics| metrics.runs.timeouts);
    let overruns = "Runs that were still active 100 ms after their deadline.";
    each("homeostat_reconcile_overruns_total", counter, overruns, &|metrics| metrics.runs.overruns);
    let most = "The largest number of active runs.";
    each("controller_runtime_max_concurrent_reconciles", gauge, most, &|metrics| {
        metrics.max_concurrent_reconciles as u64
    });
    let active = "Active runs.";
    each("controller_runtime_active_workers", gauge, active, &|metrics| metrics.runs.active as u64);
    text.family("controller_runtime_reconcile_time_seconds", FamilyType::Histogram, "How long runs took.");
    histograms(text, controllers, |metrics| &metrics.work_time, false);
}

/// The label `controller` is empty if the source does not belong to exactly one controller.
fn source_metrics(text: &mut Exposition, sources: &[(&str, &SourceStatus)]) {
    let mut each = |name, of_type, help, add: &dyn Fn(&mut Exposition, Labels<'_>, &SourceStatus)| {
        text.family(name, of_type, help);
        for (controller, source) in sources {
            add(text, &[("controller", *controller), ("source", &source.name)], source);
        }
    };
    let (counter, gauge) = (FamilyType::Counter, FamilyType::Gauge);
    each("homeostat_source_listings_total", counter, "Listings that have begun.", &|text, labels, source| {
        text.count(labels, source.listings);
    });
    each("homeostat_source_failures_total", counter, "Failures of a source.", &|text, labels, source| {
        text.count(labels, source.failures);
    });
    let help = "Whether the first listing of a source has completed.";
    each("homeostat_source_synced", gauge, help, &|text, labels, source| {
        text.count(labels, source.synced.into());
    });
    let help = "For how long a source has been failing.";
    each("homeostat_source_failing_seconds", gauge, help, &|text, labels, source| {
        text.seconds(labels, source.failing_for.unwrap_or_default());
    });
    let help = "Objects that do not match their type.";
    each("homeostat_source_undecodable", gauge, help, &|text, labels, source| {
        text.size(labels, source.undecodable);
    });
    let help = "Whether a listing has passed its deadline.";
    each("homeostat_source_overdue", gauge, help, &|text, labels, source| {
        text.count(labels, source.overdue.into());
    });
}

/// Writes the leadership, if there is an elector.
fn leadership(text: &mut Exposition, manager: &ManagerStatus) {
    if !manager.elected {
        return;
    }
    let name = manager.name.as_str();
    text.family("leader_election_master_status", FamilyType::Gauge, "Whether this process leads.");
    text.count(&[("name", name)], manager.leading.into());
    let leader = manager.leader.as_ref();
    if let Some(leader) = leader.and_then(Holder::name) {
        text.family("homeostat_leader", FamilyType::Gauge, "The leader, by its name.");
        text.count(&[("name", name), ("leader", leader)], 1);
    }
    let since = leader.and_then(Holder::since).and_then(|since| since.duration_since(UNIX_EPOCH).ok());
    let help = "When the leader began to lead, in seconds since 1970.";
    text.family("homeostat_leader_since_seconds", FamilyType::Gauge, help);
    text.seconds(&[("name", name)], since.unwrap_or_default());
}

/// Writes the metrics of a server.
fn server_metrics(text: &mut Exposition, ServerVitals { registry, counts }: &ServerVitals) {
    let (counter, gauge) = (FamilyType::Counter, FamilyType::Gauge);
    text.family("apiserver_request_total", counter, "Replies by verb and status.");
    for ((verb, code), count) in counts.replies() {
        text.count(&[("verb", verb), ("code", &code.to_string())], count);
    }
    text.family("authentication_attempts", counter, "Requests with credentials, by result.");
    for (result, count) in [("success", &counts.authenticated), ("failure", &counts.unauthenticated)] {
        text.count(&[("result", result)], value(count));
    }
    text.family(
        "homeostat_server_refused_connections_total",
        counter,
        "Refused connections by the limit that they passed.",
    );
    for (limit, count) in [("server", &counts.refused_by_server), ("client", &counts.refused_by_client)] {
        text.count(&[("limit", limit)], value(count));
    }
    let help = "Watches that ended early because other replies used the memory for replies.";
    for (name, help, count) in [
        ("apiserver_terminated_watchers_total", help, &counts.dropped_streams),
        (
            "apiserver_tls_handshake_errors_total",
            "Connections that ended before TLS was set up.",
            &counts.failed_handshakes,
        ),
        ("homeostat_server_accepted_connections_total", "Accepted connections.", &counts.accepted),
    ] {
        text.family(name, counter, help);
        text.count(&[], value(count));
    }
    for (name, help, size) in [
        ("apiserver_longrunning_requests", "Open streams, for example watches.", registry.streams()),
        ("homeostat_server_connections", "Open connections.", registry.connections()),
        ("homeostat_server_reply_bytes", "Memory that large replies keep while they are sent.", registry.reply_bytes()),
    ] {
        text.family(name, gauge, help);
        text.size(&[], size);
    }
}

/// Writes the usual metrics of a process, as far as the system provides them.
fn process_metrics(text: &mut Exposition, process: &ProcessFacts) {
    let ProcessFacts { cpu, resident_bytes, virtual_bytes, open_files, max_files, threads, started, .. } = *process;
    let mut number = |name, of_type, help, value: Option<u64>| {
        if let Some(value) = value {
            text.family(name, of_type, help);
            text.count(&[], value);
        }
    };
    let gauge = FamilyType::Gauge;
    number("process_resident_memory_bytes", gauge, "Resident memory size in bytes.", resident_bytes);
    number("process_virtual_memory_bytes", gauge, "Virtual memory size in bytes.", virtual_bytes);
    number("process_open_fds", gauge, "Number of open file descriptors.", open_files);
    number("process_max_fds", gauge, "Maximum number of open file descriptors.", max_files);
    number("process_threads", gauge, "Number of threads of the process.", threads);
    let mut seconds = |name, of_type, help, value: Option<Duration>| {
        if let Some(value) = value {
            text.family(name, of_type, help);
            text.seconds(&[], value);
        }
    };
    let help = "Total user and system CPU time spent in seconds.";
    seconds("process_cpu_seconds_total", FamilyType::Counter, help, cpu);
    let started = started.and_then(|started| started.duration_since(UNIX_EPOCH).ok());
    seconds("process_start_time_seconds", gauge, "Start time of the process since 1970 in seconds.", started);
}
