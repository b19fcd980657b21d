//! The scheduled runs that a shutdown has dropped.

use super::super::request::DroppedRun;

/// The maximum number of dropped runs in one chunk, and per call of `append_to`.
const CHUNK: usize = super::super::request::BATCH as usize;

/// Dropped runs in order. They are kept in chunks, so that adding one never moves more than [`CHUNK`] others.
#[derive(Debug)]
pub(crate) struct DroppedRuns<K>(Vec<Vec<(K, DroppedRun)>>);

impl<K> DroppedRuns<K> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn push(&mut self, key: K, run: DroppedRun) {
        match self.0.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push((key, run)),
            _ => self.0.push(vec![(key, run)]),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * CHUNK + last.len())
    }

    /// Appends the next dropped runs to `report`, until it has the first `count`. Adds at most [`CHUNK`] runs per call.
    /// Panics if the `Clone` of a key does.
    pub(super) fn append_to(&self, report: &mut Vec<(K, DroppedRun)>, count: usize)
    where
        K: Clone,
    {
        let next = report.len();
        let chunk = self.0.get(next / CHUNK).map_or(&[][..], |chunk| &chunk[next % CHUNK..]);
        report.extend(chunk.iter().take(count - next).cloned());
    }
}
