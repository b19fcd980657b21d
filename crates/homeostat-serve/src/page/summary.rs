//! The top of the status page: phase, health with reasons, leadership and a line of figures.

use std::fmt::Write;
use std::time::Duration;

use super::data::{ChipColour, PageData, chip};
use super::escape::{line, lines};
use super::units::{size, span, stamp, time_of_day};
use crate::status::{CheckResult, all_ok};
use homeostat::controller::ControllerStatus;
use homeostat::manager::ManagerStatus;

/// Adds the page's header.
pub(super) fn header(out: &mut String, data: &PageData<'_>) {
    let PageData { status, live, ready, .. } = data;
    // Writing to a `String` cannot fail.
    let _ = write!(
        out,
        "<header data-health=\"{}\"><div class=\"title\"><h1>{}</h1><p class=\"chips\">{}{}{}</p></div>",
        line(&in_words(live, ready)),
        line(&status.name),
        phase(status),
        health("live", "not live", live),
        health("ready", "not ready", ready)
    );
    let _ = write!(out, "<p class=\"facts\">{}</p>", facts(data).join(" · "));
    reasons(out, live, ready);
    out.push_str("</header>");
}

/// Returns the health as words, to be announced when it changes.
fn in_words(live: &[CheckResult], ready: &[CheckResult]) -> String {
    match (all_ok(live), all_ok(ready)) {
        (true, true) => "live and ready".to_owned(),
        (true, false) => "live, not ready".to_owned(),
        (false, true) => "not live, but ready".to_owned(),
        (false, false) => "not live, not ready".to_owned(),
    }
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
fn reasons(out: &mut String, live: &[CheckResult], ready: &[CheckResult]) {
    if all_ok(live) && all_ok(ready) {
        return;
    }
    out.push_str("<ul class=\"reasons\" aria-label=\"Reasons\">");
    let new = ready.iter().filter(|result| !live.contains(result)).map(|result| ("not ready", result));
    for (kind, CheckResult { name, failure }) in live.iter().map(|result| ("not live", result)).chain(new) {
        if let Some(reason) = failure {
            let _ = write!(out, "<li><b>{kind}</b> {}: {}</li>", line(name), lines(reason));
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
    facts.push(format!("pid {}", process.id));
    if let Some(up) = process.started.and_then(|started| status.time_of_day.duration_since(started).ok()) {
        facts.push(format!("up {}", span(up)));
    }
    if let Some(bytes) = process.resident_bytes {
        facts.push(format!("{} MiB", size(usize::try_from(bytes >> 20).unwrap_or_default())));
    }
    if let Some(threads) = process.threads {
        facts.push(format!("{threads} threads"));
    }
    let (time, stamp) = (time_of_day(status.time_of_day), stamp(status.time_of_day));
    facts.push(format!("<time datetime=\"{stamp}\">{time} UTC</time>"));
    facts
}

/// Returns the leadership as a sentence. `None` without an elector.
fn leadership(status: &ManagerStatus) -> Option<String> {
    if !status.elected {
        return None;
    }
    let time = status.leader_for.map(|time| format!(" for {}", span(time))).unwrap_or_default();
    Some(match (&status.leader, status.leading) {
        (Some(leader), true) => format!("<b>leads</b>{time} as {}", line(&leader.to_string())),
        (None, true) => "<b>leads</b>".to_owned(),
        (Some(leader), false) => format!("standby; {} leads{time}", line(&leader.to_string())),
        (None, false) => "standby; the leader is not known".to_owned(),
    })
}

/// Adds a line of figures for all controllers together.
pub(super) fn figures(out: &mut String, status: &ManagerStatus) {
    let sum = |of: fn(&ControllerStatus) -> usize| status.controllers.iter().map(of).sum::<usize>();
    let oldest = status.controllers.iter().filter_map(|controller| controller.oldest_waiting.as_ref());
    let oldest = oldest.map(|(_, age)| *age).max().unwrap_or(Duration::ZERO);
    let (active, most) = (sum(|each| each.metrics.runs.active), sum(|each| each.metrics.max_concurrent_reconciles));
    let overdue = sum(|each| each.running.iter().filter(|run| run.overdue).count());
    let own = status.sources.iter().filter(|source| source.failing_for.is_some()).count();
    out.push_str("<dl class=\"figures\">");
    let mut figure = |name: &str, value: &str, class: &str| {
        let _ = write!(out, "<div><dt>{name}</dt><dd class=\"{class}\">{value}</dd></div>");
    };
    let class = |count: usize, class: &'static str| if count == 0 { "none" } else { class };
    figure("running", &format!("{active}<small> / {most}</small>"), "");
    let depth = sum(|each| each.metrics.queue.depth());
    figure("waiting", &size(depth), class(depth, ""));
    figure("oldest waits", &if depth == 0 { "–".to_owned() } else { span(oldest) }, class(depth, ""));
    let delayed = sum(|each| each.metrics.queue.delayed);
    figure("delayed", &size(delayed), class(delayed, ""));
    let failing = sum(|each| each.metrics.failing);
    figure("failing", &size(failing), class(failing, "warn"));
    let parked = sum(|each| each.metrics.parked);
    figure("given up", &size(parked), class(parked, "bad"));
    figure("overdue", &size(overdue), class(overdue, "bad"));
    let sources = sum(|each| each.metrics.failing_sources) + own;
    figure("sources failing", &size(sources), class(sources, "bad"));
    out.push_str("</dl>");
}
