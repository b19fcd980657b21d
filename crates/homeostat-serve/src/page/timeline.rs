//! The section of runs: a table of the active runs, and the runs of the last minute by thread.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use super::clock_times::lasts;
use super::data::{ChipColour, PageData, cell, chip, controller_link, heading, key_link, row_name, table};
use super::escape::{line, name, short_key};
use super::units::{date, span, time_of_day};
use homeostat::controller::{ActiveRun, ControllerStatus};

/// The time span of the timeline.
const SHOWN: Duration = Duration::from_secs(60);

/// The smallest width of a bar in percent of the timeline.
const SMALLEST_WIDTH: f64 = 0.4;

/// The largest number of active runs in the table without a request for all.
const MOST_ROWS: usize = 20;

/// A run in the timeline. Positions are in percent from the left.
struct Bar {
    from: f64,
    to: f64,
    kind: BarKind,
    title: String,
}

/// The kinds of bars. If two runs overlap, the bar has the later kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BarKind {
    Good,
    Failed,
    Active,
    Overdue,
}

/// Adds the section.
pub(super) fn section(out: &mut String, data: &PageData<'_>) {
    out.push_str("<section aria-labelledby=\"runs\">");
    let controllers = &data.status.controllers;
    let mut active: Vec<_> =
        controllers.iter().flat_map(|controller| controller.running.iter().map(move |run| (controller, run))).collect();
    active.sort_by_key(|(_, run)| std::cmp::Reverse((run.overdue, run.elapsed)));
    let shown = active.len().min(data.most(MOST_ROWS));
    let remark = if active.is_empty() { "none".to_owned() } else { data.remark("runs", shown, active.len()) };
    out.push_str(&heading("runs", "Running now", &remark));
    active_runs(out, &active[..shown], data);
    drawing(out, data);
    out.push_str("</section>");
}

fn active_runs(out: &mut String, active: &[(&ControllerStatus, &ActiveRun)], data: &PageData<'_>) {
    if active.is_empty() {
        return;
    }
    let heads = [("", "key"), ("", "controller"), ("", "thread"), ("n", "for"), ("", "state")];
    table(out, "now", "Active runs, overdue and long ones first", &heads);
    for (controller, run) in active {
        row_name(out, key_link(&controller.name, &run.key));
        cell(out, "", "controller", controller_link(&controller.name));
        cell(out, "wide", "thread", name(&run.thread));
        cell(out, "n", "for", lasts(data.status.time_of_day, run.elapsed));
        cell(out, "state", "state", if run.overdue { chip(ChipColour::Bad, "overdue") } else { String::new() });
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
}

/// Adds the timeline.
fn drawing(out: &mut String, data: &PageData<'_>) {
    let threads = threads(data);
    if threads.is_empty() {
        return;
    }
    let now = data.status.time_of_day;
    let times = [60, 45, 30, 15, 0].map(|ago| now.checked_sub(Duration::from_secs(ago)).map(time_of_day));
    let times = times.map(|time| format!("<span>{}</span>", time.unwrap_or_default())).concat();
    // Writing to a `String` cannot fail.
    let _ = write!(
        out,
        "<figure class=\"timeline\"><figcaption>The last minute by thread <small>{} UTC <i class=\"key-good\"></i>ended \
         <i class=\"key-failed\"></i>failed <i class=\"key-active\"></i>still running <i class=\"key-overdue\"></i>overdue; short \
         runs are drawn wider than they are</small></figcaption><div class=\"axis\" aria-hidden=\"true\">{times}</div>",
        date(now)
    );
    for ((name, number), mut bars) in threads {
        let thread = number.map_or_else(|| name.clone(), |number| format!("{name}-{number}"));
        bars.sort_by(|one, other| one.from.total_cmp(&other.from));
        let bars = merged(bars);
        let failed = bars.iter().filter(|bar| bar.kind == BarKind::Failed).count();
        let _ = write!(
            out,
            "<div class=\"row\"><span class=\"thread\">{}</span><svg role=\"img\" aria-label=\"{}: {} bars, {failed} with \
             failures\" width=\"100%\" height=\"14\">",
            line(&thread),
            line(&thread),
            bars.len()
        );
        for Bar { from, to, kind, title } in bars {
            let (class, y, height) = match kind {
                BarKind::Good => ("good", 3, 8),
                BarKind::Failed => ("failed", 1, 12),
                BarKind::Active => ("active", 3, 8),
                BarKind::Overdue => ("overdue", 1, 12),
            };
            let _ = write!(
                out,
                "<rect class=\"{class}\" x=\"{from:.2}%\" y=\"{y}\" width=\"{:.2}%\" height=\"{height}\" rx=\"1\"><title>{}</title></rect>",
                to - from,
                line(&title)
            );
        }
        out.push_str("</svg></div>");
    }
    out.push_str("</figure>");
    forgotten(out, data);
}

/// Names the controllers that had more runs than are kept.
fn forgotten(out: &mut String, data: &PageData<'_>) {
    for controller in &data.status.controllers {
        let Some(since) = data.history.runs.cut_since(&controller.name) else { continue };
        let kept = data.now().saturating_duration_since(since);
        if kept < SHOWN {
            let name = line(&controller.name);
            let _ = write!(
                out,
                "<p class=\"calm\">{name}: all runs of the last {} are kept, and some older ones.</p>",
                span(kept)
            );
        }
    }
}

/// Thread names are sorted by their number.
type Threads = BTreeMap<(String, Option<u32>), Vec<Bar>>;

fn threads(data: &PageData<'_>) -> Threads {
    let mut threads = Threads::new();
    let mut add = |thread: &str, begun: Duration, ended: Duration, kind: BarKind, title: String| {
        if ended < SHOWN {
            let bar = Bar { from: place(begun), to: place(ended), kind, title };
            threads.entry(sortable(thread)).or_default().push(bar.widened());
        }
    };
    for controller in &data.status.controllers {
        for run in data.history.runs.of(&controller.name) {
            let begun = data.now().saturating_duration_since(run.started);
            let kind = if run.outcome.error().is_some() { BarKind::Failed } else { BarKind::Good };
            let title = format!("{} {}: {} in {}", controller.name, short_key(&run.key), run.result(), span(run.took));
            add(&run.thread, begun, begun.saturating_sub(run.took), kind, title);
        }
        for run in &controller.running {
            let kind = if run.overdue { BarKind::Overdue } else { BarKind::Active };
            let title = format!("{} {}: running for {}", controller.name, short_key(&run.key), span(run.elapsed));
            add(&run.thread, run.elapsed, Duration::ZERO, kind, title);
        }
    }
    threads
}

/// Returns how many threads beyond the size of the pool are known: each took the place of one with a hung run.
pub(super) fn extra_threads(data: &PageData<'_>) -> usize {
    let mut extra = BTreeSet::new();
    let mut add = |thread: &str| {
        let (name, number) = sortable(thread);
        let is_extra =
            number.and_then(|number| usize::try_from(number).ok()).is_some_and(|of| of >= data.status.threads);
        extra.extend(is_extra.then_some((name, number)));
    };
    for controller in &data.status.controllers {
        controller.running.iter().for_each(|run| add(&run.thread));
        data.history.runs.of(&controller.name).iter().for_each(|run| add(&run.thread));
    }
    extra.len()
}

/// Returns the position of a past time in percent from the left.
fn place(ago: Duration) -> f64 {
    (1.0 - ago.as_secs_f64() / SHOWN.as_secs_f64()).clamp(0.0, 1.0) * 100.0
}

/// Splits the number off the end of a thread's name.
fn sortable(thread: &str) -> (String, Option<u32>) {
    match thread.rsplit_once('-').map(|(name, number)| (name, number.parse())) {
        Some((name, Ok(number))) => (name.to_owned(), Some(number)),
        _ => (thread.to_owned(), None),
    }
}

impl Bar {
    /// Returns the bar with at least the smallest width, within the drawing.
    fn widened(self) -> Self {
        let from = self.from.min(100.0 - SMALLEST_WIDTH);
        Self { from, to: self.to.max(from + SMALLEST_WIDTH), ..self }
    }
}

/// Joins overlapping bars, so that a thread with many short runs needs a limited number of bars.
fn merged(bars: Vec<Bar>) -> Vec<Bar> {
    let mut merged: Vec<Bar> = Vec::new();
    for bar in bars {
        match merged.last_mut() {
            Some(last) if bar.from < last.from + SMALLEST_WIDTH => {
                last.to = last.to.max(bar.to);
                if bar.kind > last.kind {
                    (last.kind, last.title) = (bar.kind, bar.title);
                }
            }
            _ => merged.push(bar),
        }
    }
    merged
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn bar(from: f64, to: f64, kind: BarKind) -> Bar {
        Bar { from, to, kind, title: String::new() }.widened()
    }

    #[test]
    fn short_runs_have_a_least_width_within_the_drawing() {
        let (first, last) = (bar(0.0, 0.0, BarKind::Good), bar(100.0, 100.0, BarKind::Good));
        assert!((first.to - SMALLEST_WIDTH).abs() < 1e-9 && (last.from - (100.0 - SMALLEST_WIDTH)).abs() < 1e-9);
    }

    #[test]
    fn a_failure_is_seen_among_many_short_runs() {
        let kinds = [BarKind::Good, BarKind::Failed, BarKind::Good];
        let bars = merged(kinds.map(|kind| bar(50.0, 50.01, kind)).into());
        assert_eq!((bars.len(), bars[0].kind), (1, BarKind::Failed));
        let many: Vec<_> = (0_u16..10_000).map(|number| bar(f64::from(number) / 100.0, 0.0, BarKind::Good)).collect();
        assert!(merged(many).len() <= 251);
    }

    #[test]
    fn threads_are_sorted_by_number() {
        assert!(sortable("pool-2") < sortable("pool-10"));
        assert_eq!(sortable("pool-watchdog"), ("pool-watchdog".to_owned(), None));
    }
}
