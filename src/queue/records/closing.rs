//! Shutdown, reports, inspection, and the release of memory.
//!
//! # Invariants
//!
//! - A shutdown refuses requests from its first locked section on, and changes at most 1,024 records per section.
//!   Threads that shut down or drain meanwhile continue the same work. From the first section on, the timer moves no
//!   key.
//! - After a shutdown no delay begins. A pending rerun becomes ready when its claim ends, so consumers wait for it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Effects, RecordCounts, Records};
use crate::base::time::Nanos;
use crate::queue::report::{DrainReport, QueueMetrics};
use crate::queue::request::{BATCH, DroppedRun, Priority, Shutdown};
use crate::queue::state::{Bounds, Phase, RecordState};

/// The outcome of one step of a shutdown. The caller handles it without the lock.
#[derive(Debug)]
pub(crate) struct Swept<K> {
    /// Forgotten keys that no report names. The caller drops them.
    pub(crate) gone: Vec<K>,
    /// The first panic of a key's `Clone`. The report omits that key.
    pub(crate) panic: Option<Box<dyn Any + Send>>,
    /// Whether the shutdown needs another step.
    pub(crate) more: bool,
}

impl<K> Records<K> {
    /// Begins a shutdown, which refuses further requests. [`sweep`](Self::sweep) then changes the records, step by
    /// step. Does nothing if an earlier shutdown was at least as strict.
    pub(crate) fn begin_shutdown(&mut self, mode: Shutdown) {
        if self.mode >= Some(mode) {
            return;
        }
        self.mode = Some(mode);
        self.sweep_next = Some(0);
        if mode == Shutdown::Discard {
            self.levels.withdraw(&mut self.slab);
        }
    }

    /// Does one step of the current shutdown, on at most `budget` records. Does nothing without a shutdown.
    pub(crate) fn sweep(&mut self, budget: u32, now: &impl Fn() -> Nanos, effects: &mut Effects) -> Swept<K>
    where
        K: Clone,
    {
        let mut swept = Swept { gone: Vec::new(), panic: None, more: false };
        if let (Some(mode), Some(next)) = (self.mode, self.sweep_next.take()) {
            if mode == Shutdown::RunDelayedNow {
                self.run_delayed(budget, now, &mut swept, effects);
            } else {
                self.drop_runs(mode, next, budget, now, &mut swept, effects);
            }
            swept.more = self.sweep_next.is_some();
        }
        swept
    }

    fn run_delayed(&mut self, mut budget: u32, now: &impl Fn() -> Nanos, swept: &mut Swept<K>, effects: &mut Effects) {
        while let Some(index) = self.wheel.pop(&mut self.slab, u64::MAX, &mut budget) {
            self.set_bounds(index, Bounds::NONE);
            self.came_due(index, now, effects);
            swept.gone.extend(self.forget_if_idle(index));
        }
        self.sweep_next = (!self.wheel.is_empty()).then_some(0);
    }

    fn drop_runs(
        &mut self,
        mode: Shutdown,
        first: u32,
        budget: u32,
        now: &impl Fn() -> Nanos,
        swept: &mut Swept<K>,
        effects: &mut Effects,
    ) where
        K: Clone,
    {
        let end = first.saturating_add(budget).min(self.slab.bound());
        for index in first..end {
            if self.slab.contains(index) {
                self.drop_run(mode, index, now, swept, effects);
            }
        }
        let nothing_to_drop = self.wheel.is_empty()
            && self.counts.with_rerun == 0
            && (mode == Shutdown::ServeReady || self.levels.is_empty());
        self.sweep_next = (end < self.slab.bound() && !nothing_to_drop).then_some(end);
    }

    fn drop_run(
        &mut self,
        mode: Shutdown,
        index: u32,
        now: &impl Fn() -> Nanos,
        swept: &mut Swept<K>,
        effects: &mut Effects,
    ) where
        K: Clone,
    {
        // A key that is being processed stays with its claim, so the report gets a clone.
        let mut clone = None;
        if matches!(self.state(index).phase, Phase::Processing(_)) && self.state(index).shut_down(mode).is_some() {
            match catch_unwind(AssertUnwindSafe(|| self.key(index).clone())) {
                Ok(key) => clone = Some(key),
                Err(panic) => swept.panic = swept.panic.take().or(Some(panic)),
            }
        }
        let dropped = self.change(index, now, effects, |state, bounds| {
            *bounds = Bounds::NONE;
            (state.shut_down(mode), false)
        });
        let key = self.forget_if_idle(index);
        match dropped {
            Some(run) => {
                if let Some(key) = key.or(clone) {
                    self.dropped.push(key, run);
                }
            }
            None => swept.gone.extend(key),
        }
    }

    /// Applies the current shutdown to a record that the shutdown has not reached when the claim ends.
    pub(super) fn shut_down_before(&self, state: &mut RecordState) -> Option<DroppedRun> {
        self.sweep_next.and(self.mode).and_then(|mode| state.shut_down(mode))
    }

    /// Adds to the report the ready keys, in the order of their levels, and the keys being processed. Returns how many
    /// runs the shutdown has dropped so far. Panics if the `Clone` of a key does.
    pub(crate) fn report_left(&self, report: &mut DrainReport<K>) -> usize
    where
        K: Clone,
    {
        report.ready.extend(self.levels.iter(&self.slab).map(|index| self.slab.get(index).key.clone()));
        let records = self.slab.iter().map(|(_, record)| record);
        let processing = records.filter(|record| matches!(record.line.phase, Phase::Processing(_)));
        report.processing.extend(processing.take(self.counts.processing).map(|record| record.key.clone()));
        self.dropped.len()
    }

    /// Adds the keys of at most [`BATCH`] records from the index `first` on. Returns false after the last record.
    /// Panics if the `Clone` of a key does.
    pub(crate) fn add_keys(&self, first: u32, keys: &mut Vec<K>) -> bool
    where
        K: Clone,
    {
        let slice = first..self.slab.bound().min(first + BATCH);
        keys.extend(slice.filter(|index| self.slab.contains(*index)).map(|index| self.key(index).clone()));
        first < self.slab.bound()
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        self.slab.shrink_to_fit();
        let bound = self.slab.bound() as usize;
        self.bounds.truncate(bound);
        self.bounds.shrink_to_fit();
        self.ready_since.truncate(bound);
        self.ready_since.shrink_to_fit();
        self.index.shrink_to_fit();
    }

    pub(crate) fn metrics(&self) -> QueueMetrics {
        let [high, normal, low] = Priority::SERVED.map(|level| self.levels.depth(level));
        let RecordCounts { delayed, processing, adds, .. } = self.counts;
        QueueMetrics { high, normal, low, delayed, processing, adds }
    }

    /// Returns the key that has been ready longest, and the time at which it became ready. `None` if the queue does not
    /// measure this.
    pub(crate) fn oldest(&self) -> Option<(&K, Nanos)> {
        if !self.settings.timing {
            return None;
        }
        let heads = self.levels.heads().map(|index| (&self.slab.get(index).key, self.ready_since[index as usize]));
        heads.min_by_key(|(_, since)| *since)
    }

    /// Returns the delayed key that is due first, and its due time. Visits only keys that are due at about that time.
    pub(crate) fn next_delayed(&self) -> Option<(&K, Nanos)> {
        if self.counts.delayed == 0 {
            return None;
        }
        let due = |index| {
            let state = self.slab.state(index);
            (state.phase == Phase::Delayed).then_some(state.due)
        };
        let spread = self.settings.slack.spread(self.settings.tick_shift);
        self.wheel.least(&self.slab, spread, due).map(|(index, due)| (self.key(index), due))
    }
}
