//! The page of one key: its state, why it ran, its last runs and its next run.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::data::{ChipColour, cell, chip, detail, heading, row_name, table};
use super::escape::{key, line, lines};
use super::units::{span, stamp, time_of_day};
use crate::status::{RecentRun, RunLogs};
use homeostat::controller::{FailedKey, RunOutcome, RunningKey};
use homeostat::manager::Manager;
use homeostat::queue::{KeyState, PendingRerun};

/// The time that a page shows, and the name of the manager.
pub(super) struct PageTime<'a> {
    pub(super) manager: &'a str,
    pub(super) now: Instant,
    /// The same time on the wall clock.
    pub(super) time: SystemTime,
}

/// The state of one key: its active run, its failure, its recent runs and its next run.
pub(super) struct KeyStatus {
    key: String,
    state: KeyState,
    running: Option<RunningKey>,
    failed: Option<FailedKey<String>>,
    suspended: bool,
    /// The oldest first.
    recent_runs: Vec<Arc<RecentRun>>,
}

impl KeyStatus {
    /// Finds the key that `Debug` formats as `shown`. Finds keys that run, have failed, are suspended, are first in the
    /// queue, or have run lately.
    pub(super) fn find(manager: &Manager, runs: &RunLogs, controller: &str, shown: &str) -> Option<Self> {
        let mut state = None;
        manager.visit_keys(controller, |key| {
            if state.is_none() && format!("{key:?}") == shown {
                state = Some((key.state_reader())());
            }
        });
        let mut recent_runs = runs.of(controller);
        recent_runs.retain(|run| run.key == shown);
        let state = state.or_else(|| recent_runs.last().map(|run| run.key_state()))?;
        let status = manager.status().controllers.into_iter().find(|status| status.name == controller)?;
        Some(Self {
            key: shown.to_owned(),
            state,
            running: status.running.into_iter().find(|run| run.key == shown),
            failed: status.failing.into_iter().chain(status.parked).find(|failed| failed.key == shown),
            suspended: status.suspended.iter().any(|key| key == shown),
            recent_runs,
        })
    }
}

/// Returns the part of the page that changes.
pub(super) fn live_part(controller: &str, status: &KeyStatus, page_time: &PageTime<'_>) -> String {
    let now = page_time.now;
    let (state, colour) = state(status);
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _ = write!(
        out,
        "<header data-health=\"{}\"><nav aria-label=\"Breadcrumb\"><a href=\"/\">{}</a> / {}</nav><div class=\"title\">\
         <h1 class=\"key\">{}</h1><p class=\"chips\">{}</p></div><p class=\"facts\"><time datetime=\"{}\">{} UTC</time></p></header>\
         <main id=\"main\">",
        line(state),
        line(page_time.manager),
        line(controller),
        key(&status.key),
        chip(colour, state),
        stamp(page_time.time),
        time_of_day(page_time.time),
    );
    out.push_str("<dl class=\"about\">");
    about(&mut out, status, now);
    out.push_str("</dl>");
    last_runs(&mut out, &status.recent_runs, now, page_time.time);
    out.push_str("</main>");
    out
}

/// Returns the changing part of an unknown key's page.
pub(super) fn unknown(controller: &str, shown: &str, page_time: &PageTime<'_>) -> String {
    format!(
        "<header><nav aria-label=\"Breadcrumb\"><a href=\"/\">{}</a> / {}</nav><h1 class=\"key\">{}</h1></header>\
         <main id=\"main\"><p>This key is not known here. It does not run, has not failed, and is not among the recent runs of \
         its controller.</p></main>",
        line(page_time.manager),
        line(controller),
        key(shown)
    )
}

fn state(status: &KeyStatus) -> (&'static str, ChipColour) {
    let parked = status.failed.as_ref().map(|failed| failed.parked);
    match (&status.running, status.state, parked) {
        (Some(run), ..) if run.overdue => ("overdue", ChipColour::Bad),
        (Some(_), ..) | (None, KeyState::Processing(_), _) => ("running", ChipColour::Good),
        _ if status.suspended => ("suspended", ChipColour::Warn),
        (_, _, Some(true)) => ("given up", ChipColour::Bad),
        (_, _, Some(false)) => ("failing", ChipColour::Warn),
        (_, KeyState::Ready(_), _) => ("waiting", ChipColour::Calm),
        (_, KeyState::Delayed(_), _) => ("delayed", ChipColour::Calm),
        _ => ("idle", ChipColour::Calm),
    }
}

fn about(out: &mut String, status: &KeyStatus, now: Instant) {
    let mut fact = |name: &str, value: &str| {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    };
    if let Some(run) = &status.running {
        fact("Now", &format!("runs for {} on {}", span(run.elapsed), line(&run.thread)));
    }
    if let Some(last) = status.recent_runs.last() {
        let ended = span(now.saturating_duration_since(last.started).saturating_sub(last.took));
        let reasons = line(&last.reasons.to_string()).to_string();
        fact("Why it ran", &format!("{reasons} <small>the run that ended {ended} ago</small>"));
    }
    fact("Next run", &next(status, now));
    if let Some(failed) = &status.failed {
        let time = span(now.saturating_duration_since(failed.failing_since));
        fact("Fails", &format!("for {time}, {} tries in a row", failed.failures));
        fact("Last error", &format!("<pre>{}</pre>", lines(&failed.error)));
    }
}

/// Describes when the key runs next.
fn next(status: &KeyStatus, now: Instant) -> String {
    let at = |due: Option<Instant>| match due {
        Some(due) if due <= now => "now".to_owned(),
        Some(due) => format!("in {}", span(due.saturating_duration_since(now))),
        None => "not before it is resumed or requested".to_owned(),
    };
    let next = match status.state {
        KeyState::Ready(priority) => {
            format!("as soon as a thread is free <small>priority: {}</small>", format!("{priority:?}").to_lowercase())
        }
        KeyState::Delayed(due) => at(due),
        KeyState::Processing(PendingRerun::None) => "as the active run decides".to_owned(),
        KeyState::Processing(PendingRerun::At(due)) => format!("after the active run, {}", at(due)),
        KeyState::Processing(_) => "right after the active run: the key was requested meanwhile".to_owned(),
        _ => "at its next change or request".to_owned(),
    };
    if status.suspended { format!("{next} <small>the key is suspended</small>") } else { next }
}

fn last_runs(out: &mut String, runs: &[Arc<RecentRun>], now: Instant, time: SystemTime) {
    out.push_str("<section aria-labelledby=\"runs\">");
    out.push_str(&heading("runs", "Last runs", "of the last 512 runs and 256 failures of the controller"));
    if runs.is_empty() {
        out.push_str("<p class=\"calm\">None.</p></section>");
        return;
    }
    let heads = [
        ("", "began"),
        ("", "result"),
        ("", "why"),
        ("n", "try"),
        ("n", "waited"),
        ("n", "took"),
        ("", "thread"),
        ("why", "error or next"),
    ];
    table(out, "runs", "Last runs, the newest first", &heads);
    for run in runs.iter().rev() {
        let ago = now.saturating_duration_since(run.started);
        let began = time.checked_sub(ago).map(time_of_day).unwrap_or_default();
        row_name(out, format_args!("{began} <small>{} ago</small>", span(ago)));
        cell(out, "state", "result", result(run));
        cell(out, "", "why", line(&run.reasons.to_string()));
        cell(out, "n", "try", run.attempt);
        cell(out, "n", "waited", span(run.queued_for));
        cell(out, "n", "took", span(run.took));
        cell(out, "wide", "thread", line(&run.thread));
        let end = match &run.outcome {
            RunOutcome::Requeued(after) => format!("again after {}", span(*after)),
            outcome => detail(&format!("run {began} {}", run.attempt), outcome.error().unwrap_or_default()),
        };
        cell(out, "why", "error or next", end);
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></section>");
}

fn result(run: &RecentRun) -> String {
    let colour = match run.outcome {
        RunOutcome::Failed(_) if run.retry_after.is_none() => ChipColour::Bad,
        RunOutcome::Failed(_) => ChipColour::Warn,
        RunOutcome::Aborted => ChipColour::Calm,
        _ => ChipColour::Good,
    };
    chip(colour, run.result())
}
