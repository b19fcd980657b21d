//! The end of a queue, and what is told of it: shutdown, reports, and giving back memory.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::report::{DrainReport, QueueMetrics};
use super::super::request::{Priority, Shutdown};
use super::super::state::Phase;
use super::{Counts, Effects, Records};
use crate::time::Nanos;

impl<K> Records<K> {
    /// Shuts down, or shuts down more strictly. Nothing happens if it is shut down as strictly already. Keys that are gone
    /// and that no report names go to `gone`, for the caller to drop. Returns the first panic of a key's `Clone`: the
    /// queue is shut down all the same, and the report does without that key.
    #[must_use]
    pub(crate) fn shut_down(
        &mut self,
        mode: Shutdown,
        now: &impl Fn() -> Nanos,
        gone: &mut Vec<K>,
        effects: &mut Effects,
    ) -> Option<Box<dyn Any + Send>>
    where
        K: Clone,
    {
        let mut panic = None;
        if self.mode >= Some(mode) {
            return panic;
        }
        // A key that is being processed stays with its claim; the report gets a clone.
        let mut wishes = Vec::new();
        for (index, record) in self.slab.iter() {
            let mut state = self.slab.state(index);
            if let (Phase::Processing(_), Some(wake)) = (state.phase, state.shut_down(mode)) {
                match catch_unwind(AssertUnwindSafe(|| record.key.clone())) {
                    Ok(key) => wishes.push((key, wake)),
                    Err(first) if panic.is_none() => panic = Some(first),
                    // What a panic carries is the user's code when it drops, and the lock is held.
                    Err(further) => std::mem::forget(further),
                }
            }
        }
        self.mode = Some(mode);
        self.dropped.append(&mut wishes);
        if mode == Shutdown::RunDelayedNow {
            while let Some(index) = self.wheel.pop(&mut self.slab, u64::MAX, &mut u32::MAX.clone()) {
                self.came_due(index, now, effects);
                gone.extend(self.forget_if_idle(index));
            }
        }
        // Nothing is delayed any more.
        self.bounds = Vec::new();
        for index in 0..self.slab.bound() {
            if !self.slab.contains(index) {
                continue;
            }
            let dropped = self.change(index, now, effects, |state, _| (state.shut_down(mode), false));
            match (self.forget_if_idle(index), dropped) {
                (Some(key), Some(wake)) => self.dropped.push((key, wake)),
                (key, _) => gone.extend(key),
            }
        }
        panic
    }

    /// Adds the keys in line, in the order of their lanes; the keys being processed; the wakes that shutdown has dropped.
    /// If a key's `Clone` panics, so does this, and what was added before is the caller's to drop.
    pub(crate) fn report(&self, report: &mut DrainReport<K>)
    where
        K: Clone,
    {
        report.ready.extend(self.lanes.iter(&self.slab).map(|index| self.slab.get(index).key.clone()));
        let records = self.slab.iter().map(|(_, record)| record);
        let processing = records.filter(|record| matches!(record.brief.phase, Phase::Processing(_)));
        report.processing.extend(processing.map(|record| record.key.clone()));
        report.dropped.extend(self.dropped.iter().cloned());
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
        self.slab.into_keys().chain(self.dropped.into_iter().map(|(key, _)| key))
    }

    /// When the next delayed key comes due. Looks at every record.
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

    /// The delayed key that comes due first.
    pub(crate) fn next_delayed(&self) -> Option<(&K, Nanos)> {
        if self.counts.delayed == 0 {
            return None;
        }
        let keys = self.slab.iter().map(|(index, record)| (&record.key, self.slab.state(index)));
        let delayed = keys.filter(|(_, state)| state.phase == Phase::Delayed).map(|(key, state)| (key, state.due));
        delayed.min_by_key(|(_, due)| *due)
    }

    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.next_delayed().map(|(_, due)| due)
    }
}
