//! The section *needs attention*: stuck runs, failing sources and failed keys.

use std::time::{Duration, Instant};

use super::data::{
    ChipColour, DASH, PageData, cell, chip, controller_link, detail, heading, key_link, row_name, table,
};
use super::escape::{name, source_name};
use super::units::{size, span};
use homeostat::controller::{ControllerStatus, FailedKey};
use homeostat::manager::ManagerStatus;
use homeostat::watch::SourceStatus;

/// The largest number of rows. Further ones are only counted.
const MOST_ROWS: usize = 40;

/// The urgency of a parked key. Failing keys are less urgent, and all other troubles are more urgent.
const PARKED: u8 = 3;

/// A row. The most urgent rows come first.
struct Trouble {
    urgency: u8,
    chip: (ChipColour, &'static str),
    /// As HTML.
    part: String,
    /// As HTML.
    subject: String,
    tries: Option<u64>,
    lasts: Option<Duration>,
    next: String,
    why: String,
}

/// Adds the section.
pub(super) fn section(out: &mut String, data: &PageData<'_>) {
    let mut rows = rows(data);
    rows.sort_by_key(|row| row.urgency);
    out.push_str("<section aria-labelledby=\"attention\">");
    if rows.is_empty() {
        out.push_str(&heading("attention", "Needs attention", ""));
        out.push_str("<p class=\"calm\">Nothing.</p></section>");
        return;
    }
    let all = count(data.status);
    let shown = rows.len().min(MOST_ROWS);
    let remark = if shown < all { format!("{shown} of {}", size(all)) } else { size(all) };
    out.push_str(&heading("attention", "Needs attention", &remark));
    let heads = [
        ("", "key or source"),
        ("", "state"),
        ("", "part"),
        ("n", "tries"),
        ("n", "for"),
        ("n", "next try"),
        ("why", "why"),
    ];
    table(out, "attention", "Failed keys, failing sources and overdue runs, the most urgent first", &heads);
    for row in &rows[..shown] {
        let (colour, state) = row.chip;
        row_name(out, &row.subject);
        cell(out, "state", "state", chip(colour, state));
        cell(out, "", "part", &row.part);
        cell(out, "n", "tries", row.tries.map_or_else(|| DASH.to_owned(), |tries| tries.to_string()));
        cell(out, "n", "for", row.lasts.map_or_else(|| DASH.to_owned(), span));
        cell(out, "n", "next try", &row.next);
        cell(out, "why", "why", detail(&format!("{} {}", row.part, row.subject), &row.why));
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></section>");
}

/// Returns the number of troubles, including keys without a row.
pub(super) fn count(status: &ManagerStatus) -> usize {
    let of_controllers = status.controllers.iter().map(|controller| {
        let sources = controller.sources.iter().filter_map(|source| of_source(&controller.name, source)).count();
        of_runs(controller).count() + sources + controller.metrics.failing + controller.metrics.parked
    });
    let sources = status.sources.iter().filter_map(|source| of_source(&status.name, source)).count();
    usize::from(status.failure.is_some()) + sources + of_controllers.sum::<usize>()
}

fn rows(data: &PageData<'_>) -> Vec<Trouble> {
    let (status, now) = (data.status, data.now());
    let mut rows = Vec::new();
    if let Some((component, error)) = &status.failure {
        rows.push(Trouble {
            urgency: 0,
            chip: (ChipColour::Bad, "failed"),
            part: name(component),
            subject: DASH.to_owned(),
            tries: None,
            lasts: None,
            next: DASH.to_owned(),
            why: error.clone(),
        });
    }
    for controller in &status.controllers {
        rows.extend(of_runs(controller));
        rows.extend(controller.sources.iter().filter_map(|source| of_source(&controller.name, source)));
        let failed = controller.parked.iter().take(MOST_ROWS).chain(controller.failing.iter().take(MOST_ROWS));
        rows.extend(failed.map(|failed| of_key(&controller.name, failed, now)));
    }
    rows.extend(status.sources.iter().filter_map(|source| of_source(&status.name, source)));
    rows
}

fn of_runs(controller: &ControllerStatus) -> impl Iterator<Item = Trouble> {
    controller.running.iter().filter(|run| run.overdue).map(|run| Trouble {
        urgency: 1,
        chip: (ChipColour::Bad, "overdue"),
        part: controller_link(&controller.name),
        subject: key_link(&controller.name, &run.key),
        tries: None,
        lasts: Some(run.elapsed),
        next: DASH.to_owned(),
        why: match run.timeout.and_then(|timeout| run.elapsed.checked_sub(timeout)) {
            Some(late) => format!("passed its deadline {} ago on {}", span(late), run.thread),
            None => format!("has passed its deadline on {}", run.thread),
        },
    })
}

fn of_source(part: &str, source: &SourceStatus) -> Option<Trouble> {
    let state = match source {
        SourceStatus { overdue: true, .. } => "overdue",
        SourceStatus { failing_for: Some(_), .. } => "source fails",
        SourceStatus { undecodable: 1.., .. } => "undecodable",
        _ => return None,
    };
    let error = source.last_error.clone().unwrap_or_default();
    let why = match state {
        "overdue" => format!("the listing has passed its deadline; the last error was: {error}"),
        "undecodable" => {
            let error = source.undecodable_error.as_deref().unwrap_or_default();
            format!("{} objects do not match their type: {error}", source.undecodable)
        }
        _ => error,
    };
    Some(Trouble {
        urgency: 2,
        chip: (ChipColour::Bad, state),
        part: name(part),
        subject: source_name(&source.name),
        tries: source.failing_for.is_some().then_some(source.failures_in_a_row.into()),
        lasts: source.failing_for.or(source.listing_for.filter(|_| source.overdue)),
        next: DASH.to_owned(),
        why,
    })
}

fn of_key(part: &str, failed: &FailedKey<String>, now: Instant) -> Trouble {
    let next = match failed.next_try {
        _ if failed.parked => "none".to_owned(),
        Some(next) => format!("in {}", span(next.saturating_duration_since(now))),
        None => "now".to_owned(),
    };
    Trouble {
        urgency: if failed.parked { PARKED } else { PARKED + 1 },
        chip: if failed.parked { (ChipColour::Bad, "given up") } else { (ChipColour::Warn, "failing") },
        part: controller_link(part),
        subject: key_link(part, &failed.key),
        tries: Some(failed.failures.into()),
        lasts: Some(now.saturating_duration_since(failed.failing_since)),
        next,
        why: failed.error.clone(),
    }
}
