//! The page of results, in Markdown.

use std::fmt::Write;

use super::{CLIENTS, Results, THREADS, WORKLOADS};
use crate::machine::Machine;
use crate::meter::{Figures, median};
use crate::runner::Summary;

const INTRODUCTION: &str = "\
One connection, one real server on the same machine with a temporary file store, values of 256 bytes. Each figure is a median of the
rounds, with the lowest and the highest round in brackets. Each client, workload and number of threads was measured in a new process
in each round, and the clients followed one another in a changing order. CPU is the time of the client's process alone, in user and
kernel mode.

- **put**, **get**: each thread writes or reads its own 1,000 keys, one after the other.
- **replay**: each thread starts a watch of a bucket with 20,000 entries and reads them all. Latency is the time from the start of the
  watch to an entry.
- **live**: each thread writes a key and waits until its own watch reports the change. CPU and latency are of both.

The clients: `homeostat` uses plain threads. `block_on` is `async-nats` in a program with plain threads: each thread blocks on a future,
and tokio's default runtime runs the connection. `tasks` is `async-nats` with one task for each \"thread\" on tokio's default runtime,
and `current` the same on its current-thread runtime, where all tasks and the connection share one thread.

A ratio is homeostat's median divided by the median of `block_on`, `tasks` and `current`, in this order. The targets are at most 0.7 for
CPU and at most 1 for the latency at p50. A bold ratio misses its target.
";

pub(crate) fn markdown(machine: &Machine, results: &Results, rounds: u32, server: &str) -> String {
    let Machine { cpu, cores, memory, kernel, toolchain, commit, load } = machine;
    let mut text = format!(
        "# NATS: buckets beside `async-nats`\n\n{INTRODUCTION}\n\
         - command: `HOMEOSTAT_NATS_SERVER=$(../../.ci/nats) cargo run --release -- --rounds {rounds} nats` in `benches/compare`\n\
         - machine: {cpu}, {cores} cores, {memory}, Linux {kernel}; load before the run: {load}\n\
         - server: {server}; `async-nats` {}\n- toolchain: {toolchain}\n- commit: {commit}\n",
        version()
    );
    let rows = [
        ("cpu", "CPU of an operation, µs"),
        ("p50", "latency, p50, µs"),
        ("p99", "latency, p99, µs"),
        ("rate", "operations a second"),
    ];
    for workload in WORKLOADS {
        let _ = writeln!(text, "\n## {workload}\n\n| threads | | {} | ratios |", CLIENTS.join(" | "));
        let _ = writeln!(text, "|--:|---|{}---|", "--:|".repeat(CLIENTS.len()));
        for threads in THREADS {
            for (metric, name) in rows {
                let rounds = |client| results.get(&(client, workload, threads)).map(|all| values(all, metric));
                let Some(ours) = rounds(CLIENTS[0]) else { continue };
                let _ = write!(text, "| {threads} | {name} |");
                let mut ratios = Vec::new();
                for client in CLIENTS {
                    let Some(all) = rounds(client) else { continue };
                    let _ = write!(text, " {} |", spread(&all));
                    if client != CLIENTS[0] {
                        ratios.push(judged(metric, median(&ours) / median(&all)));
                    }
                }
                let _ = writeln!(text, " {} |", ratios.join(" · "));
            }
        }
    }
    text
}

/// Formats a ratio. If it misses its target, it is bold.
fn judged(metric: &str, ratio: f64) -> String {
    let most = match metric {
        "cpu" => 0.7,
        "p50" => 1.0,
        _ => f64::INFINITY,
    };
    if ratio > most { format!("**{ratio:.2}**") } else { format!("{ratio:.2}") }
}

fn values(rounds: &[Figures], metric: &str) -> Vec<f64> {
    rounds.iter().filter_map(|figures| figures.get(metric).copied()).collect()
}

fn spread(values: &[f64]) -> String {
    let text = |Summary { median, min, max }| format!("{} ({}–{})", number(median), number(min), number(max));
    Summary::of(values).map_or_else(String::new, text)
}

fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// Returns the version of `async-nats` in this crate's lock file.
fn version() -> &'static str {
    let lock = include_str!("../../Cargo.lock");
    let after = lock.split_once("name = \"async-nats\"\nversion = \"").map_or("", |(_, after)| after);
    after.split('"').next().unwrap_or_default()
}
