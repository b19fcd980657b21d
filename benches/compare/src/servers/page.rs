//! The page of results, in Markdown.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::appliance::SHARES;
use super::load::{Load, THREADS};
use super::{Results, SERVERS};
use crate::machine::Machine;
use crate::meter::Figures;
use crate::runner::Summary;

/// The metrics of each kind of request.
const METRICS: [(&str, &str); 4] =
    [("rate", "a second"), ("cpu", "CPU of the server, µs"), ("p50", "p50, µs"), ("p99", "p99, µs")];

pub(super) fn markdown(
    machine: &Machine,
    load: Load,
    results: &Results,
    appliances: &[Figures],
    rounds: u32,
) -> Result<String> {
    let Machine { cpu, cores, memory, kernel, toolchain, commit, load: average } = machine;
    let Load { alone, objects, gets, lists, watches, changes } = load;
    let versions = super::process::kubernetes_versions()?;
    let mut text = format!(
        "# Homeostat's server beside kube-apiserver\n\n\
         One client, a `KubernetesClient` with {THREADS} threads or one, sends the same requests to each server. The servers are \
         homeostat's with a `FileClient` or a `MemoryClient`, and kube-apiserver with etcd. In each round, each server starts with an \
         empty store in a temporary folder, and they follow one another in a changing order. Both durable stores sync each write \
         before they answer. All connections are TLS with a bearer token. The objects are config maps with 300 bytes of text.\n\n\
         Each figure is a median of {rounds} rounds, with the lowest and the highest in brackets. The ratio is homeostat's with a file \
         divided by that of kube-apiserver and etcd. CPU is the time of the server's processes, in user and kernel mode. The client \
         runs on the same cores, so a rate is a rate of client and server together.\n\n\
         kube-apiserver does more than homeostat's server here: it asks its RBAC rules and its admission plugins, and it keeps managed \
         fields.\n\n\
         - command: `cargo run --release -- --rounds {rounds} servers` in `benches/compare`\n\
         - machine: {cpu}, {cores} cores, {memory}, Linux {kernel}; load before the run: {average}\n\
         - servers: {versions}\n- toolchain: {toolchain}\n- commit: {commit}\n\n"
    );
    let names: Vec<_> = SERVERS.iter().map(|(_, name)| *name).collect();
    let _ = writeln!(text, "| | | {} | ratio |\n|---|---|{}--:|", names.join(" | "), "--:|".repeat(SERVERS.len()));
    let requests = [
        ("create-1", format!("creates of {alone} objects, one thread")),
        ("create", format!("creates of {objects} objects, {THREADS} threads")),
        ("get-1", format!("{} gets, one thread", gets / 4)),
        ("get", format!("{gets} gets, {THREADS} threads")),
        ("list", format!("{lists} lists of {} objects, one thread", alone + objects)),
        ("watch", format!("events: {changes} changes by {THREADS} threads, seen by {watches} watches")),
    ];
    for (request, name) in &requests {
        for (metric, unit) in METRICS {
            row(&mut text, name, unit, &format!("{request} {metric}"), 1.0, results);
        }
    }
    row(&mut text, "start to the first answer", "ms", "start_ms", 1.0, results);
    row(&mut text, "resident memory, empty", "MB", "empty_bytes", 1e-6, results);
    row(&mut text, "resident memory, at the end", "MB", "full_bytes", 1e-6, results);
    let _ = write!(
        text,
        "\n## The example `appliance`\n\n\
         A `FileClient`, two controllers, the server and the status page in one process, in the same rounds.\n\n| | |\n|---|--:|\n"
    );
    let rows = [
        ("program, release, stripped, MB".to_owned(), "program_bytes", 1e-6),
        ("start to the first answer, with a new file, ms".to_owned(), "start_ms", 1.0),
        ("resident memory at that time, MB".to_owned(), "ready_bytes", 1e-6),
        (format!("resident memory with {SHARES} shares, each reconciled, MB"), "full_bytes", 1e-6),
        (
            "CPU after that, without changes, each share looked at every 10 s, % of a core".to_owned(),
            "idle_percent",
            1.0,
        ),
    ];
    for (name, metric, scale) in rows {
        let values: Vec<_> = appliances.iter().filter_map(|figures| Some(figures.get(metric)? * scale)).collect();
        let _ = writeln!(text, "| {name} | {} |", spread(&values).context("no round")?);
    }
    Ok(text)
}

fn row(text: &mut String, name: &str, unit: &str, metric: &str, scale: f64, results: &Results) {
    let rounds = |server: &str| -> Vec<f64> {
        let figures = results.get(server).into_iter().flatten();
        figures.filter_map(|figures| Some(figures.get(metric)? * scale)).collect()
    };
    // Events have no latency.
    let Some(ratio) = Summary::ratio(&rounds("file"), &rounds("kubernetes")) else { return };
    let cells = SERVERS.iter().map(|(server, _)| spread(&rounds(server)).unwrap_or_default());
    let cells: Vec<_> = cells.chain([number(ratio.median)]).collect();
    let _ = writeln!(text, "| {name} | {unit} | {} |", cells.join(" | "));
}

fn spread(values: &[f64]) -> Option<String> {
    let Summary { median, min, max } = Summary::of(values)?;
    Some(format!("{} ({}–{})", number(median), number(min), number(max)))
}

fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        ..0.1 => format!("{value:.4}"),
        ..10.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}
