//! The top of the status page: phase, health with reasons, leadership and a line of figures.

use std::fmt::Write;

use super::data::{ChipColour, PageData, chip, controller_link, figure};
use super::escape::name;
use super::history::{HistorySample, PER_MINUTE, Past};
use super::tab::Tab;
use super::units::{ago, date, size, time};
use super::{attention, controller_page, objects, reasons, timeline};
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
        ("hour", "The last hour", 0, ""),
        ("runs", "Running now", 0, ""),
        ("objects", "Objects", not_ready, " not ready"),
        ("checks", "Health checks", failed, " failed"),
    ] {
        let is_absent = match id {
            "objects" => kinds.is_empty(),
            "hour" => data.status.controllers.is_empty(),
            _ => false,
        };
        if !is_absent {
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
    let of_pool = size(active) + &pool(data);
    let all_delayed = sum(|each| each.metrics.queue.delayed);
    let delayed = size(all_delayed) + &delays(all_delayed, status);
    let own = status.sources.iter().filter(|source| source.failing_for.is_some()).count();
    let class = |count: usize, class: &'static str| if count == 0 { "none" } else { class };
    let count = |out: &mut String, name: &str, count: usize, colour: &'static str| {
        figure(out, name, size(count), class(count, colour));
    };
    out.push_str("<dl class=\"figures\">");
    figure(out, "running", of_pool, class(active, ""));
    figure(out, "waiting", size(depth) + &suspended + &peaks(data), class(depth, ""));
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

/// Describes the threads of the pool, and how busy they were.
fn pool(data: &PageData<'_>) -> String {
    let status = data.status;
    let overdue = status.controllers.iter().flat_map(|of| &of.running).filter(|run| run.overdue).count();
    let extra = timeline::extra_threads(data).min(overdue);
    let extra_words = match (overdue, extra) {
        (0, _) => String::new(),
        (_, 0) => format!(", {} hung", size(overdue)),
        (1, _) => ", plus 1 in place of a hung one; the hung run counts".to_owned(),
        _ => format!(", plus {} in place of {} hung ones; the hung runs count", size(extra), size(overdue)),
    };
    let all = status.controllers.iter().map(|of| of.name.as_str());
    let past = data.history.of_all(all, Past::FiveMinutes);
    let [last, _] = past.two_minutes();
    let busy = if last.len() < PER_MINUTE { None } else { busy(last, status.threads + extra) };
    let busy = busy.map(|percent| format!("<br><small>busy {percent:.0} % of the last minute</small>"));
    format!("<br><small>of a pool of {} threads{extra_words}</small>{}", size(status.threads), busy.unwrap_or_default())
}

/// Returns how much of the time of these samples the threads ran keys, in percent. `None` without threads.
#[expect(clippy::cast_precision_loss, reason = "a ratio, shown with two digits")]
fn busy(samples: &[HistorySample], threads: usize) -> Option<f64> {
    let active: f64 = samples.iter().map(|sample| sample.active).sum();
    let all = (samples.len() * threads) as f64;
    (all > 0.0).then(|| (active * 100.0 / all).min(100.0))
}

/// Compares the largest number of waiting keys in the last minute with that of the minute before, without suspended
/// controllers.
fn peaks(data: &PageData<'_>) -> String {
    let active = || data.status.controllers.iter().filter(|of| of.phase != ControllerPhase::Suspended);
    let depth: usize = active().map(|of| of.metrics.queue.depth()).sum();
    let past = data.history.of_all(active().map(|of| of.name.as_str()), Past::FiveMinutes);
    let peak = |samples: &[HistorySample]| samples.iter().map(|sample| sample.depth).max();
    let [last, before] = past.two_minutes().map(peak);
    let last = last.unwrap_or_default().max(depth);
    match before {
        Some(before) if (last, before) != (0, 0) => {
            format!("<br><small>peak {} in the last minute, {} before</small>", size(last), size(before))
        }
        _ => String::new(),
    }
}

/// Adds the charts of the last hour of all controllers together.
pub(super) fn hour(out: &mut String, data: &PageData<'_>) {
    let status = data.status;
    if status.controllers.is_empty() {
        return;
    }
    let past = data.history.of_all(status.controllers.iter().map(|of| of.name.as_str()), Past::Hour);
    let waiting =
        if status.controllers.len() == 1 { "peak of waiting keys" } else { "sum of the peaks of waiting keys" };
    controller_page::hour(out, &past, waiting, status.threads);
}
