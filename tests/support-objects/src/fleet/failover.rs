//! The figures of runs: counts, and the time until the keys of a worker that was killed or cut off run again.

use std::fmt;
use std::time::Duration;

use super::LEADER;
use super::check::{Counts, by_key};
use super::record::RunRecord;

/// A change of the workers or their networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disturbance {
    pub(super) at: u64,
    pub(super) kind: DisturbanceKind,
    /// The number of the worker.
    pub(super) process: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DisturbanceKind {
    Start,
    Kill,
    Pause,
    Resume,
    End,
    /// All connections are cut.
    Cut,
    /// The network passes nothing on.
    Hole,
    /// The network passes bytes on in one direction only.
    OneWay,
    /// The network is slow.
    Slow,
    /// All connections are cut, and new ones are refused.
    Refuse,
    /// The network works again.
    Heal,
}

/// The names of the disturbances that are counted.
const NAMES: [(DisturbanceKind, &str); 9] = [
    (DisturbanceKind::Start, "starts"),
    (DisturbanceKind::Kill, "kills"),
    (DisturbanceKind::Pause, "pauses"),
    (DisturbanceKind::End, "ends"),
    (DisturbanceKind::Cut, "cuts"),
    (DisturbanceKind::Hole, "holes"),
    (DisturbanceKind::OneWay, "one-way networks"),
    (DisturbanceKind::Slow, "slow networks"),
    (DisturbanceKind::Refuse, "refusals"),
];

/// The figures of one run or several.
#[derive(Clone, Default)]
pub(super) struct Summary {
    pub(super) runs: u64,
    pub(super) moves: u64,
    late: u64,
    made: u64,
    refused: u64,
    unknown: u64,
    /// The number of disturbances of each kind with a name.
    disturbances: [u64; NAMES.len()],
    /// The time from a kill until all keys of the worker run again, less the lease duration, in milliseconds: of kills
    /// that were the only disturbance for a while, and of the others.
    alone: Vec<i64>,
    crowded: Vec<i64>,
    /// The same for the leader.
    leaders: Vec<i64>,
    /// The same for workers that were cut off, if that was the only disturbance for a while.
    cut_off: Vec<i64>,
}

/// The facts about the failovers of one run.
pub(super) struct Failovers<'a> {
    pub(super) runs: &'a [RunRecord],
    pub(super) disturbances: &'a [Disturbance],
    /// The times at which the workers had handled everything.
    pub(super) settled: &'a [u64],
    pub(super) lease: Duration,
}

impl Failovers<'_> {
    /// Returns the figures. `lasting` returns the keys that exist since a time.
    pub(super) fn summary<'k, I: Iterator<Item = &'k str>>(
        &self,
        counts: Counts,
        lasting: impl Fn(u64) -> I,
    ) -> Summary {
        let Counts { runs, moves, late, made, refused, unknown } = counts;
        let mut summary = Summary { runs, moves, late, made, refused, unknown, ..Summary::default() };
        let keys = by_key(self.runs);
        let lease = u64::try_from(self.lease.as_nanos()).unwrap();
        for (count, (kind, _)) in summary.disturbances.iter_mut().zip(NAMES) {
            *count = self.disturbances.iter().filter(|disturbance| disturbance.kind == kind).count() as u64;
        }
        for loss in self.disturbances {
            let after = |key: &str| taken_over(keys.get(key).map(Vec::as_slice).unwrap_or_default(), loss);
            let beyond = |at: u64| (i64::try_from(at - loss.at).unwrap() - i64::try_from(lease).unwrap()) / 1_000_000;
            let last = || lasting(loss.at).filter_map(after).max().map(beyond);
            let is_alone = self.is_alone(loss, lease + 1_500_000_000);
            match loss.kind {
                DisturbanceKind::Kill => {
                    summary.leaders.extend(after(LEADER).map(beyond));
                    if is_alone { &mut summary.alone } else { &mut summary.crowded }.extend(last());
                }
                DisturbanceKind::Hole if is_alone => summary.cut_off.extend(last()),
                _ => {}
            }
        }
        summary
    }

    /// Returns whether no other disturbance was there in this time before the loss, or after it. A disturbance is over
    /// once the workers have handled everything.
    fn is_alone(&self, loss: &Disturbance, window: u64) -> bool {
        let settled = self.settled.iter().filter(|time| **time < loss.at).max().copied().unwrap_or_default();
        let mut others = self.disturbances.iter().filter(|other| *other != loss && other.at > settled);
        !others.any(|other| other.at.abs_diff(loss.at) < window)
    }
}

impl Summary {
    pub(super) fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.moves += other.moves;
        self.late += other.late;
        self.made += other.made;
        self.refused += other.refused;
        self.unknown += other.unknown;
        for (sum, more) in self.disturbances.iter_mut().zip(other.disturbances) {
            *sum += more;
        }
        self.alone.extend(other.alone);
        self.crowded.extend(other.crowded);
        self.leaders.extend(other.leaders);
        self.cut_off.extend(other.cut_off);
    }
}

/// Returns the time at which another process runs the key, if it belonged to the lost one.
fn taken_over(runs: &[&RunRecord], loss: &Disturbance) -> Option<u64> {
    let (before, after) = runs.split_at(runs.partition_point(|run| run.begin <= loss.at));
    let belonged = before.iter().rfind(|run| run.until > 0)?.process == loss.process;
    let next = after.iter().find(|run| run.until > 0 && run.process != loss.process)?;
    belonged.then_some(next.begin)
}

/// Describes times: their number, the median, the 90th percentile and the longest.
fn times(of: &[i64]) -> String {
    if of.is_empty() {
        return "none".to_owned();
    }
    let mut sorted = of.to_vec();
    sorted.sort_unstable();
    let at = |percent: usize| sorted[(sorted.len() - 1) * percent / 100];
    format!("{} times, lease {:+} / {:+} / {:+} ms", of.len(), at(50), at(90), at(100))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, moves, late, made, refused, unknown, .. } = self;
        let counts = self.disturbances.iter().zip(NAMES).map(|(count, (_, name))| format!("{count} {name}"));
        write!(f, "{}; {runs} runs, {moves} moves, ", counts.collect::<Vec<_>>().join(", "))?;
        write!(f, "{late} late runs; writes: {made} made, {refused} refused, {unknown} unknown; ")?;
        let (alone, crowded, leaders) = (times(&self.alone), times(&self.crowded), times(&self.leaders));
        write!(f, "failover (median / 90 % / longest): kills alone {alone}; crowded {crowded}; leader {leaders}; ")?;
        write!(f, "cut off {}", times(&self.cut_off))
    }
}
