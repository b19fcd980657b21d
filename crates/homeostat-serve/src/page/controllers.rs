//! The section of controllers: one row each, with charts of the last five minutes.

use std::sync::Arc;
use std::time::Duration;

use super::chart::{area, bars, marks};
use super::data::{ChipColour, DASH, PageData, cell, chip, controller_link, heading, number, row_name, table};
use super::history::{HistorySample, Past};
use super::units::{count, date, percent, rate, size, span, time_of_day};
use crate::status::{CheckResult, RecentRun};
use homeostat::controller::{ControllerPhase, ControllerStatus};

/// The highest values over all controllers, which give each chart column its scale.
#[derive(Default)]
pub(super) struct Scales {
    pub(super) depth: f64,
    pub(super) runs: f64,
    pub(super) run_time: f64,
}

impl Scales {
    pub(super) fn of<'a>(samples: impl IntoIterator<Item = &'a HistorySample>) -> Self {
        samples.into_iter().fold(Self::default(), |most, sample| Self {
            depth: most.depth.max(depth_of(sample)),
            runs: most.runs.max(sample.runs),
            run_time: most.run_time.max(run_time_of(sample).unwrap_or_default()),
        })
    }
}

/// Adds the section.
pub(super) fn section(out: &mut String, data: &PageData<'_>) {
    out.push_str("<section aria-labelledby=\"controllers\">");
    let rows = data.status.controllers.iter();
    let rows: Vec<_> =
        rows.map(|controller| (controller, data.history.of(&controller.name, Past::FiveMinutes))).collect();
    if rows.is_empty() {
        out.push_str(&heading("controllers", "Controllers", ""));
        out.push_str("<p class=\"calm\">None.</p></section>");
        return;
    }
    let scales = Scales::of(rows.iter().flat_map(|(_, past)| &past.samples));
    let range = rows.iter().find_map(|(_, past)| past.range);
    let range = range.map(|(begin, end)| format!("{} {} to {} UTC", date(begin), time_of_day(begin), time_of_day(end)));
    let remark = format!("charts: {}, one scale for all controllers", range.as_deref().unwrap_or("the last 5 minutes"));
    out.push_str(&heading("controllers", "Controllers", &remark));
    let heads = [
        ("", "name"),
        ("", "phase"),
        ("", "running"),
        ("c", "waiting"),
        ("n", "oldest"),
        ("n", "delayed"),
        ("n", "failing"),
        ("n", "parked"),
        ("c", "runs per second, failed in red"),
        ("n", "errors <small>since start</small>"),
        ("c", "run time <small>median / 99 %</small>"),
    ];
    table(out, "controllers", "Controllers, with charts of the last five minutes", &heads);
    for (controller, past) in &rows {
        row(out, controller, &past.samples, data, &scales);
    }
    out.push_str("</tbody></table></section>");
}

/// Returns the most waiting keys of a controller. At each time, it either takes keys or holds all of them.
#[expect(clippy::cast_precision_loss, reason = "a height in a chart")]
pub(super) fn depth_of(sample: &HistorySample) -> f64 {
    sample.waiting.max(sample.held) as f64
}

pub(super) fn run_time_of(sample: &HistorySample) -> Option<f64> {
    sample.run_time.map(|time| time.as_secs_f64())
}

fn row(
    out: &mut String,
    controller: &ControllerStatus,
    samples: &[HistorySample],
    data: &PageData<'_>,
    scales: &Scales,
) {
    let metrics = &controller.metrics;
    row_name(out, controller_link(&controller.name));
    cell(out, "state", "phase", phase(controller, data.live));
    cell(out, "", "running", load(metrics.runs.active, metrics.max_concurrent_reconciles));
    let chart = area(samples, depth_of, scales.depth, "keys waiting in the last 5 minutes");
    let own = Scales::of(samples);
    let most = (own.depth > 0.0).then(|| format!("{:.0}", own.depth));
    chart_cell(out, "waiting", &number(metrics.queue.depth(), ChipColour::Calm), most, &chart);
    let oldest = controller.oldest_waiting.as_ref().map_or_else(|| DASH.to_owned(), |(_, age)| data.ago(*age));
    cell(out, "n", "oldest", oldest);
    cell(out, "n", "delayed", number(metrics.queue.delayed, ChipColour::Calm));
    cell(out, "n", "failing", number(metrics.failing, ChipColour::Warn));
    cell(out, "n", "parked", number(metrics.parked, ChipColour::Bad));
    let last = samples.last().filter(|sample| sample.runs > 0.0);
    let last = last.map_or_else(|| "<span class=\"none\">0</span>".to_owned(), |sample| rate(sample.runs));
    let chart = bars(samples, scales.runs, "runs per second in the last 5 minutes, failed ones in red");
    chart_cell(out, "runs per second, failed in red", &last, (own.runs > 0.0).then(|| rate(own.runs)), &chart);
    let (runs, errors) = (metrics.runs.runs(), metrics.runs.errors());
    let errors = match runs {
        0 => DASH.to_owned(),
        _ => format!("{} <small>of {}</small>", percent(errors, runs), count(runs)),
    };
    cell(out, "n errors", "errors since start", errors);
    let chart = marks(samples, run_time_of, scales.run_time, "mean run time in the last 5 minutes");
    let most = (own.run_time > 0.0).then(|| span(Duration::from_secs_f64(own.run_time)));
    let times = run_times(&data.history.runs.of(&controller.name));
    chart_cell(out, "run time, median / 99 %", &times, most, &chart);
    out.push_str("</tr>");
}

/// Adds a cell with a value, the largest value of its chart, and the chart. The chart is empty without a largest value.
fn chart_cell(out: &mut String, label: &str, value: &str, most: Option<String>, chart: &str) {
    let class = if most.is_none() && value.contains("class=\"none\"") { "c empty" } else { "c" };
    let most = most.map(|most| format!("<small>max {most}</small>")).unwrap_or_default();
    let content = format!("<div class=\"pair\"><span class=\"value\">{value}</span>{chart}{most}</div>");
    cell(out, class, label, content);
}

/// Returns the phase, and whether something is stuck.
pub(super) fn phase(controller: &ControllerStatus, live: &[CheckResult]) -> String {
    let colour = match controller.phase {
        ControllerPhase::Running => ChipColour::Good,
        ControllerPhase::Stopped => ChipColour::Bad,
        ControllerPhase::Standby => ChipColour::Calm,
        _ => ChipColour::Warn,
    };
    let overdue = controller.running.iter().filter(|run| run.overdue).count();
    let is_live = !live.iter().any(|check| check.name == controller.name && check.failure.is_some());
    let stuck = match (overdue, is_live) {
        (0, true) => String::new(),
        (0, false) => " ".to_owned() + &chip(ChipColour::Bad, "not live"),
        _ => " ".to_owned() + &chip(ChipColour::Bad, format_args!("overdue {}", size(overdue))),
    };
    chip(colour, controller.phase) + &stuck
}

/// Returns the active runs out of the possible ones, as a bar and as numbers.
fn load(active: usize, most: usize) -> String {
    let percent = (active * 100).checked_div(most).unwrap_or_default().min(100);
    format!(
        "<span class=\"load\"><svg aria-hidden=\"true\" width=\"36\" height=\"8\"><rect class=\"rest\" width=\"100%\" \
         height=\"8\" rx=\"2\"/><rect class=\"used\" width=\"{percent}%\" height=\"8\" rx=\"2\"/></svg>{}/{}</span>",
        size(active),
        size(most)
    )
}

/// Returns the median and the 99th percentile of the recorded runs.
pub(super) fn run_times(runs: &[Arc<RecentRun>]) -> String {
    let mut times: Vec<_> = runs.iter().map(|run| run.took).collect();
    times.sort_unstable();
    let Some(last) = times.len().checked_sub(1) else { return DASH.to_owned() };
    let at = |percent: usize| span(times[(last * percent).div_ceil(100)]);
    format!("{} <small>/ {}</small>", at(50), at(99))
}
