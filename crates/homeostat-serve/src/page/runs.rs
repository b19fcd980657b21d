//! The section of the last runs of a key or of a controller.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::data::{ChipColour, cell, chip, detail, heading, key_link, row_name, table};
use super::escape::name;
use super::past_actions::{PastAction, PastActions};
use super::units::{self, count, span, time_of_day};
use crate::status::{RecentRun, reason_words};
use homeostat::controller::RunOutcome;
use homeostat::queue::Reasons;

/// The runs of a section.
pub(super) struct RunRows<'a> {
    pub(super) controller: &'a str,
    /// Whether each row names its key.
    pub(super) has_keys: bool,
    /// All known runs, the newest first.
    pub(super) runs: &'a [Arc<RecentRun>],
    /// The largest number of rows.
    pub(super) most: usize,
    pub(super) past: &'a PastActions,
}

/// Adds the section.
pub(super) fn section(
    out: &mut String,
    (title, remark): (&str, &str),
    rows: &RunRows<'_>,
    (now, time): (Instant, SystemTime),
) {
    let RunRows { controller, has_keys, runs, most, past } = *rows;
    out.push_str("<section aria-labelledby=\"runs\">");
    out.push_str(&heading("runs", title, remark));
    if runs.is_empty() {
        out.push_str("<p class=\"calm\">None.</p></section>");
        return;
    }
    let first = if has_keys { "key" } else { "began" };
    let mut heads = vec![("", first), ("", "result"), ("", "why")];
    heads.extend(has_keys.then_some(("", "began")));
    heads.extend([("n", "try"), ("n", "waited"), ("n", "took"), ("spare", "thread"), ("why", "error or next")]);
    table(out, "runs", "Last runs, the newest first", &heads);
    for (number, run) in runs.iter().enumerate().take(most) {
        let previous = runs[number + 1..].iter().find(|previous| previous.key == run.key);
        let request = past.request_of(controller, (&**run).into(), previous.map(AsRef::as_ref));
        let ago = now.saturating_duration_since(run.started);
        let began = time.checked_sub(ago).map(time_of_day).unwrap_or_default();
        let shown = format!("{began} <small>{} ago</small>", units::ago(time, ago));
        row_name(out, if has_keys { key_link(controller, &run.key) } else { shown.clone() });
        cell(out, "state", "result", result(run));
        cell(out, "", "why", why(run.reasons, request.as_ref()));
        if has_keys {
            cell(out, "wide", "began", shown);
        }
        cell(out, "n", "try", run.attempt);
        cell(out, "n", "waited", span(run.queued_for));
        cell(out, "n", "took", span(run.took));
        cell(out, "wide spare", "thread", name(&run.thread));
        let end = match &run.outcome {
            RunOutcome::Requeued(after) => format!("again after {}", span(*after)),
            outcome => detail(&format!("run {began} {} {}", run.key, run.attempt), outcome.error().unwrap_or_default()),
        };
        cell(out, "why", "error or next", end);
        out.push_str("</tr>");
        let missing = if has_keys { 0 } else { missing_tries(run, previous.map(AsRef::as_ref)) };
        if missing > 0 {
            let tries = if missing == 1 { "1 older try is" } else { &format!("{} older tries are", count(missing)) };
            // Writing to a `String` cannot fail.
            let _ =
                write!(out, "<tr><td class=\"full calm\" colspan=\"{}\">{tries} no longer kept</td></tr>", heads.len());
        }
    }
    out.push_str("</tbody></table></section>");
}

/// Returns why a run began, as HTML. `request` is the person's request for it.
pub(super) fn why(reasons: Reasons, request: Option<&PastAction>) -> String {
    why_or(reasons, request, "enqueued")
}

/// Returns why a run began, in words for a place with room.
pub(super) fn why_at_length(reasons: Reasons, request: Option<&PastAction>) -> String {
    why_or(reasons, request, "the program asked for it (enqueued)")
}

/// `enqueued` stands for a request of the program.
fn why_or(reasons: Reasons, request: Option<&PastAction>, enqueued: &str) -> String {
    if reasons.is_empty() {
        return "enqueued, without a reason".to_owned();
    }
    let manual = request.map(|request| format!("requested by {}", name(&request.user)));
    reason_words(reasons, manual.as_deref().unwrap_or(enqueued))
}

/// Returns how a run ended, in words that tell a failure from a success.
pub(super) fn ended_as(run: &RecentRun) -> &'static str {
    match run.outcome {
        RunOutcome::Succeeded | RunOutcome::Requeued(_) => "succeeded",
        RunOutcome::Failed(_) if run.retry_after.is_none() => "failed and was parked",
        RunOutcome::Failed(_) => "failed",
        RunOutcome::Aborted => "was aborted",
        _ => "ended",
    }
}

/// Returns how many tries of a key since its last success are missing between a run and the previous kept one.
fn missing_tries(run: &RecentRun, previous: Option<&RecentRun>) -> u64 {
    let before = previous.filter(|previous| !previous.is_success()).map_or(0, |previous| previous.attempt);
    run.attempt.saturating_sub(before).saturating_sub(1).into()
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
