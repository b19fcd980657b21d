//! All keys of one queue, as a plain value: the records, the index by key, the priority levels and the wheel.
//!
//! [`state`](super::state) has the rules. This file moves records between lists as the rules require. It knows no lock,
//! clock or thread. Rules that need the time call `now`, which returns one time throughout a section of the queue's
//! lock.
//!
//! User code runs here only as `Eq` in [`find`](Records::find) and [`request`](Records::request), and as `Clone` in the
//! reports, always before anything changes. Forgotten keys are returned. The caller drops them without the lock.
//!
//! # Invariants
//!
//! - A record is in exactly the list that its state names. A key has one record and at most one pending run.
//! - A key is hashed once per request, outside the lock. The record keeps the hash.

mod closing;
mod moving;
#[cfg(all(test, not(loom)))]
mod tests;

use std::time::Duration;

use super::index::{RecordIndex, Vacancy};
use super::levels::PriorityLevels;
use super::report::DroppedRuns;
use super::request::{EnqueueOutcome, EnqueueRequest, Shutdown};
use super::slab::{Slab, Taken};
use super::state::{Bounds, Ending, LineState, Phase, RecordState, RerunKind};
use super::wheel::{TimerSlack, Wheel};
use crate::base::time::Nanos;

#[derive(Debug)]
pub(crate) struct Records<K> {
    slab: Slab<K>,
    index: RecordIndex,
    levels: PriorityLevels,
    wheel: Wheel,
    /// The bounds by index. Shorter than the slab if the last records have had no bounds.
    bounds: Vec<Bounds>,
    /// The times since which records have been ready, by index. Empty if the queue does not measure this.
    ready_since: Vec<Nanos>,
    pub(crate) counts: RecordCounts,
    settings: RecordSettings,
    mode: Option<Shutdown>,
    /// The record that the current shutdown visits next.
    sweep_next: Option<u32>,
    /// The runs that a shutdown has dropped, for its reports.
    pub(crate) dropped: DroppedRuns<K>,
}

/// The number of records in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordCounts {
    pub(crate) delayed: usize,
    pub(crate) processing: usize,
    /// Records in process that have a pending rerun.
    pub(crate) with_rerun: usize,
    /// How many times a key has become ready.
    pub(crate) adds: u64,
}

/// The settings of a queue that concern its records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordSettings {
    /// A request cannot shorten a backoff below this.
    pub(crate) floor: Duration,
    /// The least time between the end of a key's run and the start of its next one.
    pub(crate) min_interval: Duration,
    /// Whether claims know how long their key was ready.
    pub(crate) timing: bool,
    /// Ticks of the wheel are 2^this nanoseconds.
    pub(crate) tick_shift: u32,
    pub(crate) slack: TimerSlack,
}

/// Changes that the caller acts on once it has released the lock.
#[derive(Debug)]
pub(crate) struct Effects {
    /// The number of keys that became ready.
    pub(crate) readied: usize,
    /// No key was ready before the first of them.
    pub(crate) from_empty: bool,
    /// The wheel must be turned at this time at the latest.
    pub(crate) turn_at: Nanos,
}

impl Default for Effects {
    fn default() -> Self {
        Self { readied: 0, from_empty: false, turn_at: Nanos::NEVER }
    }
}

/// A request and its key. The key is taken out only if it becomes the key of a new record.
#[derive(Debug)]
pub(crate) struct Wanted<'a, Q> {
    pub(crate) key: &'a mut Option<Q>,
    pub(crate) hash: u32,
    pub(crate) request: &'a EnqueueRequest,
}

impl<K> Records<K> {
    pub(crate) fn new(settings: RecordSettings) -> Self {
        Self {
            slab: Slab::new(settings.tick_shift),
            index: RecordIndex::new(),
            levels: PriorityLevels::new(),
            wheel: Wheel::new(),
            bounds: Vec::new(),
            ready_since: Vec::new(),
            counts: RecordCounts::default(),
            settings,
            mode: None,
            sweep_next: None,
            dropped: DroppedRuns::new(),
        }
    }

    pub(crate) fn mode(&self) -> Option<Shutdown> {
        self.mode
    }

    pub(crate) fn ready(&self) -> usize {
        self.levels.len()
    }

    /// Returns whether a key can be taken.
    pub(crate) fn has_ready(&self) -> bool {
        !self.levels.is_empty() && self.mode != Some(Shutdown::Discard)
    }

    /// Returns how many keys have been taken so far. The count wraps.
    pub(crate) fn taken(&self) -> usize {
        self.levels.taken()
    }

    /// Returns whether no key can become ready again: the queue is shut down, no key is ready, and no claim has a
    /// pending rerun.
    pub(crate) fn is_over(&self) -> bool {
        self.mode.is_some() && self.sweep_next.is_none() && self.levels.is_empty() && self.counts.with_rerun == 0
    }

    /// Returns whether no key is ready or being processed, and no shutdown needs another step.
    pub(crate) fn is_drained(&self) -> bool {
        self.sweep_next.is_none() && self.levels.is_empty() && self.counts.processing == 0
    }

    /// Returns the record that has this hash and a key for which `same` holds, or the place for a new one.
    #[inline(always)]
    pub(crate) fn look_up(&self, hash: u32, same: impl Fn(&K) -> bool) -> Result<u32, Vacancy> {
        // Keys with different hashes are different, so `Eq` is not called for them.
        self.index.find(hash, |index| same(self.key(index)))
    }

    /// Returns the record that has this hash and a key for which `same` holds.
    #[inline]
    pub(crate) fn find(&self, hash: u32, same: impl Fn(&K) -> bool) -> Option<u32> {
        self.look_up(hash, same).ok()
    }

    #[inline]
    pub(crate) fn state(&self, index: u32) -> RecordState {
        self.slab.state(index)
    }

    pub(crate) fn is_settled(&self, index: u32) -> bool {
        self.slab.state(index).is_settled(&self.bounds(index))
    }

    pub(crate) fn key_in_process(&self, index: u32) -> Option<&K> {
        let record = self.slab.contains(index).then(|| self.slab.get(index))?;
        matches!(record.line.phase, Phase::Processing(_)).then_some(&record.key)
    }

    /// Starts to measure how long keys are ready. For keys that are already ready, the time counts from `now`.
    pub(crate) fn measure(&mut self, now: Nanos) {
        if !self.settings.timing {
            self.settings.timing = true;
            self.ready_since.resize(self.slab.bound() as usize, now);
        }
    }

    /// Returns the record to take next.
    #[inline(always)]
    pub(crate) fn front(&self) -> Option<u32> {
        self.levels.front()
    }

    /// Moves a random key of the next priority level to its front and returns it.
    pub(crate) fn shuffle(&mut self, draw: u64) -> Option<&K> {
        let index = self.levels.shuffle(&mut self.slab, draw)?;
        Some(self.key(index))
    }

    #[inline]
    pub(crate) fn key(&self, index: u32) -> &K {
        &self.slab.get(index).key
    }

    /// Applies a request. `same` and `own` are user code. If one of them panics, nothing has changed.
    #[inline]
    pub(crate) fn request<Q>(
        &mut self,
        Wanted { key: slot, hash, request }: Wanted<'_, Q>,
        same: impl Fn(&K, &Q) -> bool,
        own: impl FnOnce(Q) -> K,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
    ) -> EnqueueOutcome {
        if self.mode.is_some() {
            return EnqueueOutcome::Closed;
        }
        match self.look_up(hash, |known| slot.as_ref().is_some_and(|key| same(known, key))) {
            Ok(index) => match self.absorb(index, request) {
                Some(outcome) => outcome,
                None => self.transition(index, request, now, effects),
            },
            Err(vacancy) => {
                let Some(key) = slot.take() else {
                    return EnqueueOutcome::Ignored;
                };
                let (index, ready) = self.insert(vacancy, own(key), hash, request);
                if ready {
                    self.line_up(index, request.priority, now, effects);
                    return EnqueueOutcome::Queued;
                }
                self.transition(index, request, now, effects)
            }
        }
    }

    /// Applies a request that leaves the record in its list. If the record may move, returns `None`: call
    /// [`transition`](Self::transition).
    #[inline(always)]
    pub(crate) fn absorb(&mut self, index: u32, request: &EnqueueRequest) -> Option<EnqueueOutcome> {
        self.slab.get_mut(index).line.absorb(request)
    }

    /// Adds a record, which is in no list yet. Returns its index, and whether the request makes it ready at once. If it
    /// does not, [`transition`](Self::transition) decides.
    #[inline(always)]
    pub(crate) fn insert(&mut self, vacancy: Vacancy, key: K, hash: u32, request: &EnqueueRequest) -> (u32, bool) {
        let line = LineState::new(request);
        let index = self.slab.insert(key, hash, line);
        self.index.insert(vacancy, hash, index);
        (index, line.phase == Phase::Ready)
    }

    /// Applies a request that the record has not absorbed.
    #[inline(never)]
    pub(crate) fn transition(
        &mut self,
        index: u32,
        request: &EnqueueRequest,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
    ) -> EnqueueOutcome {
        let floor = self.settings.floor;
        self.change(index, now, effects, |state, bounds| {
            let decision = state.request_unabsorbed(bounds, request, floor, now);
            (decision.outcome, decision.to_tail)
        })
    }

    /// Cancels the scheduled run. Returns the key if the queue forgets it.
    pub(crate) fn cancel(&mut self, index: u32, now: &impl Fn() -> Nanos, effects: &mut Effects) -> Option<K> {
        if self.mode.is_some() {
            // After a shutdown no cool-down begins.
            self.set_bounds(index, Bounds::NONE);
        }
        self.change(index, now, effects, |state, bounds| (state.cancel(bounds, now), false));
        self.forget_if_idle(index)
    }

    /// Makes a deferred key ready. A key that its claim defers later is then ready at once.
    pub(crate) fn release(&mut self, index: u32, now: &impl Fn() -> Nanos, effects: &mut Effects) {
        self.change(index, now, effects, |state, bounds| ((), state.release(bounds, now)));
    }

    /// Takes the record at the front. `key` is a clone of its key.
    #[inline(always)]
    pub(crate) fn take(&mut self, index: u32, key: K, now: &impl Fn() -> Nanos) -> Taken<K> {
        let queued_for = if self.settings.timing { self.queued_for(index, now()) } else { Nanos::NEVER };
        let record = self.slab.get_mut(index);
        let line = record.line;
        record.line.take();
        self.levels.take(&mut self.slab, line.priority, index);
        self.counts.processing += 1;
        self.set_bounds(index, Bounds::NONE);
        Taken::new(index, key, line, self.slab.delay(index), queued_for, !self.levels.is_empty())
    }

    fn queued_for(&self, index: u32, now: Nanos) -> Nanos {
        Nanos(now.0.saturating_sub(self.ready_since[index as usize].0))
    }

    /// Backs the key at the front off as though its run had failed.
    pub(crate) fn fail_front(
        &mut self,
        backoff: Duration,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
    ) -> Option<K> {
        let index = self.front()?;
        let line = &mut self.slab.get_mut(index).line;
        // No run has seen these reasons, so the next run gets them.
        line.phase = Phase::Processing(RerunKind::None);
        let level = line.priority;
        self.levels.remove(&mut self.slab, level, index);
        self.counts.processing += 1;
        self.set_bounds(index, Bounds::NONE);
        self.end(index, Ending::Retry(backoff), now, effects)
    }

    /// Ends a claim. Returns the key if the queue forgets it.
    #[inline]
    pub(crate) fn end(
        &mut self,
        index: u32,
        ending: Ending,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
    ) -> Option<K> {
        let gone = if self.mode.is_none() { self.end_at_once(index, ending) } else { None };
        gone.or_else(|| self.end_with_rest(index, ending, now, effects))
    }

    /// Ends a claim on the fast path: the queue is open, and the ending alone makes the key idle. Returns the key.
    #[inline(always)]
    pub(crate) fn end_at_once(&mut self, index: u32, ending: Ending) -> Option<K> {
        if !self.settings.min_interval.is_zero() || !self.slab.get(index).line.is_idle_after(ending) {
            return None;
        }
        self.counts.processing -= 1;
        Some(self.forget(index))
    }

    /// Ends a claim that [`end_at_once`](Self::end_at_once) does not end.
    fn end_with_rest(
        &mut self,
        index: u32,
        ending: Ending,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
    ) -> Option<K> {
        let mut state = self.state(index);
        let mut bounds = self.bounds(index);
        self.counts.processing -= 1;
        self.counts.with_rerun -= usize::from(state.has_rerun());
        let rerun = self.shut_down_before(&mut state);
        let dropped = state.end(&mut bounds, ending, self.settings.floor, self.mode, now).or(rerun);
        if ending.had_run() && !self.settings.min_interval.is_zero() && self.mode.is_none() {
            state.keep_apart(&mut bounds, self.settings.min_interval, now());
        }
        if state.phase == Phase::Idle {
            let key = self.forget(index);
            return match dropped {
                Some(run) => {
                    self.dropped.push(key, run);
                    None
                }
                None => Some(key),
            };
        }
        self.slab.set_state(index, state);
        self.set_bounds(index, bounds);
        self.enter(index, state, now, effects);
        None
    }

    #[inline]
    pub(crate) fn bounds(&self, index: u32) -> Bounds {
        self.bounds.get(index as usize).copied().unwrap_or(Bounds::NONE)
    }

    #[inline]
    fn set_bounds(&mut self, index: u32, bounds: Bounds) {
        if !self.bounds.is_empty() || bounds != Bounds::NONE {
            self.write_bounds(index, bounds);
        }
    }

    fn write_bounds(&mut self, index: u32, bounds: Bounds) {
        let index = index as usize;
        if self.bounds.len() <= index {
            self.bounds.resize(index + 1, Bounds::NONE);
        }
        self.bounds[index] = bounds;
    }

    fn forget_if_idle(&mut self, index: u32) -> Option<K> {
        (self.slab.get(index).line.phase == Phase::Idle).then(|| self.forget(index))
    }

    /// Removes a record that is in no list.
    #[inline(always)]
    fn forget(&mut self, index: u32) -> K {
        let record = self.slab.remove(index);
        self.index.remove(record.hash, index);
        self.set_bounds(index, Bounds::NONE);
        record.key
    }
}
