//! The metrics of a manager as text. Names and labels are the same as in the export to the `metrics` facade.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use super::checks::CheckResult;
use super::exposition::Exposition;
use super::process::ProcessFacts;
use crate::http::{ReplyCount, value};
use crate::server::ServerVitals;
use homeostat::export::{MetricKind, MetricSink, of_manager};
use homeostat::manager::ManagerStatus;

pub(crate) use super::exposition::CONTENT_TYPE;

/// Returns the metrics of a manager and of its checks for liveness and readiness, of the server that shows them, and of
/// the process. `version` is the version of the program.
pub(crate) fn metrics_text(
    manager: &ManagerStatus,
    (live, ready): (&[CheckResult], &[CheckResult]),
    server: Option<&ServerVitals>,
    process: &ProcessFacts,
    version: Option<&str>,
) -> String {
    let mut text = Exposition::default();
    build_info(&mut text, version);
    text.family("homeostat_pool_threads", MetricKind::Gauge, "The threads that run the keys of all controllers.");
    text.size(&[], manager.threads);
    of_manager(&mut text, manager);
    check_metrics(&mut text, live, ready);
    if let Some(server) = server {
        server_metrics(&mut text, server);
    }
    process_metrics(&mut text, process);
    text.into_text()
}

/// The version of this library.
pub(crate) const LIBRARY_VERSION: &str = env!("CARGO_PKG_VERSION");

fn build_info(text: &mut Exposition, version: Option<&str>) {
    text.family("homeostat_build_info", MetricKind::Gauge, "The versions of this library and of the program.");
    let labels = [("version", LIBRARY_VERSION), ("program_version", version.unwrap_or_default())];
    text.count(if version.is_some() { &labels } else { &labels[..1] }, 1);
}

/// Writes the result of each check, as a Kubernetes API server does. Checks of one name and type count as one.
fn check_metrics(text: &mut Exposition, live: &[CheckResult], ready: &[CheckResult]) {
    text.family("kubernetes_healthcheck", MetricKind::Gauge, "Whether a health check passes.");
    for (of_type, results) in [("livez", live), ("readyz", ready)] {
        let mut passes = BTreeMap::new();
        for CheckResult { name, failure, .. } in results {
            *passes.entry(name.as_str()).or_insert(true) &= failure.is_none();
        }
        for (name, passes) in passes {
            text.count(&[("name", name), ("type", of_type)], passes.into());
        }
    }
}

/// Writes the metrics of a server.
fn server_metrics(text: &mut Exposition, ServerVitals { registry, counts, .. }: &ServerVitals) {
    let (counter, gauge) = (MetricKind::Counter, MetricKind::Gauge);
    text.family("apiserver_request_total", counter, "Replies by verb and status, without failed health checks.");
    for ((verb, code), ReplyCount { count, .. }) in counts.replies() {
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
        ("homeostat_server_failed_health_checks_total", "Replies that told a failed check.", &counts.failed_checks),
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
    let gauge = MetricKind::Gauge;
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
    seconds("process_cpu_seconds_total", MetricKind::Counter, help, cpu);
    let started = started.and_then(|started| started.duration_since(UNIX_EPOCH).ok());
    seconds("process_start_time_seconds", gauge, "Start time of the process since 1970 in seconds.", started);
}
