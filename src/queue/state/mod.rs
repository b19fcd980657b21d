//! What one key is waiting for, and how requests and endings change it: the tables of the queue's contract.
//!
//! A record is a plain value. It knows no lock, no clock and no thread; where a decision needs the time it asks the
//! closure `now`, and only then, so that a queue without delays never reads a clock.

mod answer;
mod debounce;
mod ending;
mod settled;

pub(crate) use self::answer::{Answer, Ending, Place};

use std::time::Duration;

use super::request::{EnqueueMethod, EnqueueOutcome, EnqueueRequest, Priority, Reasons};
use crate::base::time::Nanos;

/// Where a record stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is wanted of the key: its record is about to go.
    #[default]
    Idle,
    /// Nothing is wanted, but a cool-down runs until `due`: the record stays to remember it.
    Cooling,
    /// In line.
    Ready,
    /// Waits until `due`.
    Delayed,
    /// A claim holds it; the wish says what is wanted afterwards.
    Processing(Wished),
}

/// The one wish a record can hold while it is being processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wished {
    None,
    /// A run after this one; a delay that this one asks for holds it.
    Soft,
    /// A run at `due`.
    At,
    /// A run at `due` for a debounced change: no requeue and no backoff puts it off, but for the floor.
    Debounced,
    /// A run right after this one.
    Now,
}

/// Bounds on when a key may run. Few keys have any; a queue keeps them apart from the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The end of a cool-down: the key is not ready before it.
    pub(crate) not_before: Nanos,
    /// The latest time to which a debounced request may be put off; `None` where the delay is not a debounced one.
    pub(crate) cap: Option<Nanos>,
    /// The end of the backoff that a request has moved or ended, or a time after it if the delay that stands is no backoff.
    /// Zero where the delay of a failed key is its backoff.
    pub(crate) backoff_end: Nanos,
}

/// All that the rules know of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Delayed: when it becomes ready. Cooling: when it is forgotten. Processing with a wish `At` or `Debounced`: the time of
    /// that.
    pub(crate) due: Nanos,
    /// Failed runs in a row, early ones not counted.
    pub(crate) failures: u32,
    /// Why the next run is called.
    pub(crate) reasons: Reasons,
    pub(crate) phase: Phase,
    pub(crate) priority: Priority,
    /// A request brought the next run (or this one) forward: it comes before the end of its backoff.
    pub(crate) early: bool,
    /// Delayed: it has been put aside, so the delay is no backoff.
    pub(crate) aside: bool,
}

/// The part of a [`State`] that every key needs on its way through the line; kept beside the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Brief {
    pub(crate) reasons: Reasons,
    pub(crate) phase: Phase,
    pub(crate) priority: Priority,
}

/// The part of a [`State`] that only keys with delays and failures need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) due: Nanos,
    pub(crate) failures: u32,
    pub(crate) early: bool,
    pub(crate) aside: bool,
}

impl Brief {
    #[inline]
    pub(crate) fn has_wish(self) -> bool {
        matches!(self.phase, Phase::Processing(wish) if wish != Wished::None)
    }

    /// A request that joins what stands, or adds nothing to it: the record stays where it is. `None`: it may move.
    #[inline]
    pub(crate) fn absorb(&mut self, request: &EnqueueRequest) -> Option<EnqueueOutcome> {
        let admission = match (self.phase, request.verb) {
            (Phase::Ready | Phase::Delayed | Phase::Processing(_), EnqueueMethod::EnqueueIfAbsent) => {
                return Some(EnqueueOutcome::Ignored);
            }
            (Phase::Ready | Phase::Processing(_), EnqueueMethod::EnqueueResync) => {
                return Some(EnqueueOutcome::Ignored);
            }
            (Phase::Ready, EnqueueMethod::Reschedule(_)) => return None,
            (Phase::Ready, _) if request.priority <= self.priority => EnqueueOutcome::Merged,
            (Phase::Delayed, EnqueueMethod::Enqueue | EnqueueMethod::EnqueueAfter(_)) => EnqueueOutcome::Held,
            _ => return None,
        };
        self.reasons |= request.reasons;
        self.priority = self.priority.max(request.priority);
        Some(admission)
    }

    /// A claim takes the key; returns why it is called. Its bounds, if it had any, have served.
    #[inline]
    pub(crate) fn take(&mut self) -> Reasons {
        self.phase = Phase::Processing(Wished::None);
        std::mem::take(&mut self.reasons)
    }

    /// The record of a key that had none: in line, if the request for it puts it there at once, or else idle still.
    #[inline]
    pub(crate) fn new(request: &EnqueueRequest) -> Self {
        let at_once = matches!(
            request.verb,
            EnqueueMethod::EnqueueIfAbsent
                | EnqueueMethod::Enqueue
                | EnqueueMethod::EnqueueNow
                | EnqueueMethod::EnqueueResync
        );
        let phase = if at_once { Phase::Ready } else { Phase::Idle };
        Self { phase, priority: request.priority, reasons: request.reasons }
    }
}

impl State {
    #[inline]
    pub(crate) fn of(brief: Brief, late: Late) -> Self {
        let (Brief { reasons, phase, priority }, Late { due, failures, early, aside }) = (brief, late);
        Self { due, failures, reasons, phase, priority, early, aside }
    }

    #[inline]
    pub(crate) fn brief(&self) -> Brief {
        Brief { reasons: self.reasons, phase: self.phase, priority: self.priority }
    }

    #[inline]
    pub(crate) fn late(&self) -> Late {
        Late { due: self.due, failures: self.failures, early: self.early, aside: self.aside }
    }

    #[inline]
    pub(crate) fn has_wish(&self) -> bool {
        self.brief().has_wish()
    }

    #[inline]
    pub(crate) fn place(&self) -> Place {
        match self.phase {
            Phase::Idle | Phase::Processing(_) => Place::Out,
            Phase::Ready => Place::Lane(self.priority),
            Phase::Delayed | Phase::Cooling => Place::Wheel(self.due),
        }
    }

    /// A request arrives. `floor` is the least backoff that a request can leave of a longer one.
    #[inline]
    pub(crate) fn request(
        &mut self,
        bounds: &mut Bounds,
        request: &EnqueueRequest,
        floor: Duration,
        now: impl Fn() -> Nanos,
    ) -> Answer {
        let mut brief = self.brief();
        if let Some(admission) = brief.absorb(request) {
            *self = Self::of(brief, self.late());
            return admission.into();
        }
        let verb = plain(request.verb);
        if self.phase == Phase::Cooling {
            self.priority = request.priority;
        }
        if verb == EnqueueMethod::EnqueueResync && self.phase == Phase::Delayed && !self.is_idle_delay(bounds) {
            return EnqueueOutcome::Ignored.into();
        }
        let answer = match self.phase {
            Phase::Idle => self.request_idle(bounds, verb, now),
            Phase::Cooling => self.request_cooling(bounds, verb, now()),
            Phase::Ready => self.request_ready(bounds, verb, now),
            Phase::Delayed => self.request_delayed(bounds, verb, floor, now),
            Phase::Processing(wish) => self.request_processing(bounds, wish, verb, now),
        };
        self.reasons |= request.reasons;
        self.priority = self.priority.max(request.priority);
        answer
    }

    #[inline]
    fn request_idle(&mut self, bounds: &mut Bounds, verb: EnqueueMethod, now: impl Fn() -> Nanos) -> Answer {
        match verb {
            EnqueueMethod::EnqueueIfAbsent
            | EnqueueMethod::Enqueue
            | EnqueueMethod::EnqueueNow
            | EnqueueMethod::EnqueueResync => {
                self.phase = Phase::Ready;
                EnqueueOutcome::Queued.into()
            }
            EnqueueMethod::EnqueueAfter(delay) | EnqueueMethod::Reschedule(delay) => {
                let now = now();
                self.schedule(now.after(delay), now)
            }
            EnqueueMethod::EnqueueDebounced { quiet, max_wait }
            | EnqueueMethod::EnqueueNowDebounced { quiet, max_wait } => {
                let now = now();
                self.debounce(bounds, now.after(max_wait), quiet, now)
            }
        }
    }

    /// No wake is pending, but none may come before the cool-down ends.
    fn request_cooling(&mut self, bounds: &mut Bounds, verb: EnqueueMethod, now: Nanos) -> Answer {
        let wanted = match verb {
            EnqueueMethod::EnqueueIfAbsent
            | EnqueueMethod::Enqueue
            | EnqueueMethod::EnqueueNow
            | EnqueueMethod::EnqueueResync => now,
            EnqueueMethod::EnqueueAfter(delay) | EnqueueMethod::Reschedule(delay) => now.after(delay),
            EnqueueMethod::EnqueueDebounced { quiet, max_wait }
            | EnqueueMethod::EnqueueNowDebounced { quiet, max_wait } => {
                bounds.cap = Some(now.after(max_wait));
                now.after(quiet.min(max_wait))
            }
        };
        self.schedule(wanted.max(bounds.not_before), now)
    }

    fn request_ready(&mut self, bounds: &mut Bounds, verb: EnqueueMethod, now: impl Fn() -> Nanos) -> Answer {
        match verb {
            EnqueueMethod::Reschedule(delay) => {
                let now = now();
                let at = now.after(delay).max(bounds.not_before);
                bounds.cap = None;
                self.early = at < bounds.backoff_end;
                self.end_backoff(bounds, now);
                self.schedule(at, now)
            }
            // What is left raises the lane.
            _ => EnqueueOutcome::Merged.into(),
        }
    }

    fn request_delayed(
        &mut self,
        bounds: &mut Bounds,
        verb: EnqueueMethod,
        floor: Duration,
        now: impl Fn() -> Nanos,
    ) -> Answer {
        match (verb, bounds.cap) {
            (EnqueueMethod::EnqueueNow | EnqueueMethod::EnqueueResync, _) => {
                let now = now();
                let wanted = self.earliest(bounds, floor, now);
                if wanted == self.due && wanted > now {
                    bounds.cap = None;
                    return EnqueueOutcome::Held.into();
                }
                self.move_delay(bounds, wanted, now)
            }
            (EnqueueMethod::EnqueueNowDebounced { quiet, max_wait }, _) => {
                self.request_change(bounds, quiet, max_wait, floor, now())
            }
            (EnqueueMethod::Reschedule(delay), _) => {
                let now = now();
                let wanted = now.after(delay).max(bounds.not_before);
                self.move_delay(bounds, wanted, now)
            }
            (EnqueueMethod::EnqueueDebounced { quiet, .. }, Some(cap)) => {
                let now = now();
                let pushed = now.after(quiet).min(cap);
                if pushed <= self.due {
                    return EnqueueOutcome::Held.into();
                }
                self.early = pushed < bounds.backoff_end;
                self.schedule(pushed, now)
            }
            // What is left is a debounced request, and the delay is not its own.
            _ => EnqueueOutcome::Held.into(),
        }
    }

    fn request_processing(
        &mut self,
        bounds: &mut Bounds,
        wish: Wished,
        verb: EnqueueMethod,
        now: impl Fn() -> Nanos,
    ) -> Answer {
        let wish = match (verb, wish) {
            (EnqueueMethod::Reschedule(delay), _) => {
                bounds.cap = None;
                self.due = now().after(delay);
                Wished::At
            }
            (_, Wished::Now) => Wished::Now,
            (EnqueueMethod::EnqueueNow, _) => {
                bounds.cap = None;
                Wished::Now
            }
            (EnqueueMethod::EnqueueAfter(delay), Wished::None) => {
                self.due = now().after(delay);
                Wished::At
            }
            (EnqueueMethod::EnqueueDebounced { quiet, max_wait }, Wished::None) => {
                let now = now();
                bounds.cap = Some(now.after(max_wait));
                self.due = now.after(quiet.min(max_wait));
                Wished::At
            }
            (EnqueueMethod::EnqueueDebounced { quiet, .. }, Wished::At | Wished::Debounced) => {
                if let Some(cap) = bounds.cap {
                    self.due = now().after(quiet).min(cap).max(self.due);
                }
                wish
            }
            (EnqueueMethod::EnqueueNowDebounced { quiet, max_wait }, _) => {
                self.wish_change(bounds, wish, quiet, max_wait, now());
                Wished::Debounced
            }
            (_, Wished::None) => Wished::Soft,
            (_, wish @ (Wished::Soft | Wished::At | Wished::Debounced)) => wish,
        };
        self.phase = Phase::Processing(wish);
        EnqueueOutcome::Rerun.into()
    }

    /// The key is to run at `at`: a time that has come already puts it in line, at the tail.
    fn schedule(&mut self, at: Nanos, now: Nanos) -> Answer {
        let admission = if at <= now {
            self.phase = Phase::Ready;
            EnqueueOutcome::Queued
        } else {
            self.phase = Phase::Delayed;
            self.due = at;
            EnqueueOutcome::Scheduled
        };
        Answer { admission, to_tail: true }
    }

    /// The earliest time to which a request can bring a delay forward.
    fn earliest(&self, bounds: &Bounds, floor: Duration, now: Nanos) -> Nanos {
        let floor = if self.failures > 0 { floor } else { Duration::ZERO };
        now.after(floor).max(bounds.not_before).min(self.due)
    }

    /// Moves a delay that stands. If that delay is a backoff, the run is early if it now comes before the end of the backoff. The
    /// delay of a key that has been put aside is no backoff.
    fn move_delay(&mut self, bounds: &mut Bounds, at: Nanos, now: Nanos) -> Answer {
        if self.failures > 0 && !self.aside {
            if bounds.backoff_end == Nanos::ZERO {
                bounds.backoff_end = self.due;
            }
            self.early = at < bounds.backoff_end;
        } else {
            self.end_backoff(bounds, now);
        }
        self.aside = false;
        bounds.cap = None;
        self.schedule(at, now)
    }

    /// The backoff is over: a delay that begins now is none, however often the key has failed.
    fn end_backoff(&self, bounds: &mut Bounds, now: Nanos) {
        if self.failures > 0 && bounds.backoff_end == Nanos::ZERO {
            bounds.backoff_end = now;
        }
    }

    /// The wake goes, whatever it was; a run under way and a cool-down go on.
    pub(crate) fn cancel(&mut self, bounds: &mut Bounds, now: impl Fn() -> Nanos) {
        bounds.cap = None;
        bounds.backoff_end = Nanos::ZERO;
        self.phase = match self.phase {
            Phase::Processing(_) => Phase::Processing(Wished::None),
            phase @ (Phase::Idle | Phase::Cooling) => phase,
            Phase::Ready | Phase::Delayed => {
                if bounds.not_before > Nanos::ZERO && bounds.not_before > now() {
                    self.due = bounds.not_before;
                    Phase::Cooling
                } else {
                    Phase::Idle
                }
            }
        };
        self.reasons = Reasons::NONE;
        self.aside = false;
        if matches!(self.phase, Phase::Cooling) {
            self.failures = 0;
            self.early = false;
        }
    }

    /// The count of failures if the next run fails, or the one under way.
    pub(crate) fn failures_if_retried(&self) -> u32 {
        failures_if_retried(self.failures, self.early)
    }

    /// The time a record waited for has come.
    pub(crate) fn expire(&mut self) {
        self.phase = match self.phase {
            Phase::Delayed => Phase::Ready,
            Phase::Cooling => Phase::Idle,
            other => other,
        };
    }
}

/// A delay of zero is no delay.
#[inline]
fn plain(verb: EnqueueMethod) -> EnqueueMethod {
    if verb == EnqueueMethod::EnqueueAfter(Duration::ZERO) { EnqueueMethod::Enqueue } else { verb }
}

/// A failed run counts, unless a request had ended the backoff before it: then the key backs off by the same step again.
pub(crate) fn failures_if_retried(failures: u32, early: bool) -> u32 {
    failures.saturating_add(u32::from(!early))
}

#[cfg(all(test, not(loom)))]
mod tests;
