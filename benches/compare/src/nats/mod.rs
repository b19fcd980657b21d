//! Compares homeostat's key-value buckets with `async-nats`, on a real server.
//!
//! Each cell is a client, a workload and a number of threads. It is measured in a new process, so the server's CPU
//! time does not count.

mod asynchronous;
mod blocking;
mod page;
mod server;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::page::markdown;
use self::server::Server;
use crate::machine::Machine;
use crate::meter::{Figures, Stopwatch, percentile};
use crate::runner::figures_of;

/// The bytes of each value.
const VALUE: [u8; 256] = [b'v'; 256];

/// The number of keys of each thread.
const KEYS: usize = 1_000;

/// The clients.
const CLIENTS: [&str; 4] = ["homeostat", "block_on", "tasks", "current"];

/// The workloads.
const WORKLOADS: [&str; 4] = ["put", "get", "replay", "live"];

/// The numbers of threads or tasks.
const THREADS: [usize; 2] = [1, 8];

/// One cell: a client, a workload and a number of threads.
type Cell = (&'static str, &'static str, usize);

/// The figures of every cell, one entry per round.
type Results = BTreeMap<Cell, Vec<Figures>>;

/// The arguments of the process that measures a cell.
#[derive(clap::Args)]
pub(crate) struct CellArgs {
    client: String,
    workload: String,
    threads: usize,
    url: String,
    bucket: String,
    /// The operations of all threads together. For `replay`, the entries in the bucket.
    operations: usize,
}

/// The work of one thread or task: its number and its operations.
#[derive(Clone, Copy)]
struct Share {
    thread: usize,
    operations: usize,
}

impl Share {
    fn key(self, number: usize) -> String {
        format!("t{}.{}", self.thread, number % KEYS)
    }
}

impl CellArgs {
    fn shares(&self) -> Vec<Share> {
        (0..self.threads).map(|thread| Share { thread, operations: self.operations / self.threads }).collect()
    }
}

/// The latencies of one thread in microseconds, and when its work ended.
struct Latencies(Vec<f64>);

impl Latencies {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn add(&mut self, since: Instant) {
        self.0.push(since.elapsed().as_nanos() as f64 / 1_000.0);
    }
}

/// Summarizes a cell: CPU time per operation, operations per second, and latencies.
fn figures(watch: Stopwatch, latencies: Vec<Latencies>) -> Result<Figures> {
    let spent = watch.stop();
    let mut all: Vec<f64> = latencies.into_iter().flat_map(|latencies| latencies.0).collect();
    all.sort_by(f64::total_cmp);
    ensure!(!all.is_empty(), "no operation");
    let micros = |time: Duration| time.as_nanos() as f64 / 1_000.0 / all.len() as f64;
    Ok(Figures::from([
        ("cpu".to_owned(), micros(spent.cpu)),
        ("rate".to_owned(), all.len() as f64 / spent.wall.as_secs_f64()),
        ("p50".to_owned(), percentile(&all, 0.5)),
        ("p99".to_owned(), percentile(&all, 0.99)),
    ]))
}

/// Measures one cell in this process.
pub(crate) fn run(args: &CellArgs) -> Result<Figures> {
    match args.client.as_str() {
        "homeostat" => blocking::run(args),
        "block_on" | "tasks" | "current" => asynchronous::run(args),
        other => bail!("no client {other}"),
    }
}

/// Measures all cells, in interleaved rounds, and writes the page.
pub(crate) fn measure(rounds: u32, quick: bool, only: &[String], page: &Path) -> Result<()> {
    let machine = Machine::look()?;
    let server = Server::start()?;
    let mut results = Results::new();
    let mut count = 0;
    for round in 0..rounds as usize {
        for workload in WORKLOADS.into_iter().filter(|name| only.is_empty() || only.iter().any(|only| only == name)) {
            for threads in THREADS {
                for place in 0..CLIENTS.len() {
                    // No client is always first, or always follows the same client.
                    let place = if round % 2 == 0 { place } else { CLIENTS.len() - 1 - place };
                    let cell = (CLIENTS[(place + round) % CLIENTS.len()], workload, threads);
                    count += 1;
                    let figures = in_new_process(cell, &server.url(), count, quick)
                        .with_context(|| format!("{workload} of {} with {threads} threads failed", cell.0))?;
                    eprintln!("round {} {cell:?}: {figures:.1?}", round + 1);
                    results.entry(cell).or_default().push(figures);
                }
            }
        }
    }
    fs::write(page, markdown(&machine, &results, rounds, &server.version()?))?;
    eprintln!("wrote {}", page.display());
    Ok(())
}

fn in_new_process((client, workload, threads): Cell, url: &str, count: usize, quick: bool) -> Result<Figures> {
    let operations = match workload {
        "replay" => 20_000,
        "live" => 8_000,
        _ => 16_000,
    };
    let operations = if quick { operations / 100 } else { operations };
    let [threads, operations] = [threads, operations].map(|number| number.to_string());
    figures_of(&["nats-cell", client, workload, &threads, url, &format!("b{count}"), &operations])
}
