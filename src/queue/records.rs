//! All keys of one queue, as a plain value: the records, the index by key, the lanes and the wheel.
//!
//! The rules are those of [`state`](super::state); this file moves records between the lists as the rules say. It knows
//! no lock, no clock and no thread. User code runs here only as `Eq` in [`find`](Records::find), and as `Clone` in
//! [`take`](Records::take) and the reports, always before anything changes; keys that leave are handed out, to be dropped
//! once the lock is released.

mod closing;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use hashbrown::HashTable;

use super::lanes::Lanes;
use super::request::{Admission, DroppedWake, Priority, Reasons, Request, Shutdown};
use super::slab::Slab;
use super::state::{Bounds, Ending, Phase, Place, State};
use super::wheel::Wheel;
use crate::time::Nanos;

#[derive(Debug)]
pub(crate) struct Records<K> {
    slab: Slab<K>,
    index: HashTable<u32>,
    lanes: Lanes,
    wheel: Wheel,
    /// By index, as far as any record has had bounds.
    bounds: Vec<Bounds>,
    /// By index, since when a record has been ready; empty where the queue does not measure.
    ready_since: Vec<Nanos>,
    pub(crate) counts: Counts,
    settings: Settings,
    mode: Option<Shutdown>,
    dropped: Vec<(K, DroppedWake)>,
}

/// How many records are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) delayed: usize,
    pub(crate) processing: usize,
    /// Of those being processed, how many hold a wish.
    pub(crate) wishing: usize,
}

/// What a queue was built with, as far as it concerns the records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The least backoff that a request can leave of a longer one.
    pub(crate) floor: Duration,
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

/// A key that a claim has taken.
#[derive(Debug)]
pub(crate) struct Taken<K> {
    pub(crate) index: u32,
    pub(crate) key: K,
    pub(crate) reasons: Reasons,
    pub(crate) failures: u32,
    pub(crate) early: bool,
    pub(crate) priority: Priority,
    pub(crate) queued_for: Option<Duration>,
}

impl<K> Records<K> {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            slab: Slab::new(settings.tick_shift),
            index: HashTable::new(),
            lanes: Lanes::new(),
            wheel: Wheel::new(),
            bounds: Vec::new(),
            ready_since: Vec::new(),
            counts: Counts::default(),
            settings,
            mode: None,
            dropped: Vec::new(),
        }
    }

    pub(crate) fn mode(&self) -> Option<Shutdown> {
        self.mode
    }

    pub(crate) fn ready(&self) -> usize {
        self.lanes.len()
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Shut down, nothing in line, and no claim whose end will put its key in line.
    pub(crate) fn is_over(&self) -> bool {
        self.mode.is_some() && self.lanes.is_empty() && self.counts.wishing == 0
    }

    /// Nothing in line and nothing being processed.
    pub(crate) fn is_drained(&self) -> bool {
        self.lanes.is_empty() && self.counts.processing == 0
    }

    /// The record whose key satisfies `eq`, among those whose key has this hash.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut eq: impl FnMut(&K) -> bool) -> Option<u32> {
        self.index
            .find(hash, |&index| {
                let record = self.slab.get(index);
                record.hash == hash && eq(&record.key)
            })
            .copied()
    }

    #[inline]
    pub(crate) fn state(&self, index: u32) -> State {
        self.slab.get(index).state
    }

    pub(crate) fn key_in_process(&self, index: u32) -> Option<&K> {
        let record = self.slab.contains(index).then(|| self.slab.get(index))?;
        matches!(record.state.phase, Phase::Processing(_)).then_some(&record.key)
    }

    /// From now on claims know how long their key was in line; for the keys that are in line already it counts from `now`.
    pub(crate) fn measure(&mut self, now: Nanos) {
        if !self.settings.timing {
            self.settings.timing = true;
            self.ready_since.resize(self.slab.bound() as usize, now);
        }
    }

    /// The state of the key to be taken next.
    pub(crate) fn front(&self) -> Option<State> {
        let index = self.lanes.front()?;
        Some(self.state(index))
    }

    /// A request for a key that has no record.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        key: K,
        hash: u64,
        request: Request,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
    ) -> Admission {
        let mut bounds = Bounds::default();
        let (state, admission) = State::admit(&mut bounds, request, now);
        let index = self.slab.insert(key, hash, state);
        let slab = &self.slab;
        self.index.insert_unique(hash, index, |&other| slab.get(other).hash);
        self.set_bounds(index, bounds);
        self.enter(index, state, now, effects);
        admission
    }

    /// A request for a key that has a record.
    #[inline]
    pub(crate) fn request(
        &mut self,
        index: u32,
        request: Request,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
    ) -> Admission {
        match self.slab.get_mut(index).state.absorb(request) {
            Some(admission) => admission,
            None => self.transition(index, request, now, effects),
        }
    }

    fn transition(
        &mut self,
        index: u32,
        request: Request,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
    ) -> Admission {
        let floor = self.settings.floor;
        self.change(index, now, effects, |state, bounds| {
            let answer = state.request(bounds, request, floor, now);
            (answer.admission, answer.to_tail)
        })
    }

    /// Takes the wake away. The key, if nothing is left to know of it, is the caller's to drop.
    pub(crate) fn cancel(&mut self, index: u32, now: &impl Fn() -> Nanos, effects: &mut Effects) -> Option<K> {
        self.change(index, now, effects, |state, bounds| (state.cancel(bounds, now), false));
        self.forget_if_idle(index)
    }

    /// The next key in line. If its `Clone` panics, nothing has changed.
    #[inline]
    pub(crate) fn take(&mut self, now: &impl Fn() -> Nanos) -> thread::Result<Option<Taken<K>>>
    where
        K: Clone,
    {
        let Some(index) = self.lanes.front() else {
            return Ok(None);
        };
        let record = self.slab.get(index);
        let key = catch_unwind(AssertUnwindSafe(|| record.key.clone()))?;
        let queued_for = self.settings.timing.then(|| now().since(self.ready_since[index as usize]));
        let reasons = self.claim_front(index);
        self.lanes.next_turn();
        let State { failures, early, priority, .. } = self.state(index);
        Ok(Some(Taken { index, key, reasons, failures, early, priority, queued_for }))
    }

    /// Takes the key that is next out of line, for a claim. Returns why it is called.
    #[inline]
    fn claim_front(&mut self, index: u32) -> Reasons {
        self.lanes.remove(&mut self.slab, index);
        self.counts.processing += 1;
        self.set_bounds(index, Bounds::default());
        self.slab.get_mut(index).state.take()
    }

    /// The next key in line cannot be handed out: it backs off as though its run had failed.
    pub(crate) fn fail_front(
        &mut self,
        backoff: Duration,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
    ) -> Option<K> {
        let index = self.lanes.front()?;
        let reasons = self.claim_front(index);
        // Nobody has been told them: the next run is.
        self.slab.get_mut(index).state.reasons = reasons;
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
        let mut state = self.state(index);
        let mut bounds = self.bounds(index);
        self.counts.processing -= 1;
        self.counts.wishing -= usize::from(state.has_wish());
        let dropped = state.end(&mut bounds, ending, self.settings.floor, self.mode, now);
        if state.phase == Phase::Idle {
            let key = self.forget(index);
            return match dropped {
                Some(wake) => {
                    self.dropped.push((key, wake));
                    None
                }
                None => Some(key),
            };
        }
        self.slab.get_mut(index).state = state;
        self.set_bounds(index, bounds);
        let state = self.enter(index, state, now, effects);
        // A cool-down so short that it is over already has left nothing to remember.
        (state.phase == Phase::Idle).then(|| self.forget(index))
    }

    /// Puts what is due at `now` in line, in due order, at most `budget` steps of work. Keys whose cool-down is over go
    /// to `gone`. Returns when to call again.
    pub(crate) fn expire(&mut self, now: Nanos, mut budget: u32, gone: &mut Vec<K>, effects: &mut Effects) -> Nanos {
        let tick = now.tick_down(self.settings.tick_shift);
        while let Some(index) = self.wheel.pop(&mut self.slab, tick, &mut budget) {
            self.came_due(index, &|| now, effects);
            gone.extend(self.forget_if_idle(index));
        }
        self.next_turn()
    }

    /// When the wheel wants to be turned; [`Nanos::NEVER`] while it is empty.
    pub(crate) fn next_turn(&self) -> Nanos {
        self.wheel.next_tick().map_or(Nanos::NEVER, |tick| Nanos::of_tick(tick, self.settings.tick_shift))
    }

    /// The record has left the wheel because its time has come.
    fn came_due(&mut self, index: u32, now: &impl Fn() -> Nanos, effects: &mut Effects) {
        let before = self.state(index);
        let mut state = before;
        state.expire();
        self.slab.get_mut(index).state = state;
        self.recount(before, state);
        self.link(index, state, now, effects);
    }

    /// Applies one rule to one record and moves it to where it then belongs; `to_tail` moves it also within its list.
    #[inline]
    fn change<R>(
        &mut self,
        index: u32,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
        rule: impl FnOnce(&mut State, &mut Bounds) -> (R, bool),
    ) -> R {
        let mut bounds = self.bounds(index);
        let before = self.slab.get(index).state;
        let mut state = before;
        let (answer, to_tail) = rule(&mut state, &mut bounds);
        self.set_bounds(index, bounds);
        self.slab.get_mut(index).state = state;
        let (from, to) = (before.place(), state.place());
        if to_tail || from != to {
            match from {
                Place::Out => {}
                Place::Lane(_) => self.lanes.remove(&mut self.slab, index),
                Place::Wheel(_) => self.wheel.remove(&mut self.slab, index),
            }
            match (from, to) {
                // It was in line all along: nobody is woken for it, and it has waited since it came.
                (Place::Lane(_), Place::Lane(lane)) => self.lanes.push_back(&mut self.slab, lane, index),
                _ => state = self.link(index, state, now, effects),
            }
        }
        if before.phase != state.phase {
            self.recount(before, state);
        }
        answer
    }

    /// Counts a record that is in no list and not being processed, and puts it where its state says; returns the state it
    /// then has.
    #[inline]
    fn enter(&mut self, index: u32, state: State, now: &impl Fn() -> Nanos, effects: &mut Effects) -> State {
        let state = self.link(index, state, now, effects);
        self.counts.delayed += usize::from(state.phase == Phase::Delayed);
        state
    }

    /// Puts a record that is in no list where its state says; returns the state it then has.
    #[inline]
    fn link(&mut self, index: u32, state: State, now: &impl Fn() -> Nanos, effects: &mut Effects) -> State {
        match state.place() {
            Place::Out => state,
            Place::Lane(lane) => {
                if self.settings.timing {
                    let since = index as usize;
                    if self.ready_since.len() <= since {
                        self.ready_since.resize(since + 1, Nanos::ZERO);
                    }
                    self.ready_since[since] = now();
                }
                effects.from_empty |= self.lanes.is_empty();
                effects.readied += 1;
                self.lanes.push_back(&mut self.slab, lane, index);
                state
            }
            Place::Wheel(due) => self.wind(index, state, due, now, effects),
        }
    }

    fn wind(
        &mut self,
        index: u32,
        mut state: State,
        due: Nanos,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
    ) -> State {
        let shift = self.settings.tick_shift;
        // Turns an idle wheel up to the present where nothing is in the way, so that the new entry starts low.
        self.wheel.pop(&mut self.slab, now().tick_down(shift), &mut 0);
        let tick = due.tick_up(shift);
        if tick <= self.wheel.elapsed() {
            // The time came between the look at the clock from which the rules took it and the one above.
            state.expire();
            self.slab.get_mut(index).state = state;
            return self.link(index, state, now, effects);
        }
        let turn = Nanos::of_tick(self.wheel.insert(&mut self.slab, index), shift);
        effects.turn_at = effects.turn_at.min(turn);
        state
    }

    fn recount(&mut self, before: State, after: State) {
        let counts = &mut self.counts;
        let tally = |count: &mut usize, was: bool, is: bool| *count = *count + usize::from(is) - usize::from(was);
        let delayed = |state: State| state.phase == Phase::Delayed;
        let processing = |state: State| matches!(state.phase, Phase::Processing(_));
        tally(&mut counts.delayed, delayed(before), delayed(after));
        tally(&mut counts.processing, processing(before), processing(after));
        tally(&mut counts.wishing, before.has_wish(), after.has_wish());
    }

    #[inline]
    fn bounds(&self, index: u32) -> Bounds {
        self.bounds.get(index as usize).copied().unwrap_or_default()
    }

    #[inline]
    fn set_bounds(&mut self, index: u32, bounds: Bounds) {
        if self.bounds.is_empty() && bounds == Bounds::default() {
            return;
        }
        let index = index as usize;
        if self.bounds.len() <= index {
            self.bounds.resize(index + 1, Bounds::default());
        }
        self.bounds[index] = bounds;
    }

    fn forget_if_idle(&mut self, index: u32) -> Option<K> {
        (self.state(index).phase == Phase::Idle).then(|| self.forget(index))
    }

    /// Removes a record that is in no list.
    #[inline]
    fn forget(&mut self, index: u32) -> K {
        let hash = self.slab.get(index).hash;
        if let Ok(entry) = self.index.find_entry(hash, |&other| other == index) {
            entry.remove();
        }
        self.set_bounds(index, Bounds::default());
        self.slab.remove(index).key
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
