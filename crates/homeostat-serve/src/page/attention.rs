//! The section *needs attention*: stuck runs, failing sources and failed keys.

use std::time::Duration;

use super::data::{
    ChipColour, DASH, PageData, cell, chip, controller_link, detail, heading, key_link, row_name, table,
};
use super::escape::{line, name, source_name};
use super::suspension::{Suspension, failed_chips, is_suspended, next_try};
use super::units::size;
use homeostat::controller::{ControllerPhase, ControllerStatus, FailedKey};
use homeostat::manager::ManagerStatus;
use homeostat::watch::SourceStatus;

/// The largest number of rows. Further ones are only counted.
const MOST_ROWS: usize = 40;

/// The urgency of a parked key. Failing keys are less urgent, and all other troubles are more urgent.
const PARKED: u8 = 3;

/// A row. The most urgent rows come first.
struct Trouble {
    urgency: u8,
    /// As HTML, like all texts of a row.
    chips: String,
    part: String,
    subject: String,
    tries: Option<u64>,
    lasts: Option<Duration>,
    /// The class of the cell, and its content.
    next: (&'static str, String),
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
        row_name(out, &row.subject);
        cell(out, "state", "state", &row.chips);
        cell(out, "", "part", &row.part);
        cell(out, "n", "tries", row.tries.map_or_else(|| DASH.to_owned(), |tries| tries.to_string()));
        cell(out, "n", "for", row.lasts.map_or_else(|| DASH.to_owned(), |lasts| data.ago(lasts)));
        cell(out, row.next.0, "next try", &row.next.1);
        cell(out, "why", "why", &row.why);
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></section>");
}

/// Returns the number of troubles, including keys without a row.
pub(super) fn count(status: &ManagerStatus) -> usize {
    let of_controllers = status.controllers.iter().map(|controller| {
        let sources = controller.sources.iter().filter_map(|source| of_source(&controller.name, source)).count();
        let suspended = usize::from(waits_for_resume(controller));
        let overdue = controller.running.iter().filter(|run| run.overdue).count();
        overdue + suspended + sources + controller.metrics.failing + controller.metrics.parked
    });
    let sources = status.sources.iter().filter_map(|source| of_source(&status.name, source)).count();
    usize::from(status.failure.is_some()) + sources + of_controllers.sum::<usize>()
}

fn rows(data: &PageData<'_>) -> Vec<Trouble> {
    let status = data.status;
    let mut rows = Vec::new();
    if let Some((component, error)) = &status.failure {
        rows.push(Trouble {
            urgency: 0,
            chips: chip(ChipColour::Bad, "failed"),
            part: name(component),
            subject: DASH.to_owned(),
            tries: None,
            lasts: None,
            next: nothing(),
            why: detail(&format!("failure {component}"), error),
        });
    }
    for controller in &status.controllers {
        rows.extend(of_runs(controller, data));
        rows.extend(of_suspension(controller, data));
        rows.extend(controller.sources.iter().filter_map(|source| of_source(&controller.name, source)));
        let failed = controller.parked.iter().take(MOST_ROWS).chain(controller.failing.iter().take(MOST_ROWS));
        rows.extend(failed.map(|failed| of_key(controller, failed, data)));
    }
    rows.extend(status.sources.iter().filter_map(|source| of_source(&status.name, source)));
    rows
}

/// Returns the next try of a row that has none.
fn nothing() -> (&'static str, String) {
    ("n", DASH.to_owned())
}

fn waits_for_resume(controller: &ControllerStatus) -> bool {
    controller.phase == ControllerPhase::Suspended && controller.metrics.queue.depth() > 0
}

fn of_suspension(controller: &ControllerStatus, data: &PageData<'_>) -> Option<Trouble> {
    let suspension = Suspension::of_controller(controller, data.past).filter(|_| waits_for_resume(controller))?;
    let waiting = match controller.metrics.queue.depth() {
        1 => "1 key waits".to_owned(),
        depth => format!("{} keys wait", size(depth)),
    };
    let since = suspension.since().map(|since| format!(" <small>{since}</small>")).unwrap_or_default();
    Some(Trouble {
        urgency: 2,
        chips: chip(ChipColour::Warn, "suspended"),
        part: controller_link(&controller.name),
        subject: DASH.to_owned(),
        tries: None,
        lasts: suspension.by().map(|by| data.now().saturating_duration_since(by.at)),
        next: ("wide", "after resume".to_owned()),
        why: format!("{} is suspended, {waiting}{since}", name(&controller.name)),
    })
}

fn of_runs(controller: &ControllerStatus, data: &PageData<'_>) -> impl Iterator<Item = Trouble> {
    controller.running.iter().filter(|run| run.overdue).map(move |run| Trouble {
        urgency: 1,
        chips: chip(ChipColour::Bad, "overdue"),
        part: controller_link(&controller.name),
        subject: key_link(&controller.name, &run.key),
        tries: None,
        lasts: Some(run.elapsed),
        next: nothing(),
        why: match run.timeout.and_then(|timeout| run.elapsed.checked_sub(timeout)) {
            Some(late) => format!("passed its deadline {} ago on {}", data.ago(late), line(&run.thread)),
            None => format!("has passed its deadline on {}", line(&run.thread)),
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
        chips: chip(ChipColour::Bad, state),
        part: name(part),
        subject: source_name(&source.name),
        tries: source.failing_for.is_some().then_some(source.failures_in_a_row.into()),
        lasts: source.failing_for.or(source.listing_for.filter(|_| source.overdue)),
        next: nothing(),
        why: detail(&format!("{part} {}", source.name), &why),
    })
}

fn of_key(controller: &ControllerStatus, failed: &FailedKey<String>, data: &PageData<'_>) -> Trouble {
    Trouble {
        urgency: if failed.parked { PARKED } else { PARKED + 1 },
        chips: failed_chips(failed, is_suspended(controller, &failed.key)),
        part: controller_link(&controller.name),
        subject: key_link(&controller.name, &failed.key),
        tries: Some(failed.failures.into()),
        lasts: Some(data.now().saturating_duration_since(failed.failing_since)),
        next: next_try(controller, failed, data),
        why: detail(&format!("{} {}", controller.name, failed.key), &failed.error),
    }
}
