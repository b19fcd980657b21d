//! The plot: each peer's cost divided by homeostat's, on a logarithmic axis. Bars to the left of 1 mean that homeostat
//! loses.

use svg::Document;
use svg::node::element::{Line, Rectangle, Text};

use crate::machine::Machine;
use crate::rows::{COLUMNS, Row, rows};
use crate::runner::Results;

const WIDTH: f64 = 980.0;
/// The range of the axis.
const LEFT: f64 = 330.0;
const RIGHT: f64 = 900.0;
const TOP: f64 = 118.0;
const BAR: f64 = 13.0;
const GAP: f64 = 12.0;
/// The ends of the axis. A longer bar is cut off, and its label shows the value.
const LEAST: f64 = 0.25;
const MOST: f64 = 32.0;
const INK: &str = "#222222";

struct Bar {
    peer: &'static str,
    ratio: f64,
}

pub(crate) fn bars(results: &Results, machine: &Machine, quick: bool) -> Document {
    let groups: Vec<(Row, Vec<Bar>)> = rows()
        .into_iter()
        .filter(|row| row.plotted)
        .map(|row| {
            let bars = bars_of(&row, results);
            (row, bars)
        })
        .filter(|(_, bars)| !bars.is_empty())
        .collect();
    let height = groups.iter().map(|(_, bars)| bars.len() as f64 * BAR + GAP).sum::<f64>() + TOP + 60.0;

    let mut plot = Document::new()
        .set("viewBox", (0, 0, WIDTH, height))
        .set("width", WIDTH)
        .set("height", height)
        .set("font-family", "DejaVu Sans, Helvetica, Arial, sans-serif")
        .add(Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "#ffffff"));
    let title = if quick { "A smoke run: these figures mean nothing" } else { "Cost of the peers, homeostat = 1" };
    plot = plot.add(text(title, 20.0, 30.0, 18.0, "start").set("font-weight", "bold"));
    let of = "Ratios of medians, logarithmic, cut off at both ends. Right of the line the peer costs more, left of it homeostat does.";
    plot = plot.add(text(of, 20.0, 50.0, 12.0, "start"));
    let Machine { cpu, cores, toolchain, commit, .. } = machine;
    plot = plot.add(text(&format!("{cpu}, {cores} cores; {toolchain}; commit {commit}"), 20.0, 68.0, 11.0, "start"));
    plot = legend(plot);

    let bottom = height - 42.0;
    for mark in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0] {
        let (colour, width) = if mark == 1.0 { (INK, 1.5) } else { ("#dddddd", 1.0) };
        let line = Line::new().set("x1", x(mark)).set("x2", x(mark)).set("y1", TOP - 6.0).set("y2", bottom);
        plot = plot.add(line.set("stroke", colour).set("stroke-width", width)).add(text(
            &format!("{mark}"),
            x(mark),
            bottom + 16.0,
            11.0,
            "middle",
        ));
    }
    plot = plot.add(text("times homeostat's", x((LEAST * MOST).sqrt()), bottom + 32.0, 12.0, "middle"));

    let mut y = TOP;
    for (row, bars) in &groups {
        let middle = y + bars.len() as f64 * BAR / 2.0;
        let case = format!("{} {}", row.workload, row.case.replace('`', ""));
        plot = plot
            .add(text(&case, LEFT - 10.0, middle - 1.0, 12.0, "end").set("font-weight", "bold"))
            .add(text(row.measure, LEFT - 10.0, middle + 12.0, 10.5, "end").set("fill", "#555555"));
        for bar in bars {
            let (one, end) = (x(1.0), x(bar.ratio));
            plot = plot.add(
                Rectangle::new()
                    .set("x", one.min(end))
                    .set("y", y + 1.5)
                    .set("width", (end - one).abs().max(1.0))
                    .set("height", BAR - 3.0)
                    .set("fill", colour(bar.peer)),
            );
            let label = text(&times(bar.ratio), end.max(one) + 4.0, y + BAR - 3.0, 10.0, "start");
            plot = plot.add(label);
            y += BAR;
        }
        y += GAP;
    }
    plot
}

/// Returns each peer's cost divided by homeostat's. There is no bar if homeostat's cost is zero.
fn bars_of(row: &Row, results: &Results) -> Vec<Bar> {
    let ours = (row.cell("homeostat"), row.metric);
    let ratio = |peer| results.ratio((row.cell(peer), row.metric), ours).map(|ratio| ratio.median);
    let peers = COLUMNS.iter().skip(1).copied();
    peers
        .filter_map(|peer| Some(Bar { peer, ratio: ratio(peer)? }))
        .filter(|bar| bar.ratio.is_finite() && bar.ratio > 0.0)
        .collect()
}

fn legend(mut plot: Document) -> Document {
    let mut left = 20.0;
    for peer in COLUMNS.iter().skip(1) {
        let swatch = Rectangle::new().set("x", left).set("y", 82.0).set("width", 12.0).set("height", 12.0);
        plot = plot.add(swatch.set("fill", colour(peer))).add(text(peer, left + 17.0, 92.0, 12.0, "start"));
        left += 40.0 + peer.len() as f64 * 7.2;
    }
    plot
}

fn x(ratio: f64) -> f64 {
    let place = (ratio.clamp(LEAST, MOST) / LEAST).ln() / (MOST / LEAST).ln();
    LEFT + place * (RIGHT - LEFT)
}

fn times(ratio: f64) -> String {
    if ratio >= 100.0 { format!("{ratio:.0}×") } else { format!("{ratio:.2}×") }
}

/// Colours that people with red-green colour blindness can tell apart.
fn colour(peer: &str) -> &'static str {
    match peer {
        "naive-fold" => "#0072b2",
        "naive-sip" => "#56b4e9",
        "crossbeam-channel" => "#d55e00",
        "delayqueue" => "#009e73",
        "kube-scheduler" => "#cc79a7",
        _ => "#e69f00",
    }
}

fn text(content: &str, x: f64, y: f64, size: f64, anchor: &str) -> Text {
    Text::new(content).set("x", x).set("y", y).set("font-size", size).set("text-anchor", anchor).set("fill", INK)
}
