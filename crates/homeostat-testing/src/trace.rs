//! The last turns of a simulation.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use homeostat::rt::Nanos;

/// The number of turns that are kept.
const TRACE: usize = 100_000;

/// The number of last turns that [`TurnTrace::most_frequent`] counts.
const LAST: usize = 1_000;

/// A turn in the trace: its time, its task and its subject.
#[derive(Clone)]
pub(crate) struct TraceEntry {
    pub(crate) at: Nanos,
    pub(crate) name: Arc<str>,
    pub(crate) what: Option<String>,
}

/// The last turns, in order.
#[derive(Default)]
pub(super) struct TurnTrace(VecDeque<TraceEntry>);

impl TurnTrace {
    /// Adds a turn.
    pub(super) fn push(&mut self, at: Nanos, name: Arc<str>) {
        self.0.push_back(TraceEntry { at, name, what: None });
        if self.0.len() > TRACE {
            self.0.pop_front();
        }
    }

    /// Sets the subject of the turn that is followed by `later` turns.
    pub(super) fn note(&mut self, later: u64, what: String) {
        let later = usize::try_from(later).unwrap_or(usize::MAX);
        let at = self.0.len().checked_sub(1).and_then(|last| last.checked_sub(later));
        if let Some(turn) = at.and_then(|at| self.0.get_mut(at)) {
            turn.what = Some(what);
        }
    }

    pub(super) fn entries(&self) -> Vec<TraceEntry> {
        self.0.iter().cloned().collect()
    }

    /// Returns the names of the tasks in the last turns with their counts, the most frequent first.
    pub(super) fn most_frequent(&self) -> impl Iterator<Item = String> {
        let mut counts = BTreeMap::<&str, usize>::new();
        for turn in self.0.iter().rev().take(LAST) {
            *counts.entry(&turn.name).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(name, count)| (Reverse(*count), *name));
        counts.into_iter().map(|(name, count)| format!("{name} ({count})"))
    }
}

/// Joins names. Without names: "none".
pub(super) fn named(names: impl Iterator<Item = String>) -> String {
    let names: Vec<_> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
