//! The top of the status page: phase, health with reasons, leadership and a line of figures.

use std::fmt::Write;

use super::clock_times::clock_time;
use super::data::{ChipColour, PageData, chip, controller_link, figure};
use super::escape::name;
use super::history::{HistorySample, Past};
use super::suspension::suspended_keys;
use super::tab::Tab;
use super::units::{ago, date, size, time};
use super::{attention, controller_page, load, objects, reasons, timeline};
use crate::api::KindCount;
use crate::status::{CheckResult, all_ok};
use homeostat::controller::{ControllerPhase, ControllerStatus};
use homeostat::manager::ManagerStatus;

/// The largest number of controllers at their limits that a figure names.
const MOST_LIMITS: usize = 3;

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
    reasons::list(out, data, |_| true);
    out.push_str("</header>");
}

/// Adds the links to the sections, with their troubles.
pub(super) fn sections(out: &mut String, data: &PageData<'_>, kinds: &[KindCount], has_server: bool) {
    let all_sources = || data.status.sources.iter().chain(data.status.controllers.iter().flat_map(|of| &of.sources));
    let (has_sources, sources) = (all_sources().next().is_some(), failing_sources(data.status));
    let failed = |results: &[CheckResult]| results.iter().filter(|result| result.failure.is_some()).count();
    let (not_ready, failed) = (objects::not_ready(kinds), failed(data.live) + failed(data.ready));
    out.push_str("<nav class=\"sections\" aria-label=\"Sections\">");
    for (id, title, number, words) in [
        ("attention", "Needs attention", attention::count(data.status, kinds), ""),
        ("controllers", "Controllers", 0, ""),
        ("hour", "The last hour", 0, ""),
        ("runs", "Running now", 0, ""),
        ("sources", "Sources", sources, " failing"),
        ("objects", "Objects", not_ready, " not ready"),
        ("checks", "Health checks", failed, " failed"),
        ("server", "This server", 0, ""),
        ("actions", "Last actions", 0, ""),
        ("program", "This program", 0, ""),
    ] {
        let is_absent = match id {
            "objects" => kinds.is_empty(),
            "hour" => data.status.controllers.is_empty(),
            "sources" => !has_sources,
            "server" => !has_server,
            "actions" => data.past.last(1, |_| true).is_empty(),
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
    let now = status.time_of_day;
    let since = status.leader_for.and_then(|time| now.checked_sub(time));
    let time = since.map(|since| format!(" since {}", clock_time(now, since))).unwrap_or_default();
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
    let takers = || status.controllers.iter().filter(|of| of.phase == ControllerPhase::Running);
    let waits = takers().filter_map(|of| Some((of.oldest_waiting.as_ref()?.1, &of.name)));
    let oldest = waits.max().map_or_else(
        || "–".to_owned(),
        |(age, of)| format!("{}<br><small>{}</small>", ago(status.time_of_day, age), controller_link(of)),
    );
    let waiting = takers().map(|of| of.metrics.queue.depth()).sum();
    let all_waiting = sum(|each| each.metrics.queue.depth());
    let oldest = if all_waiting > waiting { oldest + "<br><small>without held keys</small>" } else { oldest };
    let held = match all_waiting - waiting {
        0 => String::new(),
        held => format!("<br><small>and {} held in controllers that take no keys now</small>", size(held)),
    };
    let active = sum(|each| each.metrics.runs.active);
    let all_delayed = sum(|each| each.metrics.queue.delayed);
    let delayed = size(all_delayed) + &delays(all_delayed, status);
    let class = |count: usize, class: &'static str| if count == 0 { "none" } else { class };
    let count = |out: &mut String, name: &str, count: usize, colour: &'static str| {
        figure(out, name, size(count), class(count, colour));
    };
    out.push_str("<dl class=\"figures\">");
    figure(out, "running", pool(active, data), class(active, ""));
    figure(out, "waiting", size(waiting) + &peaks(waiting, data) + &limits(status) + &held, class(waiting, ""));
    figure(out, "oldest wait", oldest, class(waiting, ""));
    figure(out, "delayed", delayed, class(all_delayed, ""));
    let failing = sum(|each| each.metrics.failing);
    let held = sum(|each| {
        let suspended = suspended_keys(each);
        each.failing.iter().filter(|failed| suspended.contains(&*failed.key)).count()
    });
    let held = if held == 0 { String::new() } else { format!("<br><small>{} of them suspended</small>", size(held)) };
    figure(out, "failing", size(failing) + &held, class(failing, "warn"));
    count(out, "parked", sum(|each| each.metrics.parked), "bad");
    count(out, "overdue", sum(|each| each.running.iter().filter(|run| run.overdue).count()), "bad");
    count(out, "sources failing", failing_sources(status), "bad");
    out.push_str("</dl>");
}

fn failing_sources(status: &ManagerStatus) -> usize {
    let own = status.sources.iter().filter(|source| source.failing_for.is_some()).count();
    own + status.controllers.iter().map(|of| of.metrics.failing_sources).sum::<usize>()
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

/// Returns the number of active runs and of threads, and how busy the threads were. A hung run does not count if
/// another thread has taken the place of its thread.
fn pool(active: usize, data: &PageData<'_>) -> String {
    let status = data.status;
    let all_hung = load::hung(status.controllers.iter().flat_map(|of| &of.running));
    let overdue = all_hung.len();
    let replaced = timeline::extra_threads(data).min(overdue);
    let hung = match (overdue - replaced, replaced) {
        (0, 0) => String::new(),
        (hung, 0) => format!(", {} of them hung", size(hung)),
        (0, 1) => "; 1 hung run does not count: another thread replaces its own".to_owned(),
        (0, _) => format!("; {} hung runs do not count: other threads replace theirs", size(replaced)),
        (hung, _) => format!(", {} of them hung; {} more do not count", size(hung), size(replaced)),
    };
    let past = data.history.of_all(Past::FiveMinutes);
    let [last, _] = past.two_minutes();
    let busy = load::busy(last, status.threads, &all_hung[..replaced]);
    let without = if replaced > 0 { " with other runs" } else { "" };
    let busy = busy.map(|percent| format!("<br><small>busy{without} {percent:.0} % of the last 60 s</small>"));
    let (active, threads) = (size(active.saturating_sub(replaced)), size(status.threads));
    format!("{active}<br><small>of a pool of {threads} threads{hung}</small>{}", busy.unwrap_or_default())
}

/// Names the controllers whose keys wait because all allowed runs are active: a hung run keeps its place.
fn limits(status: &ManagerStatus) -> String {
    let at_limit = status.controllers.iter().filter(|of| {
        let (active, most) = (of.metrics.runs.active, of.metrics.max_concurrent_reconciles);
        of.phase == ControllerPhase::Running && of.metrics.queue.depth() > 0 && active >= most
    });
    let words = at_limit.map(|of| {
        let hung = match load::hung(&of.running).len() {
            0 => String::new(),
            hung => format!(", {} hung", size(hung)),
        };
        let most = size(of.metrics.max_concurrent_reconciles);
        format!("<br><small>{} is at its limit of {most} runs{hung}</small>", controller_link(&of.name))
    });
    words.take(MOST_LIMITS).collect()
}

/// Compares the smallest and the largest number of waiting keys in the last minute with those of the minute before.
fn peaks(waiting: usize, data: &PageData<'_>) -> String {
    let past = data.history.of_all(Past::FiveMinutes);
    let range = |samples: &[HistorySample], now: Option<usize>| {
        let all = || samples.iter().map(|sample| sample.waiting).chain(now);
        all().min().zip(all().max())
    };
    let [last, before] = past.two_minutes();
    let words = |(least, most)| if least == most { size(most) } else { format!("{} to {}", size(least), size(most)) };
    match (range(last, Some(waiting)), range(before, None)) {
        (Some(last), Some(before)) if (last.1, before.1) != (0, 0) => {
            format!("<br><small>{} in the last 60 s, {} in the 60 s before</small>", words(last), words(before))
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
    let past = data.history.of_all(Past::Hour).without_held();
    let waiting = "peak of waiting keys, without held ones";
    let has_hung = status.controllers.iter().flat_map(|of| &of.running).any(|run| run.overdue);
    let hung = if has_hung { ", hung ones included" } else { "" };
    let active = format!("mean active runs{hung}, of {} threads", size(status.threads));
    controller_page::hour(out, &past, waiting, &active, status.threads);
}
