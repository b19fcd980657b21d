//! The end of a queue, and what is told of it: shutdown, reports, and giving back memory.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::report::{DrainReport, QueueMetrics};
use super::super::request::{DroppedRun, Priority, Shutdown};
use super::super::state::{Bounds, Phase, State};
use super::{BATCH, Counts, Effects, Records};
use crate::base::time::Nanos;

/// How far a shutdown has come.
#[derive(Debug)]
pub(super) struct Sweep {
    /// The first record that has not been looked at.
    next: u32,
}

/// The outcome of one step of a shutdown, for the caller to handle once the lock is released.
#[derive(Debug)]
pub(crate) struct Swept<K> {
    /// Keys that are gone and that no report names, to be dropped.
    pub(crate) gone: Vec<K>,
    /// The first panic of a key's `Clone`. The report does without that key.
    pub(crate) panic: Option<Box<dyn Any + Send>>,
    /// Whether the shutdown needs another step.
    pub(crate) more: bool,
}

/// The wakes that a shutdown has dropped, in order. Adding one never moves more than [`BATCH`] others.
#[derive(Debug)]
pub(super) struct Dropped<K>(Vec<Vec<(K, DroppedRun)>>);

impl<K> Dropped<K> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn push(&mut self, key: K, wake: DroppedRun) {
        match self.0.last_mut() {
            Some(chunk) if chunk.len() < BATCH as usize => chunk.push((key, wake)),
            _ => self.0.push(vec![(key, wake)]),
        }
    }

    fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * BATCH as usize + last.len())
    }
}

impl<K> Records<K> {
    /// Refuses requests from now on. [`sweep`](Self::sweep) then changes the records, in steps. Does nothing if the queue is shut down
    /// as strictly already.
    pub(crate) fn begin_shutdown(&mut self, mode: Shutdown) {
        if self.mode >= Some(mode) {
            return;
        }
        self.mode = Some(mode);
        self.sweep = Some(Sweep { next: 0 });
        if mode == Shutdown::Discard {
            self.lanes.withdraw(&mut self.slab);
        }
    }

    /// One step of the shutdown under way, if there is one: looks at no more than `budget` records.
    pub(crate) fn sweep(&mut self, budget: u32, now: &impl Fn() -> Nanos, effects: &mut Effects) -> Swept<K>
    where
        K: Clone,
    {
        let mut swept = Swept { gone: Vec::new(), panic: None, more: false };
        if let (Some(mode), Some(Sweep { next })) = (self.mode, self.sweep.take()) {
            if mode == Shutdown::RunDelayedNow {
                self.run_delayed(budget, now, &mut swept, effects);
            } else {
                self.drop_wakes(mode, next, budget, now, &mut swept, effects);
            }
            swept.more = self.sweep.is_some();
        }
        swept
    }

    fn run_delayed(&mut self, mut budget: u32, now: &impl Fn() -> Nanos, swept: &mut Swept<K>, effects: &mut Effects) {
        while let Some(index) = self.wheel.pop(&mut self.slab, u64::MAX, &mut budget) {
            self.set_bounds(index, Bounds::default());
            self.came_due(index, now, effects);
            swept.gone.extend(self.forget_if_idle(index));
        }
        self.sweep = (!self.wheel.is_empty()).then_some(Sweep { next: 0 });
    }

    fn drop_wakes(
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
                self.drop_wake(mode, index, now, swept, effects);
            }
        }
        let nothing_to_drop = self.wheel.is_empty()
            && self.counts.wishing == 0
            && (mode == Shutdown::ServeReady || self.lanes.is_empty());
        self.sweep = (end < self.slab.bound() && !nothing_to_drop).then_some(Sweep { next: end });
    }

    fn drop_wake(
        &mut self,
        mode: Shutdown,
        index: u32,
        now: &impl Fn() -> Nanos,
        swept: &mut Swept<K>,
        effects: &mut Effects,
    ) where
        K: Clone,
    {
        // A key that is being processed stays with its claim; the report gets a clone.
        let mut clone = None;
        if matches!(self.state(index).phase, Phase::Processing(_)) && self.state(index).shut_down(mode).is_some() {
            match catch_unwind(AssertUnwindSafe(|| self.key(index).clone())) {
                Ok(key) => clone = Some(key),
                Err(first) if swept.panic.is_none() => swept.panic = Some(first),
                // What a panic carries is the user's code when it drops, and the lock is held.
                Err(further) => std::mem::forget(further),
            }
        }
        let dropped = self.change(index, now, effects, |state, bounds| {
            *bounds = Bounds::default();
            (state.shut_down(mode), false)
        });
        let key = self.forget_if_idle(index);
        match dropped {
            Some(wake) => {
                if let Some(key) = key.or(clone) {
                    self.dropped.push(key, wake);
                }
            }
            None => swept.gone.extend(key),
        }
    }

    /// Applies a shutdown that is under way to a claim that ends before the shutdown has reached its record.
    pub(super) fn shut_down_before(&self, state: &mut State) -> Option<DroppedRun> {
        self.sweep.as_ref().and(self.mode).and_then(|mode| state.shut_down(mode))
    }

    /// Adds the keys in line, in the order of their lanes, and the keys being processed. Returns how many wakes the shutdown has
    /// dropped so far. If a key's `Clone` panics, so does this, and what was added before is the caller's to drop.
    pub(crate) fn report_left(&self, report: &mut DrainReport<K>) -> usize
    where
        K: Clone,
    {
        report.ready.extend(self.lanes.iter(&self.slab).map(|index| self.slab.get(index).key.clone()));
        let records = self.slab.iter().map(|(_, record)| record);
        let processing = records.filter(|record| matches!(record.brief.phase, Phase::Processing(_)));
        report.processing.extend(processing.take(self.counts.processing).map(|record| record.key.clone()));
        self.dropped.len()
    }

    /// Adds the next of the first `count` wakes that the shutdown has dropped, at most [`BATCH`] of them. A panic of a key's `Clone`
    /// is as in [`report_left`](Self::report_left).
    pub(crate) fn report_dropped(&self, report: &mut DrainReport<K>, count: usize)
    where
        K: Clone,
    {
        let next = report.dropped.len();
        let (chunk, from) = (next / BATCH as usize, next % BATCH as usize);
        let chunk = self.dropped.0.get(chunk).map_or(&[][..], |chunk| &chunk[from..]);
        report.dropped.extend(chunk.iter().take(count - next).cloned());
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        self.slab.shrink_to_fit();
        let bound = self.slab.bound() as usize;
        self.bounds.truncate(bound);
        self.bounds.shrink_to_fit();
        self.ready_since.truncate(bound);
        self.ready_since.shrink_to_fit();
        let slab = &self.slab;
        self.index.shrink_to_fit(|&index| slab.get(index).hash());
    }

    /// Everything that is left, to be dropped one by one.
    pub(crate) fn into_keys(self) -> impl Iterator<Item = K> {
        self.slab.into_keys().chain(self.dropped.0.into_iter().flatten().map(|(key, _)| key))
    }

    pub(crate) fn metrics(&self) -> QueueMetrics {
        let [high, normal, low] = Priority::SERVED.map(|lane| self.lanes.depth(lane));
        let Counts { delayed, processing, adds, .. } = self.counts;
        QueueMetrics { high, normal, low, delayed, processing, adds }
    }

    /// The key that has been in line longest, and since when; `None` also where that is not measured.
    pub(crate) fn oldest(&self) -> Option<(&K, Nanos)> {
        if !self.settings.timing {
            return None;
        }
        let heads = self.lanes.heads().map(|index| (&self.slab.get(index).key, self.ready_since[index as usize]));
        heads.min_by_key(|(_, since)| *since)
    }

    /// The delayed key that comes due first, and when. Looks at the keys in the earliest slot of the wheel, not at all of them.
    pub(crate) fn next_delayed(&self) -> Option<(&K, Nanos)> {
        if self.counts.delayed == 0 {
            return None;
        }
        let due = |index| {
            let state = self.slab.state(index);
            (state.phase == Phase::Delayed).then_some(state.due)
        };
        self.wheel.least(&self.slab, due).map(|(index, due)| (self.key(index), due))
    }

    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.next_delayed().map(|(_, due)| due)
    }
}
