//! Measures every cell in every round, each in a new process. The peers of a workload follow one another.

use std::collections::BTreeMap;
use std::env;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::meter::{Figures, median};
use crate::workloads::PLAN;

/// The rounds of a cell that waits for a minute. More rounds would take most of the total time.
const LONG_ROUNDS: usize = 1;

/// A cell that takes this long hangs.
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct Selection {
    pub(crate) only: Vec<String>,
    pub(crate) rounds: u32,
    pub(crate) quick: bool,
}

/// One cell of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) workload: &'static str,
    pub(crate) variant: &'static str,
    pub(crate) peer: &'static str,
}

impl Cell {
    /// Returns how often to measure this cell if most cells are measured `rounds` times.
    fn rounds(self, rounds: usize) -> usize {
        if self.variant.ends_with("min") || self.variant.ends_with("minute") { rounds.min(LONG_ROUNDS) } else { rounds }
    }
}

/// The figures of every cell, one entry per round.
#[derive(Default)]
pub(crate) struct Results(BTreeMap<Cell, Vec<Figures>>);

/// The median of the rounds, with the lowest and highest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Results {
    #[cfg(test)]
    pub(crate) fn add(&mut self, cell: Cell, figures: Figures) {
        self.0.entry(cell).or_default().push(figures);
    }

    pub(crate) fn has(&self, workload: &str, variant: &str) -> bool {
        self.0.keys().any(|cell| cell.workload == workload && cell.variant == variant)
    }

    fn rounds(&self, cell: Cell, metric: &str) -> Option<Vec<f64>> {
        self.0.get(&cell)?.iter().map(|figures| figures.get(metric).copied()).collect()
    }

    pub(crate) fn summary(&self, cell: Cell, metric: &str) -> Option<Summary> {
        Summary::of(&self.rounds(cell, metric)?)
    }

    pub(crate) fn ratio(&self, over: (Cell, &str), under: (Cell, &str)) -> Option<Summary> {
        Summary::ratio(&self.rounds(over.0, over.1)?, &self.rounds(under.0, under.1)?)
    }
}

impl Summary {
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let min = values.iter().copied().reduce(f64::min)?;
        let max = values.iter().copied().reduce(f64::max)?;
        Some(Self { median: median(values), min, max })
    }

    /// Returns the ratio of the medians, with the lowest and highest ratio of a round.
    pub(crate) fn ratio(over: &[f64], under: &[f64]) -> Option<Self> {
        let each: Vec<f64> = over.iter().zip(under).map(|(a, b)| a / b).collect();
        Some(Self { median: median(over) / median(under), ..Self::of(&each)? })
    }
}

pub(crate) fn measure(selection: &Selection) -> Result<Results> {
    let plan = PLAN
        .iter()
        .filter(|workload| selection.only.is_empty() || selection.only.iter().any(|name| name == workload.name));
    let groups: Vec<Vec<Cell>> = plan
        .flat_map(|workload| {
            workload.variants.iter().map(|variant| {
                let cell = |peer: &&'static str| Cell { workload: workload.name, variant, peer };
                workload.peers.iter().map(cell).collect()
            })
        })
        .collect();
    let rounds = selection.rounds as usize;
    let total: usize = groups.iter().flatten().map(|cell| cell.rounds(rounds)).sum();
    let mut results = Results::default();
    let mut count = 0;
    let start = Instant::now();
    for round in 0..rounds {
        for group in groups.iter().filter(|group| round < group[0].rounds(rounds)) {
            // No peer is always first, or always follows the same peer.
            let forward = (0..group.len()).map(|place| (place + round) % group.len());
            let order: Vec<usize> = if round % 2 == 0 { forward.collect() } else { forward.rev().collect() };
            for cell in order.into_iter().map(|place| group[place]) {
                count += 1;
                let figures = in_new_process(cell, selection.quick)
                    .with_context(|| format!("{} {} of {} failed", cell.workload, cell.variant, cell.peer))?;
                let seconds = start.elapsed().as_secs();
                eprintln!(
                    "[{count}/{total}, {seconds} s] round {} {} {} {}: {}",
                    round + 1,
                    cell.workload,
                    cell.variant,
                    cell.peer,
                    brief(&figures)
                );
                results.0.entry(cell).or_default().push(figures);
            }
        }
    }
    Ok(results)
}

fn brief(figures: &Figures) -> String {
    figures.iter().map(|(name, value)| format!("{name} {value:.2}")).collect::<Vec<_>>().join(", ")
}

fn in_new_process(cell: Cell, quick: bool) -> Result<Figures> {
    let mut arguments = vec!["cell", cell.workload, cell.variant, cell.peer];
    if quick {
        arguments.push("--quick");
    }
    figures_of(&arguments)
}

/// Runs this program with these arguments, and reads the figures that it prints.
pub(crate) fn figures_of(arguments: &[&str]) -> Result<Figures> {
    let mut command = Command::new(env::current_exe()?);
    command.args(arguments);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            anyhow::bail!("no end after {LIMIT:?}");
        }
        thread::sleep(Duration::from_millis(20));
    };
    ensure!(status.success(), "its process ended with {status}");
    let mut line = String::new();
    child.stdout.take().context("no output")?.read_to_string(&mut line)?;
    let figures: Figures = serde_json::from_str(&line).with_context(|| format!("not figures: {line:?}"))?;
    ensure!(!figures.is_empty() && figures.values().all(|value| value.is_finite()), "figures missing: {line:?}");
    Ok(figures)
}
