//! The section of the last runs of a key or of a controller.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::data::{ChipColour, DASH, cell, chip, detail, heading, key_link, row_name, table};
use super::escape::{line, name};
use super::units::{self, span, time_of_day};
use crate::status::RecentRun;
use homeostat::controller::RunOutcome;

/// Adds the section. `runs` has the newest first. With a controller, each row names its key.
pub(super) fn section(
    out: &mut String,
    (title, remark): (&str, &str),
    runs: &[Arc<RecentRun>],
    controller: Option<&str>,
    (now, time): (Instant, SystemTime),
) {
    out.push_str("<section aria-labelledby=\"runs\">");
    out.push_str(&heading("runs", title, remark));
    if runs.is_empty() {
        out.push_str("<p class=\"calm\">None.</p></section>");
        return;
    }
    let first = if controller.is_some() { "key" } else { "began" };
    let mut heads = vec![("", first), ("", "result"), ("", "why")];
    heads.extend(controller.map(|_| ("", "began")));
    heads.extend([("n", "try"), ("n", "waited"), ("n", "took"), ("spare", "thread"), ("why", "error or next")]);
    table(out, "runs", "Last runs, the newest first", &heads);
    for run in runs {
        let ago = now.saturating_duration_since(run.started);
        let began = time.checked_sub(ago).map(time_of_day).unwrap_or_default();
        let shown = format!("{began} <small>{} ago</small>", units::ago(time, ago));
        match controller {
            Some(controller) => row_name(out, key_link(controller, &run.key)),
            None => row_name(out, &shown),
        }
        cell(out, "state", "result", result(run));
        cell(out, "", "why", why(run));
        if controller.is_some() {
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

/// Returns why a run began, as HTML.
pub(super) fn why(run: &RecentRun) -> String {
    let reasons = run.reasons.to_string();
    if run.reasons.is_empty() {
        return DASH.to_owned();
    }
    let words = reasons.split(", ").map(|reason| if reason == "manual" { "enqueued" } else { reason });
    line(&words.collect::<Vec<_>>().join(", ")).to_string()
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
