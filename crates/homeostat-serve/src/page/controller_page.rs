//! The page of one controller: its last hour, its keys, sources and runs.

use std::fmt::Write;
use std::time::Duration;

use super::actions::{self, UserRights, buttons};
use super::attention;
use super::chart::{area, bars, marks};
use super::clock_times::{happens, lasts};
use super::controllers::{Scales, depth_of, phase, run_time_of, run_times};
use super::data::{ChipColour, PageData, cell, chip, figure, heading, key_link, row_name, table};
use super::effects::{KnownControllers, RequestedRuns};
use super::escape::{line, name};
use super::history::{HistorySample, Past, PastSamples};
use super::key_page::PageTime;
use super::past_actions::{ActionTarget, PastAction};
use super::runs::{self, RunRows};
use super::suspension::{Suspension, is_suspended, resume_effect, suspend_effect, suspended_keys, when_taken};
use super::tab::{Tab, TabLevel};
use super::units::{count, date, minute, percent, rate, size, span, time};
use super::{load, reasons, sources};
use crate::status::UserAction;
use homeostat::controller::{ControllerMetrics, ControllerPhase, ControllerStatus, FailedKey};

/// The largest number of keys of each kind.
const MOST_ROWS: usize = 50;

/// The largest number of runs.
const MOST_RUNS: usize = 25;

/// Returns the tab of the page.
pub(super) fn tab(controller: &ControllerStatus, manager: &str) -> Tab {
    let overdue = controller.running.iter().any(|run| run.overdue);
    let failing = controller.metrics.failing + controller.metrics.parked + controller.metrics.failing_sources;
    let level = match controller.phase {
        ControllerPhase::Stopped => TabLevel::Bad,
        _ if overdue => TabLevel::Bad,
        ControllerPhase::Running | ControllerPhase::Standby if failing == 0 => TabLevel::Good,
        _ => TabLevel::Warn,
    };
    let words = if overdue { "a run is overdue".to_owned() } else { controller.phase.to_string() };
    let begin = if level == TabLevel::Good { String::new() } else { format!("{words} · ") };
    Tab { level, title: format!("{begin}{} · {manager}", controller.name), words }
}

/// Returns the part of the page that changes.
pub(super) fn live_part(
    controller: &ControllerStatus,
    data: &PageData<'_>,
    (rights, allowed): (&UserRights, &[UserAction]),
    tab: &Tab,
) -> String {
    let mut out = String::new();
    // Writing to a `String` cannot fail.
    let _ = write!(
        out,
        "<header {}><nav aria-label=\"Breadcrumb\"><a href=\"/\">{}</a></nav><div class=\"title\"><h1>{}</h1>\
         <p class=\"chips\">{}</p></div><p class=\"facts\">{}</p>",
        tab.attributes(),
        name(&data.status.name),
        name(&controller.name),
        phase(controller, data.live),
        time(data.status.time_of_day)
    );
    reasons::list(&mut out, data, |check| {
        reasons::controller(check, data).is_some_and(|of| of.name == controller.name)
    });
    out.push_str("</header><main id=\"main\">");
    let target = ActionTarget::controller(&controller.name);
    let times = (data.now(), data.status.time_of_day);
    actions::notice(data.past, &mut out, data.now(), &target, |past| effect(past, controller, data));
    let texts = allowed.iter().filter_map(|action| Some((*action, text(*action, controller)?)));
    buttons(&mut out, &target, rights, &texts.collect::<Vec<_>>());
    figures(&mut out, controller, data);
    let past = data.history.of(&controller.name, Past::Hour);
    let most = controller.metrics.max_concurrent_reconciles;
    hour(&mut out, &past, "peak of waiting keys", &format!("mean active runs, at most {}", size(most)), most);
    running(&mut out, controller, data);
    keys(&mut out, controller, data);
    let rows: Vec<_> = controller.sources.iter().map(|source| (None, source)).collect();
    sources::table_of(&mut out, &rows, data);
    gates(&mut out, controller);
    let mut recent = data.history.runs.of(&controller.name);
    recent.reverse();
    let most = data.most(MOST_RUNS);
    let remark = kept(&controller.metrics, &data.remark("runs", recent.len().min(most), recent.len()));
    let rows = RunRows { controller: &controller.name, has_keys: true, runs: &recent, most, past: data.past };
    runs::section(&mut out, ("Last runs", &remark), &rows, times);
    let known = KnownControllers::new(&data.history.runs, std::slice::from_ref(controller));
    actions::section(&mut out, data.past, known, times, |past| past.controller == controller.name);
    out.push_str("</main>");
    out
}

/// Returns the effect of an action on all keys, in a word and a sentence.
fn effect(past: &PastAction, controller: &ControllerStatus, data: &PageData<'_>) -> (&'static str, String) {
    match past.action {
        UserAction::Retry => {
            let (word, effect) = retry_effect(past, controller, data);
            (word, format!("requested runs of all failed keys: {effect}"))
        }
        UserAction::Suspend => ("Done.", suspend_effect("controller", controller.running.len())),
        UserAction::Resume => ("Done.", resume_effect("controller", controller.phase)),
    }
}

/// Returns how far the requested runs of all failed keys are, in a word and a sentence.
fn retry_effect(past: &PastAction, controller: &ControllerStatus, data: &PageData<'_>) -> (&'static str, String) {
    let runs = data.history.runs.of(&controller.name);
    let ended = RequestedRuns::of(past, data.past, &runs);
    // The last failure of each failed key is known.
    let is_waiting = |of: &&FailedKey<String>| !ended.begun.contains(&*of.key);
    let waiting = controller.failing.iter().chain(&controller.parked).filter(is_waiting);
    let (held, waiting): (Vec<_>, Vec<_>) = waiting.partition(|of| is_suspended(controller, &of.key));
    let mut parts: Vec<_> = ended.words().into_iter().collect();
    if !waiting.is_empty() {
        let when = when_taken(controller.phase).unwrap_or("as threads become free");
        let left = if parts.is_empty() { "they".to_owned() } else { format!("the other {}", size(waiting.len())) };
        parts.push(format!("{left} begin {when}"));
    }
    if !held.is_empty() {
        parts.push(format!("{} suspended: after resume", size(held.len())));
    }
    if parts.is_empty() {
        parts.push("no key waits for its run".to_owned());
    }
    let has_ended = !ended.begun.is_empty();
    let word = match (waiting.is_empty(), held.is_empty()) {
        (true, true) => "Done.",
        (true, false) if has_ended => "Done, except for suspended keys.",
        _ if has_ended => "Begun.",
        _ => "Queued.",
    };
    (word, parts.join("; "))
}

/// Describes how many runs the page knows. `shown` is the remark of their list.
fn kept(metrics: &ControllerMetrics, shown: &str) -> String {
    let all = format!("kept, {} since the start", count(metrics.runs.runs()));
    match shown.split_once(" <a") {
        Some((shown, link)) => format!("newest {shown} {all} <a{link}"),
        None => format!("{shown} {all}"),
    }
}

/// Returns the text of a button. `None` if the action changes nothing now.
fn text(action: UserAction, controller: &ControllerStatus) -> Option<String> {
    let is_suspended = controller.phase == ControllerPhase::Suspended;
    match action {
        UserAction::Retry => retry_text(controller),
        UserAction::Suspend => (!is_suspended).then(|| "Suspend the controller".to_owned()),
        UserAction::Resume => is_suspended.then(|| "Resume the controller".to_owned()),
    }
}

/// Returns the text of the button that retries all failed keys: it says which ones are among them.
fn retry_text(controller: &ControllerStatus) -> Option<String> {
    let ControllerMetrics { failing, parked, .. } = controller.metrics;
    let suspended = suspended_keys(controller);
    let failed = controller.failing.iter().chain(&controller.parked);
    let suspended = failed.filter(|of| suspended.contains(&*of.key)).count();
    let part = |count: usize, words: &str| (count > 0).then(|| format!("{} {words}", size(count)));
    let parts = [part(parked, "parked"), part(suspended, "suspended: after resume")];
    let parts = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
    let among = if parts.is_empty() { parts } else { format!(", among them {parts}") };
    let when = when_taken(controller.phase).unwrap_or("now");
    match failing + parked {
        0 => None,
        1 => Some(format!("Retry the failed key {when}{among}")),
        all => Some(format!("Retry all {} failed keys {when}{among}", size(all))),
    }
}

/// Returns the changing part of an unknown controller's page.
pub(super) fn unknown(controller: &str, page_time: &PageTime<'_>, tab: &Tab) -> String {
    format!(
        "<header {}><nav aria-label=\"Breadcrumb\"><a href=\"/\">{}</a></nav><h1>{}</h1></header>\
         <main id=\"main\"><p>There is no controller with this name.</p></main>",
        tab.attributes(),
        name(page_time.manager),
        name(controller)
    )
}

fn figures(out: &mut String, controller: &ControllerStatus, data: &PageData<'_>) {
    let metrics = &controller.metrics;
    let class = |count: usize, class: &'static str| if count == 0 { "none" } else { class };
    let (runs, errors) = (metrics.runs.runs(), metrics.runs.errors());
    out.push_str("<dl class=\"figures\">");
    let all_hung = load::hung(&controller.running);
    let (hung, most) = (all_hung.len(), metrics.max_concurrent_reconciles);
    let places = most.saturating_sub(hung);
    let past = data.history.of(&controller.name, Past::FiveMinutes);
    let busy = load::busy(past.two_minutes()[0], places, &all_hung);
    let busy = busy.map(|percent| format!("<br><small>busy {percent:.0} % of the last 60 s</small>"));
    let busy = busy.unwrap_or_default();
    let words = match (hung, places) {
        (0, _) => busy,
        (1, 0) => "<br><small>1 of them hung: it keeps its place until it ends</small>".to_owned(),
        (_, 0) => "<br><small>all hung: they keep their places until they end</small>".to_owned(),
        _ => format!(
            "<br><small>{} of them hung: until it ends, {} are left</small>{}",
            size(hung),
            size(places),
            busy.replace("busy", "those busy")
        ),
    };
    let (active, most) = (size(metrics.runs.active), size(most));
    let running = format!("{active}<small> of {most}</small>{words}");
    figure(out, "running", running, "");
    figure(out, "waiting", size(metrics.queue.depth()), class(metrics.queue.depth(), ""));
    figure(out, "delayed", size(metrics.queue.delayed), class(metrics.queue.delayed, ""));
    figure(out, "failing", size(metrics.failing), class(metrics.failing, "warn"));
    figure(out, "parked", size(metrics.parked), class(metrics.parked, "bad"));
    match controller.phase {
        ControllerPhase::Suspended => {
            let waiting = size(metrics.queue.depth());
            figure(out, "suspended", format!("all<br><small>{waiting} waiting</small>"), "warn");
        }
        _ => figure(out, "suspended", size(controller.suspended.len()), class(controller.suspended.len(), "warn")),
    }
    figure(out, "runs", count(runs), if runs == 0 { "none" } else { "" });
    figure(out, "errors", percent(errors, runs), if errors == 0 { "none" } else { "" });
    out.push_str("</dl><dl class=\"about\">");
    let mut fact = |name: &str, value: String| {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    };
    let today = data.status.time_of_day;
    if let Some(suspension) = Suspension::of_controller(controller, data.past) {
        fact("Suspended", suspension.since(data.times()));
    }
    if let Some(when) = when_taken(controller.phase).filter(|_| controller.phase != ControllerPhase::Suspended) {
        fact("Its keys run", when.to_owned());
    }
    if let Some((key, age)) = &controller.oldest_waiting {
        fact("Waits longest", format!("{} for {}", key_link(&controller.name, key), lasts(today, *age)));
    }
    if let Some((key, due)) = &controller.next_due {
        let rest = due.saturating_duration_since(data.now());
        let suspension = Suspension::of_key(controller, key, data.past);
        let next = suspension.map_or_else(|| happens(today, rest), |of| of.next(data.times()));
        fact("Due next", format!("{} {next}", key_link(&controller.name, key)));
    }
    fact(
        "Run time",
        format!("{} <small>median / 99 % of the last runs</small>", run_times(&data.history.runs.of(&controller.name))),
    );
    let started = data.process.started.map(|started| format!(" ({} {})", date(started), time(started)));
    let mut all = format!("{} of {} runs since start{}", count(errors), count(runs), started.unwrap_or_default());
    if metrics.runs.panics > 0 {
        let _ = write!(all, ", among them {} panics", count(metrics.runs.panics));
    }
    fact("Errors", all);
    let late = [
        ("ended soon after the deadline", metrics.runs.timeouts),
        ("did not end at the deadline", metrics.runs.overruns),
    ];
    let late = late.iter().filter(|(_, of)| *of > 0).map(|(what, of)| format!("{} {what}", count(*of)));
    let late = late.collect::<Vec<_>>().join(", ");
    if !late.is_empty() {
        fact("Late runs", late);
    }
    out.push_str("</dl>");
}

/// Adds the charts of the last hour, with the titles of the first and of the last one. `limit` is the largest number of
/// active runs.
pub(super) fn hour(out: &mut String, past: &PastSamples, waiting: &str, active_runs: &str, limit: usize) {
    out.push_str("<section aria-labelledby=\"hour\">");
    let samples = &past.samples;
    let until = past.range.map(|(_, end)| format!(", the newest until {}", time(end))).unwrap_or_default();
    let until = if samples.is_empty() { String::new() } else { until };
    out.push_str(&heading("hour", "The last hour", &format!("one column a minute, {} so far{until}", samples.len())));
    if samples.is_empty() {
        out.push_str("<p class=\"calm\">The first column appears after a minute.</p></section>");
        return;
    }
    let scales = Scales::of(samples);
    let times = |seconds: f64| span(Duration::from_secs_f64(seconds));
    let depth = area(samples, depth_of, scales.depth, "most waiting keys of each minute");
    let runs = bars(samples, scales.runs, "runs per second of each minute, failed ones in red");
    let run_times = marks(samples, run_time_of, scales.run_time, "mean run time of each minute");
    // A full column is a controller at its limit.
    let active = area(samples, |sample| sample.active, limit_of(limit), "mean number of active runs of each minute");
    out.push_str("<div class=\"hour\">");
    chart(out, (waiting, ""), past, |sample| Some(depth_of(sample)), |most| format!("{most:.0}"), &depth);
    let errors = samples.last().map(|sample| rate(sample.errors)).unwrap_or_default();
    let failed = format!("; failed, in red: newest {errors}");
    chart(out, ("runs per second", &failed), past, |sample| Some(sample.runs), rate, &runs);
    chart(out, ("mean run time", ""), past, run_time_of, times, &run_times);
    chart(out, (active_runs, ""), past, |sample| Some(sample.active), |most| format!("{most:.1}"), &active);
    out.push_str("</div></section>");
}

#[expect(clippy::cast_precision_loss, reason = "a height in a chart")]
fn limit_of(most: usize) -> f64 {
    most as f64
}

/// Adds a chart with its title, its last and its largest value, and a remark.
fn chart(
    out: &mut String,
    (title, remark): (&str, &str),
    past: &PastSamples,
    of: impl Fn(&HistorySample) -> Option<f64>,
    show: impl Fn(f64) -> String,
    chart: &str,
) {
    let values = past.now_and_most(of).map(|(now, (most, at))| {
        let now = now.map_or_else(|| "–".to_owned(), &show);
        format!("newest {now}, most {} at {}", show(most), minute(at))
    });
    let values = values.unwrap_or_else(|| "no run".to_owned());
    let axis = past
        .range
        .map(|(begin, end)| format!("<span>{} {}</span><span>{} UTC</span>", date(begin), minute(begin), minute(end)));
    let axis = axis.unwrap_or_default();
    let _ = write!(
        out,
        "<figure><figcaption>{title} <small>{values}{remark}</small></figcaption>{chart}<div class=\"axis\">{axis}</div></figure>"
    );
}

fn running(out: &mut String, controller: &ControllerStatus, data: &PageData<'_>) {
    let runs = &controller.running;
    if runs.is_empty() {
        return;
    }
    out.push_str("<section aria-labelledby=\"running\">");
    let shown = runs.len().min(data.most(MOST_ROWS));
    out.push_str(&heading("running", "Running now", &data.remark("running", shown, runs.len())));
    table(out, "now", "Active runs", &[("", "key"), ("", "thread"), ("n", "for"), ("", "state")]);
    for run in &runs[..shown] {
        row_name(out, key_link(&controller.name, &run.key));
        cell(out, "wide", "thread", name(&run.thread));
        cell(out, "n", "for", lasts(data.status.time_of_day, run.elapsed));
        cell(out, "state", "state", if run.overdue { chip(ChipColour::Bad, "overdue") } else { String::new() });
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></section>");
}

/// Adds the failed and the suspended keys.
fn keys(out: &mut String, controller: &ControllerStatus, data: &PageData<'_>) {
    let most = data.most(MOST_ROWS);
    let mut rows = attention::of_keys(controller, data, most);
    rows.extend(attention::of_suspended_keys(controller, data, most));
    if rows.is_empty() {
        return;
    }
    out.push_str("<section aria-labelledby=\"keys\">");
    let all = controller.metrics.failing + controller.metrics.parked + attention::only_suspended(controller).len();
    let remark = data.remark("keys", attention::shown(&rows), all);
    out.push_str(&heading("keys", "Failed and suspended keys", &remark));
    attention::table_of(out, "Failed and suspended keys", &rows, false, data);
    out.push_str("</section>");
}

fn gates(out: &mut String, controller: &ControllerStatus) {
    if controller.gates.is_empty() {
        return;
    }
    out.push_str("<section aria-labelledby=\"gates\">");
    out.push_str(&heading("gates", "Conditions for runs", ""));
    for gate in &controller.gates {
        let _ = write!(out, "<pre>{}</pre>", line(gate));
    }
    out.push_str("</section>");
}
