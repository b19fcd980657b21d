//! The section of the last runs of a key or of a controller.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::data::{ChipColour, DASH, cell, chip, detail, heading, key_link, row_name, table};
use super::escape::{line, name};
use super::past_actions::{PastAction, PastActions};
use super::units::{self, span, time_of_day};
use crate::status::RecentRun;
use homeostat::controller::RunOutcome;

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
        let request = past.request_of(controller, run, previous.map(AsRef::as_ref));
        let ago = now.saturating_duration_since(run.started);
        let began = time.checked_sub(ago).map(time_of_day).unwrap_or_default();
        let shown = format!("{began} <small>{} ago</small>", units::ago(time, ago));
        row_name(out, if has_keys { key_link(controller, &run.key) } else { shown.clone() });
        cell(out, "state", "result", result(run));
        cell(out, "", "why", why(run, request.as_ref()));
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
    }
    out.push_str("</tbody></table></section>");
}

/// Returns why a run began, as HTML. `request` is the person's request for it.
pub(super) fn why(run: &RecentRun, request: Option<&PastAction>) -> String {
    let reasons = run.reasons.to_string();
    if run.reasons.is_empty() {
        return DASH.to_owned();
    }
    let manual = match request {
        Some(request) => format!("requested by {}", name(&request.user)),
        None => "enqueued".to_owned(),
    };
    let words =
        reasons.split(", ").map(|reason| if reason == "manual" { manual.clone() } else { line(reason).to_string() });
    words.collect::<Vec<_>>().join(", ")
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
