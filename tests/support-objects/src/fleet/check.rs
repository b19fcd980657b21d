//! The rules for the records of all workers.

use std::collections::BTreeMap;

use super::record::{RunRecord, WriteOutcome};

/// Returns the violations:
///
/// - Two runs of a key in two processes are both within their terms at one time. A run counts from its first line on,
///   as long as its term lasted for certain. A run of a paused or killed process may continue after its term, beside
///   the next one.
/// - Two runs of a key in one process overlap.
/// - The number of a key falls, or two processes have the same.
/// - A write succeeds after a write with a greater number.
pub fn faults(runs: &[RunRecord]) -> Vec<String> {
    let mut faults = Vec::new();
    for runs in by_key(runs).values() {
        overlaps(runs, &mut faults);
        numbers(runs, &mut faults);
        writes(runs, &mut faults);
    }
    faults
}

/// Returns the runs of each key, in the order of their beginnings.
pub(super) fn by_key(runs: &[RunRecord]) -> BTreeMap<&str, Vec<&RunRecord>> {
    let mut keys: BTreeMap<&str, Vec<&RunRecord>> = BTreeMap::new();
    for run in runs {
        keys.entry(&run.key).or_default().push(run);
    }
    for runs in keys.values_mut() {
        runs.sort_by_key(|run| run.begin);
    }
    keys
}

/// Describes a run.
fn shown(run: &RunRecord) -> String {
    let RunRecord { process, key, number, begin, until, end, .. } = run;
    let end = end.map_or("no end".to_owned(), |end| format!("the end at {} (term lasts: {})", end.at, end.lasts));
    format!("{key} in worker {process} with the number {number} from {begin}, a term until {until}, and {end}")
}

fn overlaps(runs: &[&RunRecord], faults: &mut Vec<String>) {
    for (at, later) in runs.iter().enumerate() {
        for earlier in &runs[..at] {
            if earlier.process == later.process {
                if earlier.end.is_none_or(|end| end.at > later.begin) {
                    faults.push(format!("one process runs {} and {}", shown(earlier), shown(later)));
                }
            } else if later.until > 0 && earlier.certain_until() > later.begin {
                faults.push(format!("two processes run {} and {}", shown(earlier), shown(later)));
            }
        }
    }
}

fn numbers(runs: &[&RunRecord], faults: &mut Vec<String>) {
    let mut last: Option<&RunRecord> = None;
    for run in runs.iter().filter(|run| run.until > 0) {
        if let Some(last) = last {
            if run.number < last.number {
                faults.push(format!("the number falls from {} to {}", shown(last), shown(run)));
            } else if run.number == last.number && run.process != last.process {
                faults.push(format!("two processes have one number: {} and {}", shown(last), shown(run)));
            }
        }
        last = Some(run);
    }
}

fn writes(runs: &[&RunRecord], faults: &mut Vec<String>) {
    let all = runs.iter().flat_map(|run| run.writes.iter().map(move |write| (*run, write)));
    let mut made: Vec<_> = all.filter(|(_, write)| write.outcome == WriteOutcome::Made).collect();
    made.sort_by_key(|(_, write)| write.done);
    for (at, (run, write)) in made.iter().enumerate() {
        let later = made[..at].iter().filter(|(_, before)| before.done < write.sent);
        if let Some((greatest, _)) = later.max_by_key(|(run, _)| run.number)
            && greatest.number > run.number
        {
            faults.push(format!("{} writes after {}", shown(run), shown(greatest)));
        }
    }
}

/// The figures of the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) runs: u64,
    /// How often a key ran in another process than before.
    pub(super) moves: u64,
    /// Runs that continued while the next owner ran the key. Their terms had ended.
    pub(super) late: u64,
    pub(super) made: u64,
    pub(super) refused: u64,
    pub(super) unknown: u64,
}

pub(super) fn counts(runs: &[RunRecord]) -> Counts {
    let mut counts = Counts { runs: runs.len() as u64, ..Counts::default() };
    for runs in by_key(runs).values() {
        for pair in runs.windows(2).filter(|pair| pair[0].process != pair[1].process) {
            counts.moves += 1;
            counts.late += u64::from(pair[0].end.is_some_and(|end| end.at > pair[1].begin));
        }
    }
    for write in runs.iter().flat_map(|run| &run.writes) {
        match write.outcome {
            WriteOutcome::Made => counts.made += 1,
            WriteOutcome::Refused => counts.refused += 1,
            WriteOutcome::Unknown => counts.unknown += 1,
        }
    }
    counts
}
