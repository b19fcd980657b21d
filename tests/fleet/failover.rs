//! The figures of runs: counts, and the time until the keys of a killed worker run again.

use std::fmt;
use std::time::Duration;

use super::LEADER;
use super::check::{Counts, by_key};
use super::record::RunRecord;

/// A change of the workers.
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
}

/// The figures of one run or several.
#[derive(Clone, Default)]
pub(super) struct Summary {
    pub(super) runs: u64,
    pub(super) moves: u64,
    late: u64,
    made: u64,
    refused: u64,
    unknown: u64,
    /// The number of disturbances of each kind: starts, kills, pauses and ends.
    disturbances: [u64; 4],
    /// The time from a kill until all keys of the worker run again, less the lease duration, in milliseconds: of kills that were the only
    /// disturbance for a while, and of the others.
    alone: Vec<i64>,
    crowded: Vec<i64>,
    /// The same for the leader.
    leaders: Vec<i64>,
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
        for disturbance in self.disturbances {
            match disturbance.kind {
                DisturbanceKind::Start => summary.disturbances[0] += 1,
                DisturbanceKind::Kill => summary.disturbances[1] += 1,
                DisturbanceKind::Pause => summary.disturbances[2] += 1,
                DisturbanceKind::Resume => {}
                DisturbanceKind::End => summary.disturbances[3] += 1,
            }
        }
        for kill in self.disturbances.iter().filter(|disturbance| disturbance.kind == DisturbanceKind::Kill) {
            let after = |key: &str| taken_over(keys.get(key).map(Vec::as_slice).unwrap_or_default(), kill);
            let beyond = |at: u64| (i64::try_from(at - kill.at).unwrap() - i64::try_from(lease).unwrap()) / 1_000_000;
            summary.leaders.extend(after(LEADER).map(beyond));
            let last = lasting(kill.at).filter_map(after).max().map(beyond);
            if self.is_alone(kill, lease + 1_500_000_000) {
                summary.alone.extend(last);
            } else {
                summary.crowded.extend(last);
            }
        }
        summary
    }

    /// Returns whether no other disturbance was there in this time before the kill, or after it. A disturbance is over once the workers
    /// have handled everything.
    fn is_alone(&self, kill: &Disturbance, window: u64) -> bool {
        let settled = self.settled.iter().filter(|time| **time < kill.at).max().copied().unwrap_or_default();
        let mut others = self.disturbances.iter().filter(|other| *other != kill && other.at > settled);
        !others.any(|other| other.at.abs_diff(kill.at) < window)
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
    }
}

/// Returns the time at which another process runs the key, if it belonged to the killed one.
fn taken_over(runs: &[&RunRecord], kill: &Disturbance) -> Option<u64> {
    let (before, after) = runs.split_at(runs.partition_point(|run| run.begin <= kill.at));
    let belonged = before.iter().rfind(|run| run.until > 0)?.process == kill.process;
    let next = after.iter().find(|run| run.until > 0 && run.process != kill.process)?;
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
    format!("{} kills, lease {:+} / {:+} / {:+} ms", of.len(), at(50), at(90), at(100))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, moves, late, made, refused, unknown, disturbances: [starts, kills, pauses, ends], .. } = self;
        write!(f, "{starts} starts, {kills} kills, {pauses} pauses, {ends} ends; {runs} runs, {moves} moves, ")?;
        write!(f, "{late} late runs; writes: {made} made, {refused} refused, {unknown} unknown; ")?;
        let (alone, crowded, leaders) = (times(&self.alone), times(&self.crowded), times(&self.leaders));
        write!(f, "failover (median / 90 % / longest): alone {alone}; crowded {crowded}; leader {leaders}")
    }
}
