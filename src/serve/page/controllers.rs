//! The section of controllers: one row each, with charts of the last five minutes.

use std::fmt::Write;
use std::time::Duration;

use super::chart::{area, bars, marks};
use super::data::{PageData, Tone, cell, chip, heading, number};
use super::escape::line;
use super::history::Sample;
use super::units::{count, percent, rate, size, span};
use crate::controller::{ControllerPhase, ControllerStatus, RecentRun};

/// The highest values over all controllers: the scale of each column of charts.
#[derive(Default)]
struct Scales {
    depth: f64,
    runs: f64,
    run_time: f64,
}

/// Adds the section.
pub(super) fn section(out: &mut String, data: &PageData<'_>) {
    out.push_str("<section aria-labelledby=\"controllers\">");
    let rows: Vec<_> =
        data.status.controllers.iter().map(|controller| (controller, data.history.of(&controller.name))).collect();
    if rows.is_empty() {
        out.push_str(&heading("controllers", "Controllers", ""));
        out.push_str("<p class=\"calm\">None.</p></section>");
        return;
    }
    let mut scales = Scales::default();
    for sample in rows.iter().flat_map(|(_, samples)| samples) {
        scales.depth = scales.depth.max(depth_of(sample));
        scales.runs = scales.runs.max(sample.runs);
        scales.run_time = scales.run_time.max(run_time_of(sample).unwrap_or_default());
    }
    let remark = "charts: the last 5 minutes, one scale for all controllers";
    out.push_str(&heading("controllers", "Controllers", remark));
    let top = |most: f64, text: String| if most > 0.0 { format!(" <small>0 to {text}</small>") } else { String::new() };
    let _ = write!(
        out,
        "<table class=\"cards controllers\"><thead><tr><th>name</th><th>phase</th><th>running</th>\
         <th class=\"c\">waiting{}</th><th class=\"n\">oldest</th><th class=\"n\">delayed</th><th class=\"n\">failing</th>\
         <th class=\"n\">given up</th><th class=\"c\">runs per second{}</th><th class=\"n\">errors</th>\
         <th class=\"c\">run time{}</th></tr></thead><tbody>",
        top(scales.depth, rate(scales.depth.ceil())),
        top(scales.runs, rate(scales.runs)),
        top(scales.run_time, span(Duration::from_secs_f64(scales.run_time))),
    );
    for (controller, samples) in &rows {
        row(out, controller, samples, &scales);
    }
    out.push_str("</tbody></table></section>");
}

#[expect(clippy::cast_precision_loss, reason = "a height in a chart")]
fn depth_of(sample: &Sample) -> f64 {
    sample.depth as f64
}

fn run_time_of(sample: &Sample) -> Option<f64> {
    sample.run_time.map(|time| time.as_secs_f64())
}

fn row(out: &mut String, controller: &ControllerStatus<String>, samples: &[Sample], scales: &Scales) {
    let metrics = &controller.metrics;
    let _ = write!(out, "<tr><th scope=\"row\" data-label=\"name\">{}</th>", line(&controller.name));
    cell(out, "", "phase", phase(controller.phase));
    cell(out, "", "running", load(metrics.runs.active, metrics.max_concurrent_reconciles));
    let depth = metrics.queue.depth();
    let chart = area(samples, depth_of, scales.depth, "keys waiting in the last 5 minutes");
    cell(out, "c", "waiting", format_args!("{}{chart}", number(depth, Tone::Calm)));
    let oldest = controller.oldest_waiting.as_ref().map_or_else(dash, |(_, age)| span(*age));
    cell(out, "n", "oldest", oldest);
    cell(out, "n", "delayed", number(metrics.queue.delayed, Tone::Calm));
    cell(out, "n", "failing", number(metrics.failing, Tone::Warn));
    cell(out, "n", "given up", number(metrics.parked, Tone::Bad));
    let last = samples.last().map_or_else(dash, |sample| rate(sample.runs));
    let chart = bars(samples, scales.runs, "runs per second in the last 5 minutes, failed ones in red");
    cell(out, "c", "runs per second", format_args!("<span>{last}</span>{chart}"));
    let (runs, errors) = (metrics.runs.runs(), metrics.runs.errors());
    let errors =
        if runs == 0 { dash() } else { format!("{} <small>of {}</small>", percent(errors, runs), count(runs)) };
    cell(out, "n", "errors", errors);
    let chart = marks(samples, run_time_of, scales.run_time, "mean run time in the last 5 minutes");
    cell(out, "c", "run time", format_args!("{}{chart}", run_times(&controller.recent_runs)));
    out.push_str("</tr>");
}

fn dash() -> String {
    "<span class=\"none\">–</span>".to_owned()
}

fn phase(phase: ControllerPhase) -> String {
    let tone = match phase {
        ControllerPhase::Running => Tone::Good,
        ControllerPhase::Stopped => Tone::Bad,
        ControllerPhase::Standby => Tone::Calm,
        _ => Tone::Warn,
    };
    chip(tone, phase)
}

/// Returns the active runs of the possible ones, as a bar and as numbers.
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
fn run_times(runs: &[RecentRun<String>]) -> String {
    let mut times: Vec<_> = runs.iter().map(|run| run.took).collect();
    times.sort_unstable();
    let Some(last) = times.len().checked_sub(1) else { return dash() };
    let at = |percent: usize| span(times[(last * percent).div_ceil(100)]);
    format!(
        "<span class=\"times\"><span title=\"median\">{}</span> <small title=\"99th percentile\">{}</small></span>",
        at(50),
        at(99)
    )
}
