//! The status of a manager as JSON.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::checks::{CheckResult, all_ok};
use super::process::ProcessFacts;
use super::recent_runs::{BegunRun, RecentRun, RunLogs, reason_words};
use homeostat::controller::{ActiveRun, ControllerStatus, FailedKey, RunOutcome};
use homeostat::manager::ManagerStatus;
use homeostat::queue::Reasons;
use homeostat::run::Histogram;
use homeostat::watch::SourceStatus;

/// Returns the person that asked for a run of this controller. The last argument is the key's previous run, if known.
pub(crate) type Requester<'a> = &'a dyn Fn(&str, BegunRun<'_>, Option<&RecentRun>) -> Option<String>;

/// Returns the status as JSON. For each controller, it has at most `most` failing keys, parked keys, suspended keys
/// and recent runs. [`StatusPages`](crate::StatusPages) documents the fields.
pub(crate) fn status_json(
    status: &ManagerStatus,
    runs: &RunLogs,
    requester: Requester<'_>,
    (live, ready): (&[CheckResult], &[CheckResult]),
    process: &ProcessFacts,
    version: Option<&str>,
    most: usize,
) -> Value {
    let leader = status.leader.as_ref().map(|leader| {
        json!({
            "name": leader.name,
            "pid": leader.pid,
            "sinceSeconds": leader.since.map(unix_seconds),
            "forSeconds": status.leader_for.map(seconds),
        })
    });
    let controllers = status.controllers.iter();
    let controllers = controllers.map(|of| of_controller(of, &runs.of(&of.name), requester, status.taken_at, most));
    json!({
        "name": status.name,
        "phase": status.doing,
        "timeSeconds": unix_seconds(status.time_of_day),
        "live": health(live),
        "ready": health(ready),
        "leadership": { "elected": status.elected, "leading": status.leading, "leader": leader },
        "process": {
            "pid": process.id,
            "startTimeSeconds": process.started.map(unix_seconds),
            "cpuSeconds": process.cpu.map(seconds),
            "residentBytes": process.resident_bytes,
            "virtualBytes": process.virtual_bytes,
            "openFiles": process.open_files,
            "maxFiles": process.max_files,
            "threads": process.threads,
            "host": process.host,
            "version": version,
        },
        "poolThreads": status.threads,
        "components": status.components,
        "failure": status.failure.as_ref().map(|(component, error)| json!({ "component": component, "error": error })),
        "controllers": controllers.collect::<Vec<_>>(),
        "sources": status.sources.iter().map(of_source).collect::<Vec<_>>(),
    })
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn health(results: &[CheckResult]) -> Value {
    let check =
        |result: &CheckResult| json!({ "name": result.name, "ok": result.failure.is_none(), "reason": result.failure });
    json!({ "ok": all_ok(results), "checks": results.iter().map(check).collect::<Vec<_>>() })
}

fn of_controller(
    controller: &ControllerStatus,
    recent: &[Arc<RecentRun>],
    requester: Requester<'_>,
    now: Instant,
    most: usize,
) -> Value {
    let metrics = &controller.metrics;
    let (runs, queue) = (&metrics.runs, &metrics.queue);
    let failed =
        |keys: &[FailedKey<String>]| keys.iter().take(most).map(|key| failed_key(key, now)).collect::<Vec<_>>();
    let mut previous = HashMap::new();
    let recent_runs = recent.iter().map(|run| {
        let previous = previous.insert(&run.key, run).map(AsRef::as_ref);
        recent_run(run, requester(&controller.name, (&**run).into(), previous).as_deref(), now)
    });
    let recent_runs: Vec<_> = recent_runs.skip(recent.len().saturating_sub(most)).collect();
    let running = controller.running.iter().map(|run| {
        let previous = recent.iter().rev().find(|previous| previous.key == run.key).map(AsRef::as_ref);
        active_run(run, requester(&controller.name, BegunRun::active(run, now), previous).as_deref())
    });
    let oldest = controller.oldest_waiting.as_ref();
    let due = controller.next_due.as_ref();
    let since = |since: Instant| seconds(now.saturating_duration_since(since));
    let suspensions = controller.suspended.iter().take(most);
    let suspensions = suspensions.map(|(key, begin)| json!({ "key": key, "forSeconds": since(*begin) }));
    json!({
        "name": controller.name,
        "phase": controller.phase.to_string(),
        "maxConcurrentReconciles": metrics.max_concurrent_reconciles,
        "overdueCount": metrics.overdue,
        "running": running.collect::<Vec<_>>(),
        "queue": {
            "depth": queue.depth(),
            "high": queue.high,
            "normal": queue.normal,
            "low": queue.low,
            "delayed": queue.delayed,
            "processing": queue.processing,
            "adds": queue.adds,
        },
        "oldestWaiting": oldest.map(|(key, age)| json!({ "key": key, "ageSeconds": seconds(*age) })),
        "nextDue": due.map(|(key, due)| json!({ "key": key, "inSeconds": seconds(due.saturating_duration_since(now)) })),
        "runs": {
            "total": runs.runs(),
            "successes": runs.successes,
            "requeues": runs.requeues,
            "retries": runs.retries,
            "drops": runs.drops,
            "terminalErrors": runs.terminal_errors,
            "errors": runs.errors(),
            "aborted": runs.aborted,
            "panics": runs.panics,
            "timeouts": runs.timeouts,
            "overruns": runs.overruns,
        },
        "queueTime": of_histogram(&metrics.queue_time),
        "workTime": of_histogram(&metrics.work_time),
        "failingCount": metrics.failing,
        "parkedCount": metrics.parked,
        "suspendedCount": controller.suspended.len(),
        "failing": failed(&controller.failing),
        "parked": failed(&controller.parked),
        "suspendedForSeconds": controller.suspended_since.map(since),
        "suspended": controller.suspended.iter().take(most).map(|(key, _)| key).collect::<Vec<_>>(),
        "suspensions": suspensions.collect::<Vec<_>>(),
        "recentRuns": recent_runs,
        "sources": controller.sources.iter().map(of_source).collect::<Vec<_>>(),
    })
}

fn active_run(run: &ActiveRun, requested_by: Option<&str>) -> Value {
    json!({
        "key": run.key,
        "thread": run.thread,
        "reasons": reasons(run.reasons, requested_by),
        "requestedBy": requested_by,
        "ageSeconds": seconds(run.elapsed),
        "timeoutSeconds": run.timeout.map(seconds),
        "overdue": run.overdue,
    })
}

fn reasons(of: Reasons, requested_by: Option<&str>) -> String {
    reason_words(of, if requested_by.is_some() { "requested" } else { "enqueued" })
}

fn failed_key(failed: &FailedKey<String>, now: Instant) -> Value {
    let next = failed.next_try.map(|next| seconds(next.saturating_duration_since(now)));
    json!({
        "key": failed.key,
        "error": failed.error,
        "tries": failed.failures,
        "failingForSeconds": seconds(now.saturating_duration_since(failed.failing_since)),
        "lastTryAgoSeconds": seconds(now.saturating_duration_since(failed.since)),
        "nextTryInSeconds": next,
    })
}

fn recent_run(run: &RecentRun, requested_by: Option<&str>, now: Instant) -> Value {
    let again = if let RunOutcome::Requeued(after) = run.outcome { Some(after) } else { run.retry_after };
    json!({
        "key": run.key,
        "reasons": reasons(run.reasons, requested_by),
        "requestedBy": requested_by,
        "try": run.attempt,
        "queuedSeconds": seconds(run.queued_for),
        "startedAgoSeconds": seconds(now.saturating_duration_since(run.started)),
        "tookSeconds": seconds(run.took),
        "thread": run.thread,
        "result": run.result(),
        "error": run.outcome.error(),
        "againInSeconds": again.map(seconds),
    })
}

fn of_histogram(histogram: &Histogram) -> Value {
    // The last bound is infinite, which becomes null in JSON.
    let bucket = |(bound, count): (f64, u64)| json!({ "upToSeconds": bound, "count": count });
    json!({
        "count": histogram.count(),
        "sumSeconds": seconds(histogram.sum()),
        "buckets": histogram.buckets().map(bucket).collect::<Vec<_>>(),
    })
}

fn of_source(source: &SourceStatus) -> Value {
    json!({
        "name": source.name,
        "synced": source.synced,
        "listings": source.listings,
        "failures": source.failures,
        "failuresInARow": source.failures_in_a_row,
        "failingForSeconds": source.failing_for.map(seconds),
        "lastError": source.last_error,
        "lastSuccessAgoSeconds": source.last_success.map(seconds),
        "periodSeconds": source.period.map(seconds),
        "nextTryInSeconds": source.next_listing.map(seconds),
        "listingForSeconds": source.listing_for.map(seconds),
        "overdue": source.overdue,
        "undecodable": source.undecodable,
        "undecodableError": source.undecodable_error,
    })
}
