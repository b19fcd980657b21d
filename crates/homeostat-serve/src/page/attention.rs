//! The section *needs attention*: stuck runs, failing sources and failed keys.

use std::time::{Duration, Instant};

use super::data::{ChipColour, DASH, PageData, cell, chip, detail, heading, key_link, row_name, table};
use super::escape::line;
use super::units::{size, span};
use homeostat::controller::{ControllerStatus, FailedKey};
use homeostat::watch::SourceStatus;

/// The largest number of rows. Further ones are only counted.
const MOST_ROWS: usize = 40;

/// The urgency of a parked key. Failing keys are less urgent, and all other troubles are more urgent.
const PARKED: u8 = 3;

/// A row. The most urgent rows come first.
struct Trouble<'a> {
    urgency: u8,
    chip: (ChipColour, &'static str),
    part: &'a str,
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
    let all = count(data, &rows);
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
        cell(out, "", "part", line(row.part));
        cell(out, "n", "tries", row.tries.map_or_else(|| DASH.to_owned(), |tries| tries.to_string()));
        cell(out, "n", "for", row.lasts.map_or_else(|| DASH.to_owned(), span));
        cell(out, "n", "next try", &row.next);
        cell(out, "why", "why", detail(&format!("{} {}", row.part, row.subject), &row.why));
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></section>");
}

/// Returns the number of troubles, including keys without a row.
fn count(data: &PageData<'_>, rows: &[Trouble<'_>]) -> usize {
    let others = rows.iter().filter(|row| row.urgency < PARKED).count();
    let controllers = data.status.controllers.iter();
    others + controllers.map(|controller| controller.metrics.failing + controller.metrics.parked).sum::<usize>()
}

fn rows<'a>(data: &PageData<'a>) -> Vec<Trouble<'a>> {
    let (status, now) = (data.status, data.now());
    let mut rows = Vec::new();
    if let Some((component, error)) = &status.failure {
        rows.push(Trouble {
            urgency: 0,
            chip: (ChipColour::Bad, "failed"),
            part: component,
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

fn of_runs(controller: &ControllerStatus) -> impl Iterator<Item = Trouble<'_>> {
    controller.running.iter().filter(|run| run.overdue).map(|run| Trouble {
        urgency: 1,
        chip: (ChipColour::Bad, "overdue"),
        part: &controller.name,
        subject: key_link(&controller.name, &run.key),
        tries: None,
        lasts: Some(run.elapsed),
        next: DASH.to_owned(),
        why: format!("the run on {} has passed its deadline and still runs", run.thread),
    })
}

fn of_source<'a>(part: &'a str, source: &'a SourceStatus) -> Option<Trouble<'a>> {
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
        part,
        subject: line(&source.name).to_string(),
        tries: source.failing_for.is_some().then_some(source.failures_in_a_row.into()),
        lasts: source.failing_for.or(source.listing_for.filter(|_| source.overdue)),
        next: DASH.to_owned(),
        why,
    })
}

fn of_key<'a>(part: &'a str, failed: &FailedKey<String>, now: Instant) -> Trouble<'a> {
    let next = match failed.next_try {
        _ if failed.parked => "none".to_owned(),
        Some(next) => format!("in {}", span(next.saturating_duration_since(now))),
        None => "now".to_owned(),
    };
    Trouble {
        urgency: if failed.parked { PARKED } else { PARKED + 1 },
        chip: if failed.parked { (ChipColour::Bad, "given up") } else { (ChipColour::Warn, "failing") },
        part,
        subject: key_link(part, &failed.key),
        tries: Some(failed.failures.into()),
        lasts: Some(now.saturating_duration_since(failed.failing_since)),
        next,
        why: failed.error.clone(),
    }
}
