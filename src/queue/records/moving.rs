//! Moving a record to the list that its state names: a level, the wheel, or none.

use super::super::request::Priority;
use super::super::state::{Bounds, ListPlace, Phase, RecordState};
use super::{Effects, Records};
use crate::base::time::Nanos;

impl<K> Records<K> {
    /// Makes the keys ready that are due at `now`, in due order, in at most `budget` steps. Moves keys into `gone` if
    /// their cool-down has ended. Returns the time of the next call.
    pub(crate) fn expire(&mut self, now: Nanos, mut budget: u32, gone: &mut Vec<K>, effects: &mut Effects) -> Nanos {
        if self.mode().is_some() {
            // The shutdown handles the delays.
            return Nanos::NEVER;
        }
        let tick = now.tick_down(self.settings.tick_shift);
        while let Some(index) = self.wheel.pop(&mut self.slab, tick, &mut budget) {
            self.came_due(index, &|| now, effects);
            gone.extend(self.forget_if_idle(index));
        }
        self.next_turn()
    }

    /// Returns when to turn the wheel; [`Nanos::NEVER`] while it is empty.
    pub(crate) fn next_turn(&self) -> Nanos {
        self.wheel.next_tick().map_or(Nanos::NEVER, |tick| Nanos::of_tick(tick, self.settings.tick_shift))
    }

    /// Applies the end of a delay to a record that has left the wheel.
    pub(super) fn came_due(&mut self, index: u32, now: &impl Fn() -> Nanos, effects: &mut Effects) {
        let before = self.state(index);
        let mut state = before;
        state.expire();
        self.slab.set_state(index, state);
        self.recount(before, state);
        self.link(index, state, now, effects);
    }

    /// Applies a rule to a record and moves the record to its list. `to_tail` also moves it within its list.
    #[inline]
    pub(super) fn change<R>(
        &mut self,
        index: u32,
        now: &impl Fn() -> Nanos,
        effects: &mut Effects,
        rule: impl FnOnce(&mut RecordState, &mut Bounds) -> (R, bool),
    ) -> R {
        let mut bounds = self.bounds(index);
        let before = self.slab.state(index);
        let mut state = before;
        let (decision, to_tail) = rule(&mut state, &mut bounds);
        self.set_bounds(index, bounds);
        self.slab.set_state(index, state);
        let (from, to) = (before.place(), state.place());
        if to_tail || from != to {
            match from {
                ListPlace::Out => {}
                ListPlace::Level(level) => self.levels.remove(&mut self.slab, level, index),
                ListPlace::Wheel(_) => self.wheel.remove(&mut self.slab, index),
            }
            match (from, to) {
                // The key was already ready, so no consumer is woken, and its waiting time continues.
                (ListPlace::Level(_), ListPlace::Level(level)) => self.levels.push_back(&mut self.slab, level, index),
                _ => self.link(index, state, now, effects),
            }
        }
        if before.phase != state.phase {
            self.recount(before, state);
        }
        decision
    }

    /// Counts a record that is in no list and not being processed, and adds it to its list.
    #[inline]
    pub(super) fn enter(&mut self, index: u32, state: RecordState, now: &impl Fn() -> Nanos, effects: &mut Effects) {
        self.link(index, state, now, effects);
        self.counts.delayed += usize::from(state.phase == Phase::Delayed);
    }

    /// Adds a record that is in no list to its list.
    #[inline]
    fn link(&mut self, index: u32, state: RecordState, now: &impl Fn() -> Nanos, effects: &mut Effects) {
        match state.place() {
            ListPlace::Out => {}
            ListPlace::Level(level) => self.line_up(index, level, now, effects),
            ListPlace::Wheel(_) => self.wind(index, now(), effects),
        }
    }

    #[inline(always)]
    pub(crate) fn line_up(&mut self, index: u32, level: Priority, now: &impl Fn() -> Nanos, effects: &mut Effects) {
        if self.settings.timing {
            self.set_ready_since(index, now());
        }
        effects.from_empty |= self.levels.is_empty();
        effects.readied += 1;
        self.counts.adds += 1;
        self.levels.push_back(&mut self.slab, level, index);
    }

    fn set_ready_since(&mut self, index: u32, now: Nanos) {
        let index = index as usize;
        if self.ready_since.len() <= index {
            self.ready_since.resize(index + 1, Nanos::ZERO);
        }
        self.ready_since[index] = now;
    }

    fn wind(&mut self, index: u32, now: Nanos, effects: &mut Effects) {
        let shift = self.settings.tick_shift;
        let tick = now.tick_down(shift);
        if tick > self.wheel.elapsed() {
            // Brings an idle wheel up to the present, so that the new entry starts on a low level.
            self.wheel.pop(&mut self.slab, tick, &mut 0);
        }
        let delay = Nanos(self.slab.delay(index).due.0.saturating_sub(now.0));
        self.slab.set_slack(index, self.settings.slack.exponent(delay, shift));
        let turn = Nanos::of_tick(self.wheel.insert(&mut self.slab, index), shift);
        effects.turn_at = effects.turn_at.min(turn);
    }

    fn recount(&mut self, before: RecordState, after: RecordState) {
        let counts = &mut self.counts;
        let tally = |count: &mut usize, was: bool, is: bool| *count = *count + usize::from(is) - usize::from(was);
        let delayed = |state: RecordState| state.phase == Phase::Delayed;
        let processing = |state: RecordState| matches!(state.phase, Phase::Processing(_));
        tally(&mut counts.delayed, delayed(before), delayed(after));
        tally(&mut counts.processing, processing(before), processing(after));
        tally(&mut counts.with_rerun, before.has_rerun(), after.has_rerun());
    }
}
