//! The top of the status page: phase, health with reasons, leadership and a line of figures.

use std::cmp::Ordering;
use std::fmt::Write;

use super::data::{ChipColour, PageData, chip, controller_link, figure};
use super::escape::name;
use super::history::Past;
use super::tab::Tab;
use super::units::{ago, date, size, time};
use super::{attention, objects, reasons};
use crate::api::KindCount;
use crate::status::{CheckKind, CheckResult, all_ok};
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
    let PageData { live, ready, .. } = *data;
    if all_ok(live) && all_ok(ready) {
        return;
    }
    out.push_str("<ul class=\"reasons\" aria-label=\"Reasons\">");
    let new = ready.iter().filter(|result| !live.contains(result));
    let all = live.iter().map(|result| (CheckKind::Live, result)).chain(new.map(|result| (CheckKind::Ready, result)));
    for (kind, result) in all.filter(|(_, result)| result.failure.is_some()) {
        let word = if kind == CheckKind::Live { "not live" } else { "not ready" };
        let _ = write!(out, "<li><b>{word}</b> {}</li>", reasons::sentence(kind, result, data));
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
    if let Some(host) = &process.host {
        facts.push(format!("host {}", name(host)));
    }
    facts.push(format!("pid {}", process.id));
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
            let own = leader.name.as_deref().map(|own| format!(" · leader name {}", name(own))).unwrap_or_default();
            format!("<b>leads</b>{time}{own}")
        }
        (None, true) => "<b>leads</b>".to_owned(),
        (Some(leader), false) => format!("standby; {} leads{time}", name(&leader.to_string())),
        (None, false) => "standby; the leader is not known".to_owned(),
    })
}

/// Adds a line of figures for all controllers together.
pub(super) fn figures(out: &mut String, data: &PageData<'_>) {
    let status = data.status;
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
    let active = sum(|each| each.metrics.runs.active);
    let of_pool = format!("{}<br><small>of a pool of {} threads</small>", size(active), size(status.threads));
    let all_delayed = sum(|each| each.metrics.queue.delayed);
    let delayed = size(all_delayed) + &delays(all_delayed, status);
    let own = status.sources.iter().filter(|source| source.failing_for.is_some()).count();
    let class = |count: usize, class: &'static str| if count == 0 { "none" } else { class };
    let count = |out: &mut String, name: &str, count: usize, colour: &'static str| {
        figure(out, name, size(count), class(count, colour));
    };
    out.push_str("<dl class=\"figures\">");
    figure(out, "running", of_pool, class(active, ""));
    figure(out, "waiting", size(depth) + &suspended + &trend(depth, data), class(depth, ""));
    figure(out, "oldest wait", oldest, class(depth, ""));
    figure(out, "delayed", delayed, class(all_delayed, ""));
    count(out, "failing", sum(|each| each.metrics.failing), "warn");
    count(out, "parked", sum(|each| each.metrics.parked), "bad");
    count(out, "overdue", sum(|each| each.running.iter().filter(|run| run.overdue).count()), "bad");
    count(out, "sources failing", sum(|each| each.metrics.failing_sources) + own, "bad");
    out.push_str("</dl>");
}

/// Describes the delayed keys: retries of failed keys, and all others.
fn delays(delayed: usize, status: &ManagerStatus) -> String {
    let failing = status.controllers.iter().flat_map(|controller| &controller.failing);
    let retries = failing.filter(|failed| failed.next_try.is_some()).count().min(delayed);
    let part = |count: usize, word: &str| (count > 0).then(|| format!("{word}: {}", size(count)));
    let parts = [part(retries, "retries"), part(delayed - retries, "due later")];
    match parts.into_iter().flatten().collect::<Vec<_>>().join(", ") {
        parts if parts.is_empty() => parts,
        parts => format!("<br><small>{parts}</small>"),
    }
}

/// Compares the number of waiting keys with the number a minute ago.
fn trend(depth: usize, data: &PageData<'_>) -> String {
    let of = |name: &String| data.history.of(name, Past::FiveMinutes).a_minute_ago().map(|sample| sample.depth);
    let past: Vec<_> = data.status.controllers.iter().filter_map(|controller| of(&controller.name)).collect();
    let before: usize = past.iter().sum();
    if past.is_empty() || (before, depth) == (0, 0) {
        return String::new();
    }
    let word = match depth.cmp(&before) {
        Ordering::Less => "falling",
        Ordering::Equal => "steady",
        Ordering::Greater => "rising",
    };
    format!("<br><small>{word}, {} a minute before</small>", size(before))
}
