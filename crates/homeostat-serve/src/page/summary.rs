//! The top of the status page: phase, health with reasons, leadership and a line of figures.

use std::fmt::Write;

use super::attention;
use super::data::{ChipColour, PageData, chip, controller_link, figure};
use super::escape::{lines, name};
use super::objects;
use super::tab::Tab;
use super::units::{ago, date, size, time};
use crate::api::KindCount;
use crate::status::{CheckResult, all_ok};
use homeostat::controller::{ControllerPhase, ControllerStatus};
use homeostat::manager::ManagerStatus;

/// Adds the page's header.
pub(super) fn header(out: &mut String, data: &PageData<'_>, tab: &Tab) {
    let PageData { status, live, ready, .. } = data;
    // Writing to a `String` cannot fail.
    let _ = write!(
        out,
        "<header {}><div class=\"title\"><h1>{}</h1><p class=\"chips\">{}{}{}</p></div>",
        tab.attributes(),
        name(&status.name),
        phase(status),
        health("live", "not live", live),
        health("ready", "not ready", ready)
    );
    let _ = write!(out, "<p class=\"facts\">{}</p>", facts(data).join(" · "));
    reasons(out, data);
    out.push_str("</header>");
}

/// Adds the links to the sections, with their troubles.
pub(super) fn sections(out: &mut String, data: &PageData<'_>, kinds: &[KindCount]) {
    let failed = |results: &[CheckResult]| results.iter().filter(|result| result.failure.is_some()).count();
    let (not_ready, failed) = (objects::not_ready(kinds), failed(data.live) + failed(data.ready));
    out.push_str("<nav class=\"sections\" aria-label=\"Sections\">");
    for (id, title, number, words) in [
        ("attention", "Needs attention", attention::count(data.status, kinds), ""),
        ("controllers", "Controllers", 0, ""),
        ("runs", "Running now", 0, ""),
        ("objects", "Objects", not_ready, " not ready"),
        ("checks", "Health checks", failed, " failed"),
    ] {
        if id != "objects" || !kinds.is_empty() {
            let trouble =
                if number > 0 { format!(" <b class=\"warn\">{}{words}</b>", size(number)) } else { String::new() };
            let _ = write!(out, "<span><a href=\"#{id}\">{title}</a>{trouble}</span>");
        }
    }
    out.push_str("</nav>");
}

fn phase(status: &ManagerStatus) -> String {
    let colour = match status.doing {
        "running" => ChipColour::Good,
        "ended" | "stopping" => ChipColour::Bad,
        _ => ChipColour::Warn,
    };
    chip(colour, status.doing)
}

fn health(good: &str, bad: &str, results: &[CheckResult]) -> String {
    if all_ok(results) { chip(ChipColour::Good, good) } else { chip(ChipColour::Bad, bad) }
}

/// Adds the failed checks with their reasons. A check that fails in both groups is listed once.
fn reasons(out: &mut String, data: &PageData<'_>) {
    let PageData { status, live, ready, .. } = *data;
    if all_ok(live) && all_ok(ready) {
        return;
    }
    out.push_str("<ul class=\"reasons\" aria-label=\"Reasons\">");
    let new = ready.iter().filter(|result| !live.contains(result)).map(|result| ("not ready", result));
    for (kind, CheckResult { name, failure }) in live.iter().map(|result| ("not live", result)).chain(new) {
        if let Some(reason) = failure {
            // The check of a controller has its name.
            let is_controller = status.controllers.iter().any(|controller| controller.name == *name);
            let subject = if is_controller { controller_link(name) } else { self::name(name) };
            let _ = write!(out, "<li><b>{kind}</b> {subject}: {}</li>", lines(reason));
        }
    }
    out.push_str("</ul>");
}

fn facts(data: &PageData<'_>) -> Vec<String> {
    let PageData { status, process, .. } = data;
    let mut facts = Vec::new();
    if let Some(leadership) = leadership(status) {
        facts.push(leadership);
    }
    if let Some(version) = data.version {
        facts.push(format!("version {}", name(version)));
    }
    let host = process.host.as_deref().map(|host| format!(" on {}", name(host))).unwrap_or_default();
    facts.push(format!("pid {}{host}", process.id));
    if let Some(started) = process.started
        && let Ok(up) = status.time_of_day.duration_since(started)
    {
        facts.push(format!("up {} since {} {}", data.ago(up), date(started), time(started)));
    }
    if let Some(bytes) = process.resident_bytes {
        facts.push(format!("{} MiB", size(usize::try_from(bytes >> 20).unwrap_or_default())));
    }
    if let Some(threads) = process.threads {
        facts.push(format!("{threads} threads"));
    }
    facts.push(time(status.time_of_day));
    facts
}

/// Returns the leadership as a sentence. `None` without an elector.
fn leadership(status: &ManagerStatus) -> Option<String> {
    if !status.elected {
        return None;
    }
    let time = status.leader_for.map(|time| format!(" for {}", ago(status.time_of_day, time))).unwrap_or_default();
    Some(match (&status.leader, status.leading) {
        // The process follows among the facts.
        (Some(leader), true) => {
            let own = leader.name.as_deref().map(|own| format!(" as {}", name(own))).unwrap_or_default();
            format!("<b>leads</b>{time}{own}")
        }
        (None, true) => "<b>leads</b>".to_owned(),
        (Some(leader), false) => format!("standby; {} leads{time}", name(&leader.to_string())),
        (None, false) => "standby; the leader is not known".to_owned(),
    })
}

/// Adds a line of figures for all controllers together.
pub(super) fn figures(out: &mut String, status: &ManagerStatus) {
    let sum = |of: fn(&ControllerStatus) -> usize| status.controllers.iter().map(of).sum::<usize>();
    let waits = status.controllers.iter().filter_map(|of| Some((of.oldest_waiting.as_ref()?.1, &of.name)));
    let oldest = waits.max().map_or_else(
        || "–".to_owned(),
        |(age, of)| format!("{}<br><small>{}</small>", ago(status.time_of_day, age), controller_link(of)),
    );
    let suspended = status.controllers.iter().filter(|controller| controller.phase == ControllerPhase::Suspended);
    let suspended = match suspended.map(|controller| controller.metrics.queue.depth()).sum() {
        0 => String::new(),
        depth => format!("<br><small>{} suspended</small>", size(depth)),
    };
    let depth = sum(|each| each.metrics.queue.depth());
    let own = status.sources.iter().filter(|source| source.failing_for.is_some()).count();
    let class = |count: usize, class: &'static str| if count == 0 { "none" } else { class };
    let count = |out: &mut String, name: &str, count: usize, colour: &'static str| {
        figure(out, name, size(count), class(count, colour));
    };
    out.push_str("<dl class=\"figures\">");
    count(out, "running", sum(|each| each.metrics.runs.active), "");
    figure(out, "waiting", size(depth) + &suspended, class(depth, ""));
    figure(out, "oldest wait", oldest, class(depth, ""));
    count(out, "delayed", sum(|each| each.metrics.queue.delayed), "");
    count(out, "failing", sum(|each| each.metrics.failing), "warn");
    count(out, "parked", sum(|each| each.metrics.parked), "bad");
    count(out, "overdue", sum(|each| each.running.iter().filter(|run| run.overdue).count()), "bad");
    count(out, "sources failing", sum(|each| each.metrics.failing_sources) + own, "bad");
    out.push_str("</dl>");
}
