//! The section *needs attention*: stuck runs, failing sources, failed keys, and objects that are not ready.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::data::{
    ChipColour, DASH, PageData, cell, chip, controller_link, detail, heading, key_link, row_name, table,
};
use super::escape::{line, name, path, source_name};
use super::object_parts::{object_link, readiness};
use super::objects;
use super::sources::next_try as next_listing;
use super::suspension::{Suspension, failed_chips, is_suspended, next_try, suspended_keys};
use super::units::size;
use crate::api::{KindCount, ObjectCount, full_name};
use homeostat::controller::{ControllerPhase, ControllerStatus, FailedKey};
use homeostat::manager::ManagerStatus;
use homeostat::watch::SourceStatus;
use homeostat_objects::SharedObject;

/// The largest number of rows without a request for all.
const MOST_ROWS: usize = 40;

/// The number of keys with one error that share a row.
const LEAST_GROUP: usize = 3;

/// The largest number of links in the row of a group.
const MOST_LINKS: usize = 20;

/// The urgency of a parked key. Failing keys are less urgent, and all other troubles are more urgent.
const PARKED: u8 = 3;

/// The urgency of an object that is not ready. Its key may have a row too, which says more.
const OBJECT: u8 = PARKED + 2;

/// A row. The most urgent rows come first.
pub(super) struct Trouble {
    urgency: u8,
    /// The number of troubles that the row shows.
    count: usize,
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

impl Trouble {
    /// Returns the row of a suspended key that has not failed.
    fn suspended(controller: &ControllerStatus, key: &str, data: &PageData<'_>) -> Self {
        let suspension = Suspension::of_key(controller, key, data.past);
        Self {
            lasts: suspension.as_ref().map(|of| data.now().saturating_duration_since(of.since)),
            next: ("wide", suspension.map_or_else(|| DASH.to_owned(), |of| of.next(data.times()))),
            why: DASH.to_owned(),
            ..Self::new(PARKED, chip(ChipColour::Warn, "suspended"), &controller.name, key)
        }
    }

    /// Returns a row about a key without further facts.
    fn new(urgency: u8, chips: String, controller: &str, key: &str) -> Self {
        Self {
            urgency,
            count: 1,
            chips,
            part: controller_link(controller),
            subject: if key.is_empty() { DASH.to_owned() } else { key_link(controller, key) },
            tries: None,
            lasts: None,
            next: ("n", DASH.to_owned()),
            why: String::new(),
        }
    }
}

/// Adds the section.
pub(super) fn section(out: &mut String, data: &PageData<'_>, kinds: &[KindCount]) {
    let mut parts = rows(data);
    parts.extend(kinds.iter().filter_map(|kind| of_objects(kind, data)));
    let rows = most_urgent(parts, data.most(MOST_ROWS));
    out.push_str("<section aria-labelledby=\"attention\">");
    if rows.is_empty() {
        out.push_str(&heading("attention", "Needs attention", ""));
        out.push_str("<p class=\"calm\">Nothing.</p></section>");
        return;
    }
    out.push_str(&heading(
        "attention",
        "Needs attention",
        &data.remark("attention", shown(&rows), count(data.status, kinds)),
    ));
    let caption = "Failed and suspended keys, failing sources, overdue runs and objects that are not ready, the most urgent first";
    table_of(out, caption, &rows, true, data);
    out.push_str("</section>");
}

/// Returns the number of troubles in these rows.
pub(super) fn shown(rows: &[Trouble]) -> usize {
    rows.iter().map(|row| row.count).sum()
}

/// Chooses rows in turn from each part, so that one part does not displace the others.
fn most_urgent(parts: Vec<Vec<Trouble>>, most: usize) -> Vec<Trouble> {
    let mut rows = Vec::new();
    for mut of_part in parts {
        of_part.sort_by_key(|row| row.urgency);
        rows.extend(of_part.into_iter().enumerate());
    }
    rows.sort_by_key(|(rank, row)| (*rank, row.urgency));
    rows.truncate(most);
    rows.sort_by_key(|(_, row)| row.urgency);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Adds the table of these rows. `has_part` says whether each row names its controller.
pub(super) fn table_of(out: &mut String, caption: &str, rows: &[Trouble], has_part: bool, data: &PageData<'_>) {
    let first = if has_part { "key or source" } else { "key" };
    let mut heads = vec![("", first), ("", "state"), ("", "belongs to")];
    heads.truncate(if has_part { 3 } else { 2 });
    heads.extend([("n", "tries"), ("n", "for"), ("n", "next try"), ("why", "why")]);
    table(out, "attention", caption, &heads);
    for row in rows {
        row_name(out, &row.subject);
        cell(out, "state", "state", &row.chips);
        if has_part {
            cell(out, "", "belongs to", &row.part);
        }
        let most = if row.count > 1 { "up to " } else { "" };
        cell(out, "n", "tries", row.tries.map_or_else(|| DASH.to_owned(), |tries| format!("{most}{tries}")));
        cell(out, "n", "for", row.lasts.map_or_else(|| DASH.to_owned(), |lasts| most.to_owned() + &data.ago(lasts)));
        cell(out, row.next.0, "next try", &row.next.1);
        cell(out, "why", "why", &row.why);
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
}

/// Returns the rows of the objects of a kind that are not ready. Many objects share a row.
fn of_objects(KindCount { kind, count, .. }: &KindCount, data: &PageData<'_>) -> Option<Vec<Trouble>> {
    let ObjectCount { not_ready, first, .. } = count.as_ref()?.as_ref().ok()?;
    let page = path(&["objects", &full_name(kind)]);
    let part = format!("<a href=\"{page}\">{}</a>", name(kind.name()));
    let row = |object: &SharedObject| {
        let ready = readiness(object);
        let since = ready.since.and_then(|since| data.status.time_of_day.duration_since(since).ok());
        Trouble {
            lasts: since,
            part: part.clone(),
            subject: object_link(kind, &object.key()),
            why: detail(&format!("object {kind} {}", object.key()), &ready.message),
            ..Trouble::new(OBJECT, ready.chip, "", "")
        }
    };
    let rows: Vec<_> = first.iter().map(row).collect();
    if *not_ready < LEAST_GROUP {
        return Some(rows);
    }
    let more = match not_ready - rows.len() {
        0 => String::new(),
        more => format!(" <a href=\"{page}\">and {} more</a>", size(more)),
    };
    let links = rows.iter().map(|row| row.subject.as_str()).collect::<Vec<_>>().join(" ");
    let longest = rows.into_iter().max_by_key(|row| row.lasts)?;
    Some(vec![Trouble {
        count: *not_ready,
        subject: format!(
            "<details data-id=\"objects {}\"><summary>{} objects</summary>{links}{more}</details>",
            line(&full_name(kind)),
            size(*not_ready)
        ),
        ..longest
    }])
}

/// Returns the number of troubles, including keys and objects without a row.
pub(super) fn count(status: &ManagerStatus, kinds: &[KindCount]) -> usize {
    let of_controllers = status.controllers.iter().map(|controller| {
        let sources = controller.sources.iter().filter(|source| trouble_of(source).is_some()).count();
        let suspended = usize::from(waits_for_resume(controller));
        let overdue = controller.running.iter().filter(|run| run.overdue).count();
        let keys = controller.metrics.failing + controller.metrics.parked + only_suspended(controller).len();
        overdue + suspended + sources + keys
    });
    let sources = status.sources.iter().filter(|source| trouble_of(source).is_some()).count();
    usize::from(status.failure.is_some()) + sources + of_controllers.sum::<usize>() + objects::not_ready(kinds)
}

/// Returns the rows of each part.
fn rows(data: &PageData<'_>) -> Vec<Vec<Trouble>> {
    let status = data.status;
    let failure = status.failure.as_ref().map(|(component, error)| Trouble {
        part: name(component),
        why: detail(&format!("failure {component}"), error),
        ..Trouble::new(0, chip(ChipColour::Bad, "failed"), component, "")
    });
    let sources = status.sources.iter().filter_map(|source| of_source(&status.name, source, data));
    let mut rows = vec![failure.into_iter().chain(sources).collect()];
    for controller in &status.controllers {
        let part = controller_link(&controller.name);
        let sources = controller.sources.iter().filter_map(|source| of_source(&controller.name, source, data));
        let sources = sources.map(|row| Trouble { part: part.clone(), ..row });
        let mut of_controller: Vec<_> = of_runs(controller, data).collect();
        of_controller.extend(of_suspension(controller, data));
        of_controller.extend(sources);
        of_controller.extend(of_keys(controller, data, data.most(MOST_ROWS)));
        of_controller.extend(of_suspended_keys(controller, data, data.most(MOST_ROWS)));
        rows.push(of_controller);
    }
    rows
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
    let since = suspension.since(data.times());
    Some(Trouble {
        lasts: Some(data.now().saturating_duration_since(suspension.since)),
        next: ("wide", "after resume".to_owned()),
        subject: controller_link(&controller.name),
        why: format!("{} is suspended, {waiting} <small>{since}</small>", name(&controller.name)),
        ..Trouble::new(2, chip(ChipColour::Warn, "suspended"), &controller.name, "")
    })
}

fn of_runs(controller: &ControllerStatus, data: &PageData<'_>) -> impl Iterator<Item = Trouble> {
    controller.running.iter().filter(|run| run.overdue).map(move |run| Trouble {
        lasts: Some(run.elapsed),
        why: match run.timeout.and_then(|timeout| run.elapsed.checked_sub(timeout)) {
            Some(late) => format!("passed its deadline {} ago on {}", data.ago(late), line(&run.thread)),
            None => format!("has passed its deadline on {}", line(&run.thread)),
        },
        ..Trouble::new(1, chip(ChipColour::Bad, "overdue"), &controller.name, &run.key)
    })
}

/// Returns the trouble of a source in a word or two.
fn trouble_of(source: &SourceStatus) -> Option<&'static str> {
    match source {
        SourceStatus { overdue: true, .. } => Some("overdue"),
        SourceStatus { failing_for: Some(_), .. } => Some("source fails"),
        SourceStatus { undecodable: 1.., .. } => Some("undecodable"),
        _ => None,
    }
}

fn of_source(part: &str, source: &SourceStatus, data: &PageData<'_>) -> Option<Trouble> {
    let state = trouble_of(source)?;
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
        part: name(part),
        subject: source_name(&source.name),
        tries: source.failing_for.is_some().then_some(source.failures_in_a_row.into()),
        lasts: source.failing_for.or(source.listing_for.filter(|_| source.overdue)),
        next: ("n", next_listing(source, data)),
        why: detail(&format!("{part} {}", source.name), &why),
        ..Trouble::new(2, chip(ChipColour::Bad, state), part, "")
    })
}

/// Returns the first rows of a controller's failed keys. Keys with one error share a row, unless all are to be shown.
pub(super) fn of_keys(controller: &ControllerStatus, data: &PageData<'_>, most: usize) -> Vec<Trouble> {
    let suspended = suspended_keys(controller);
    let mut known = HashMap::new();
    let mut groups: Vec<Vec<&FailedKey<String>>> = Vec::new();
    for failed in controller.parked.iter().chain(&controller.failing) {
        if data.all || suspended.contains(&*failed.key) {
            groups.push(vec![failed]);
            continue;
        }
        let at = *known.entry((failed.parked, failed.error.as_str())).or_insert(groups.len());
        if at == groups.len() {
            groups.push(Vec::new());
        }
        groups[at].push(failed);
    }
    let of_group = |keys: Vec<&FailedKey<String>>| -> Vec<Trouble> {
        if keys.len() >= LEAST_GROUP {
            return vec![of_group(controller, &keys, data)];
        }
        keys.into_iter().map(|failed| of_key(controller, failed, data)).collect()
    };
    groups.into_iter().flat_map(of_group).take(most).collect()
}

/// Returns the keys that are suspended, but have not failed.
pub(super) fn only_suspended(controller: &ControllerStatus) -> Vec<&str> {
    let failed: BTreeSet<_> = controller.parked.iter().chain(&controller.failing).map(|failed| &failed.key).collect();
    let suspended = controller.suspended.iter().map(|(key, _)| key);
    suspended.filter(|key| !failed.contains(key)).map(String::as_str).collect()
}

/// Returns the first rows of a controller's keys that are suspended, but have not failed.
pub(super) fn of_suspended_keys(controller: &ControllerStatus, data: &PageData<'_>, most: usize) -> Vec<Trouble> {
    let keys = only_suspended(controller).into_iter().take(most);
    keys.map(|key| Trouble::suspended(controller, key, data)).collect()
}

fn of_key(controller: &ControllerStatus, failed: &FailedKey<String>, data: &PageData<'_>) -> Trouble {
    let urgency = if failed.parked { PARKED } else { PARKED + 1 };
    let chips = failed_chips(failed, is_suspended(controller, &failed.key));
    Trouble {
        tries: Some(failed.failures.into()),
        lasts: Some(data.now().saturating_duration_since(failed.failing_since)),
        next: next_try(controller, failed, data),
        why: detail(&format!("{} {}", controller.name, failed.key), &failed.error),
        ..Trouble::new(urgency, chips, &controller.name, &failed.key)
    }
}

/// Returns the row of keys with one error: the most tries, the longest time and the first next try.
fn of_group(controller: &ControllerStatus, keys: &[&FailedKey<String>], data: &PageData<'_>) -> Trouble {
    let next = keys.iter().min_by_key(|failed| failed.next_try).copied().unwrap_or(keys[0]);
    let of = &controller.name;
    let links: Vec<_> = keys.iter().take(MOST_LINKS).map(|failed| key_link(of, &failed.key)).collect();
    let all = format!(
        "<a href=\"{}?all=1#keys\">all failed keys of {} with tries and next try</a> ",
        path(&["controllers", of]),
        name(of)
    );
    let more = match keys.len().saturating_sub(MOST_LINKS) {
        0 => String::new(),
        more => format!(" <span>and {} more</span>", size(more)),
    };
    let id = format!("group {of} {} {}", next.parked, next.error);
    let of_next = of_key(controller, next, data);
    let (class, text) = of_next.next;
    let is_time = class == "n" && next.next_try.is_some();
    Trouble {
        next: (class, if is_time { format!("first {text}") } else { text }),
        count: keys.len(),
        subject: format!(
            "<details data-id=\"{}\"><summary>{} keys</summary>{all}{}{more}</details>",
            line(&id),
            size(keys.len()),
            links.join(" ")
        ),
        tries: keys.iter().map(|failed| failed.failures.into()).max(),
        lasts: keys.iter().map(|failed| data.now().saturating_duration_since(failed.failing_since)).max(),
        ..of_next
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_rows_and_the_most_urgent_come_first() {
        let row = |urgency, name: &str| Trouble::new(urgency, String::new(), name, "");
        let noisy = (0..100).map(|_| row(4, "noisy")).collect();
        let parts = vec![noisy, vec![row(4, "quiet"), row(1, "quiet")], vec![row(3, "calm")]];
        let rows: Vec<_> = most_urgent(parts, 6).iter().map(|row| (row.urgency, row.part.clone())).collect();
        let of = |urgency, name| (urgency, controller_link(name));
        let expected = [of(1, "quiet"), of(3, "calm"), of(4, "noisy"), of(4, "noisy"), of(4, "quiet"), of(4, "noisy")];
        assert_eq!(rows, expected);
    }
}
