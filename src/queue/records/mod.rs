//! All keys of one queue, as a plain value: the records, the index by key, the lanes and the wheel.
//!
//! The rules are those of [`state`](super::state); this file moves records between the lists as the rules say. It knows
//! no lock, no clock and no thread: where a rule needs the time it asks `now`, which answers the same throughout a hold of
//! the queue's lock. User code runs here only as `Eq` in [`find`](Records::find) and [`request`](Records::request),
//! and as `Clone` in the reports, always before anything changes; keys that leave are handed out, to be dropped once the
//! lock is released.

mod closing;
mod moving;
#[cfg(all(test, not(loom)))]
mod tests;

use std::time::Duration;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use self::closing::{Dropped, Sweep};
use super::lanes::PriorityLevels;
use super::request::{EnqueueOutcome, EnqueueRequest, Priority, Reasons, Shutdown};
use super::slab::{Slab, fold, spread};
use super::state::{Bounds, Brief, Ending, Late, Phase, State};
use super::wheel::Wheel;
use crate::base::time::Nanos;

#[derive(Debug)]
pub(crate) struct Records<K> {
    slab: Slab<K>,
    index: HashTable<u32>,
    lanes: PriorityLevels,
    wheel: Wheel,
    /// By index, as far as any record has had bounds.
    bounds: Vec<Bounds>,
    /// By index, since when a record has been ready; empty where the queue does not measure.
    ready_since: Vec<Nanos>,
    pub(crate) counts: Counts,
    settings: Settings,
    mode: Option<Shutdown>,
    /// While a shutdown is under way, how far it has come.
    sweep: Option<Sweep>,
    dropped: Dropped<K>,
}

/// The most records that one hold of the queue's lock handles.
pub(crate) const BATCH: u32 = 1024;

/// How many records are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) delayed: usize,
    pub(crate) processing: usize,
    /// Of those being processed, how many hold a wish.
    pub(crate) wishing: usize,
    /// How many times a key has come into line.
    pub(crate) adds: u64,
}

/// What a queue was built with, as far as it concerns the records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The least backoff that a request can leave of a longer one.
    pub(crate) floor: Duration,
    /// The least time between the end of a key's run and the start of its next one.
    pub(crate) min_interval: Duration,
    /// Whether claims know how long their key was in line.
    pub(crate) timing: bool,
    /// Ticks of the wheel are 2^this nanoseconds.
    pub(crate) tick_shift: u32,
}

/// What the caller has to do once it has released the lock.
#[derive(Debug)]
pub(crate) struct Effects {
    /// So many keys have come into line.
    pub(crate) readied: usize,
    /// The first of them found the lanes empty.
    pub(crate) from_empty: bool,
    /// The wheel wants to be turned at this time, or sooner.
    pub(crate) turn_at: Nanos,
}

impl Default for Effects {
    fn default() -> Self {
        Self { readied: 0, from_empty: false, turn_at: Nanos::NEVER }
    }
}

/// A request and the key it is for, which is taken only if it becomes that of a record.
#[derive(Debug)]
pub(crate) struct Wanted<'a, Q> {
    pub(crate) key: &'a mut Option<Q>,
    pub(crate) hash: u64,
    pub(crate) request: &'a EnqueueRequest,
}

/// A key that a claim has taken.
#[derive(Debug)]
pub(crate) struct Taken<K> {
    pub(crate) index: u32,
    pub(crate) key: K,
    pub(crate) reasons: Reasons,
    pub(crate) failures: u32,
    pub(crate) early: bool,
    pub(crate) priority: Priority,
    /// [`Nanos::NEVER`] if that is not measured.
    pub(crate) queued_for: Nanos,
    /// Others are in line.
    pub(crate) more: bool,
}

impl<K> Records<K> {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            slab: Slab::new(settings.tick_shift),
            index: HashTable::new(),
            lanes: PriorityLevels::new(),
            wheel: Wheel::new(),
            bounds: Vec::new(),
            ready_since: Vec::new(),
            counts: Counts::default(),
            settings,
            mode: None,
            sweep: None,
            dropped: Dropped::new(),
        }
    }

    pub(crate) fn mode(&self) -> Option<Shutdown> {
        self.mode
    }

    pub(crate) fn ready(&self) -> usize {
        self.lanes.len()
    }

    /// Whether a key can be taken.
    pub(crate) fn has_ready(&self) -> bool {
        !self.lanes.is_empty() && self.mode != Some(Shutdown::Discard)
    }

    /// How many keys were taken so far; it wraps.
    pub(crate) fn taken(&self) -> usize {
        self.lanes.taken()
    }

    /// Shut down, nothing in line, and no claim whose end will put its key in line.
    pub(crate) fn is_over(&self) -> bool {
        self.mode.is_some() && self.sweep.is_none() && self.lanes.is_empty() && self.counts.wishing == 0
    }

    /// Nothing in line, nothing being processed, and no shutdown under way.
    pub(crate) fn is_drained(&self) -> bool {
        self.sweep.is_none() && self.lanes.is_empty() && self.counts.processing == 0
    }

    /// The record whose key satisfies `eq`, among those whose key has this hash.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut eq: impl FnMut(&K) -> bool) -> Option<u32> {
        let folded = fold(hash);
        let is_same = |&index: &u32| {
            let known = self.slab.get(index);
            known.has_hash(folded) && eq(&known.key)
        };
        self.index.find(spread(folded), is_same).copied()
    }

    #[inline]
    pub(crate) fn state(&self, index: u32) -> State {
        self.slab.state(index)
    }

    pub(crate) fn is_settled(&self, index: u32) -> bool {
        self.slab.state(index).is_settled(&self.bounds(index))
    }

    pub(crate) fn key_in_process(&self, index: u32) -> Option<&K> {
        let record = self.slab.contains(index).then(|| self.slab.get(index))?;
        matches!(record.brief.phase, Phase::Processing(_)).then_some(&record.key)
    }

    /// From now on claims know how long their key was in line; for the keys that are in line already it counts from `now`.
    pub(crate) fn measure(&mut self, now: Nanos) {
        if !self.settings.timing {
            self.settings.timing = true;
            self.ready_since.resize(self.slab.bound() as usize, now);
        }
    }

    /// The record to be taken next.
    #[inline]
    pub(crate) fn front(&self) -> Option<u32> {
        self.lanes.front()
    }

    /// Brings one of the keys that may as well be next to the front, by a random number. Returns it.
    pub(crate) fn shuffle(&mut self, draw: u64) -> Option<&K> {
        let index = self.lanes.shuffle(&mut self.slab, draw)?;
        Some(self.key(index))
    }

    #[inline]
    pub(crate) fn key(&self, index: u32) -> &K {
        &self.slab.get(index).key
    }

    /// `same` and `own` are the user's code; nothing has changed yet if one of them panics.
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
        let folded = fold(hash);
        let slab = &self.slab;
        // Another hash is another key: its `Eq` is neither paid for nor, where it panics, met.
        let is_same = |&index: &u32| {
            let known = slab.get(index);
            known.has_hash(folded) && slot.as_ref().is_some_and(|key| same(&known.key, key))
        };
        match self.index.entry(spread(folded), is_same, |&index| slab.get(index).hash()) {
            Entry::Occupied(known) => {
                let index = *known.get();
                match self.slab.get_mut(index).brief.absorb(request) {
                    Some(admission) => admission,
                    None => self.transition(index, request, now, effects),
                }
            }
            Entry::Vacant(vacant) => {
                let Some(key) = slot.take() else {
                    return EnqueueOutcome::Ignored;
                };
                let key = own(key);
                let brief = Brief::new(request);
                let index = self.slab.insert(key, folded, brief);
                vacant.insert(index);
                if brief.phase == Phase::Ready {
                    // As most keys come, the short way.
                    self.line_up(index, brief.priority, now, effects);
                    return EnqueueOutcome::Queued;
                }
                self.admit(index, request, now, effects)
            }
        }
    }

    /// The first request for a new record, which is in no list yet.
    fn admit(
        &mut self,
        index: u32,
        request: &EnqueueRequest,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
    ) -> EnqueueOutcome {
        let mut state = self.slab.state(index);
        let mut bounds = Bounds::default();
        let answer = state.request(&mut bounds, request, self.settings.floor, now);
        self.slab.set_state(index, state);
        self.set_bounds(index, bounds);
        self.enter(index, state, now, effects);
        answer.admission
    }

    #[inline(never)]
    fn transition(
        &mut self,
        index: u32,
        request: &EnqueueRequest,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
    ) -> EnqueueOutcome {
        let floor = self.settings.floor;
        self.change(index, now, effects, |state, bounds| {
            let answer = state.request(bounds, request, floor, now);
            (answer.admission, answer.to_tail)
        })
    }

    /// Takes the wake away. The key, if nothing is left to know of it, is the caller's to drop.
    pub(crate) fn cancel(&mut self, index: u32, now: &impl Fn() -> Nanos, effects: &mut Effects) -> Option<K> {
        if self.mode.is_some() {
            // No cool-down begins any more.
            self.set_bounds(index, Bounds::default());
        }
        self.change(index, now, effects, |state, bounds| (state.cancel(bounds, now), false));
        self.forget_if_idle(index)
    }

    /// Hands out the record at the front of the line; `key` is a clone of its key.
    #[inline(always)]
    pub(crate) fn take(&mut self, index: u32, key: K, now: &impl Fn() -> Nanos) -> Taken<K> {
        let queued_for = if self.settings.timing { self.queued_for(index, now()) } else { Nanos::NEVER };
        let reasons = self.claim_front(index);
        self.lanes.next_turn();
        let Late { failures, early, .. } = self.slab.late(index);
        let priority = self.slab.get(index).brief.priority;
        let more = !self.lanes.is_empty();
        Taken { index, key, reasons, failures, early, priority, queued_for, more }
    }

    fn queued_for(&self, index: u32, now: Nanos) -> Nanos {
        Nanos(now.0.saturating_sub(self.ready_since[index as usize].0))
    }

    /// Takes the key that is next out of line, for a claim. Returns why it is called.
    #[inline(always)]
    fn claim_front(&mut self, index: u32) -> Reasons {
        let lane = self.slab.get(index).brief.priority;
        self.lanes.remove(&mut self.slab, lane, index);
        self.counts.processing += 1;
        self.set_bounds(index, Bounds::default());
        self.slab.get_mut(index).brief.take()
    }

    /// The next key in line cannot be handed out: it backs off as though its run had failed.
    pub(crate) fn fail_front(
        &mut self,
        backoff: Duration,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
    ) -> Option<K> {
        let index = self.front()?;
        let reasons = self.claim_front(index);
        // Nobody has been told them: the next run is.
        self.slab.get_mut(index).brief.reasons = reasons;
        self.end(index, Ending::Retry(backoff), now, effects)
    }

    /// A claim ends. Returns the key if its record is gone, for the caller to drop.
    #[inline]
    pub(crate) fn end(
        &mut self,
        index: u32,
        ending: Ending,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
    ) -> Option<K> {
        self.counts.processing -= 1;
        let at_once = self.mode.is_none() && self.settings.min_interval.is_zero();
        if ending == Ending::Done && at_once && !self.slab.get(index).brief.has_wish() {
            // As most runs end, the short way.
            return Some(self.forget(index));
        }
        self.end_with_rest(index, ending, now, effects)
    }

    /// A claim ends and something may be left to do for its key.
    fn end_with_rest(
        &mut self,
        index: u32,
        ending: Ending,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
    ) -> Option<K> {
        let mut state = self.state(index);
        let mut bounds = self.bounds(index);
        self.counts.wishing -= usize::from(state.has_wish());
        let wish = self.shut_down_before(&mut state);
        let dropped = state.end(&mut bounds, ending, self.settings.floor, self.mode, now).or(wish);
        let had_run = !matches!(ending, Ending::PutAside(_));
        if had_run && !self.settings.min_interval.is_zero() && self.mode.is_none() {
            state.keep_apart(&mut bounds, self.settings.min_interval, now());
        }
        if state.phase == Phase::Idle {
            let key = self.forget(index);
            return match dropped {
                Some(wake) => {
                    self.dropped.push(key, wake);
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
    fn bounds(&self, index: u32) -> Bounds {
        self.bounds.get(index as usize).copied().unwrap_or_default()
    }

    #[inline]
    fn set_bounds(&mut self, index: u32, bounds: Bounds) {
        if !self.bounds.is_empty() || bounds != Bounds::default() {
            self.write_bounds(index, bounds);
        }
    }

    fn write_bounds(&mut self, index: u32, bounds: Bounds) {
        let index = index as usize;
        if self.bounds.len() <= index {
            self.bounds.resize(index + 1, Bounds::default());
        }
        self.bounds[index] = bounds;
    }

    fn forget_if_idle(&mut self, index: u32) -> Option<K> {
        (self.slab.get(index).brief.phase == Phase::Idle).then(|| self.forget(index))
    }

    /// Removes a record that is in no list.
    #[inline]
    fn forget(&mut self, index: u32) -> K {
        let hash = self.slab.get(index).hash();
        if let Ok(entry) = self.index.find_entry(hash, |&other| other == index) {
            entry.remove();
        }
        self.set_bounds(index, Bounds::default());
        self.slab.remove(index).key
    }
}
