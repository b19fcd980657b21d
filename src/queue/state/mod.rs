//! The rules of one key: how requests and endings change its state. These are the tables of the queue's contract.
//!
//! A state is a plain value. It knows no lock, clock or thread. A rule that needs the time calls `now`, so a queue
//! without delays never reads a clock.

mod debounce;
mod ending;

pub(crate) use self::ending::{Deferral, Ending, failures_if_retried};

use std::time::Duration;

use super::request::{EnqueueMethod, EnqueueOutcome, EnqueueRequest, Priority, Reasons};
use crate::base::time::Nanos;

/// The phase of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The key needs no run. Its record is about to be removed.
    #[default]
    Idle,
    /// The key needs no run, but its record remembers a cool-down until `due`.
    Cooling,
    /// Waits for a claim.
    Ready,
    /// Waits until `due`.
    Delayed,
    /// A claim holds the key. The field is the pending rerun.
    Processing(RerunKind),
}

/// The pending rerun of a record that is being processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RerunKind {
    None,
    /// A run after this one, or after the delay that this one asks for.
    Soft,
    /// A run at `due`.
    At,
    /// A run at `due`. It replaces the current run if that is deferred.
    Rescheduled,
    /// A run at `due` for a debounced change. No requeue delays it, and a backoff only by the floor.
    Debounced,
    /// A run right after this one.
    Now,
}

/// Bounds on when a key may run. Few keys have bounds, so a queue keeps them apart from the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The end of a cool-down. The key is not ready before it.
    pub(crate) not_before: Nanos,
    /// The latest time for a debounced run; `None` if the delay is not debounced.
    pub(crate) cap: Option<Nanos>,
    /// When the backoff of a failed key ends, if a request or the minimum interval has given the key another delay. A
    /// time in the past if that delay is no backoff. [`Nanos::NEVER`] if the delay is the backoff itself: any other
    /// end is at most [`LAST`](Self::LAST).
    pub(crate) backoff_end: Nanos,
}

/// The list of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListPlace {
    /// No list: the record is idle, or a claim holds it.
    Out,
    /// The ready keys of this level.
    Level(Priority),
    /// The wheel, due at this time.
    Wheel(Nanos),
}

/// The effect of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) outcome: EnqueueOutcome,
    /// The key moves to the tail of its list, even if it is in that list already.
    pub(crate) to_tail: bool,
}

impl From<EnqueueOutcome> for Decision {
    fn from(outcome: EnqueueOutcome) -> Self {
        Self { outcome, to_tail: false }
    }
}

/// The state of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordState {
    /// The end of the delay or the cool-down, or the time of a rerun that has one.
    pub(crate) due: Nanos,
    /// Failed runs in a row, without early runs.
    pub(crate) failures: u32,
    /// The reasons for the next run.
    pub(crate) reasons: Reasons,
    pub(crate) phase: Phase,
    pub(crate) priority: Priority,
    /// A request has moved the next or current run before the end of its backoff.
    pub(crate) early: bool,
    pub(crate) deferral: Deferral,
}

/// The part of a [`RecordState`] that every key needs. It is stored with the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineState {
    pub(crate) reasons: Reasons,
    pub(crate) phase: Phase,
    pub(crate) priority: Priority,
}

/// The part of a [`RecordState`] that only keys with delays or failures need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DelayState {
    pub(crate) due: Nanos,
    pub(crate) failures: u32,
    pub(crate) early: bool,
    pub(crate) deferral: Deferral,
    /// The slack of `due` in the wheel, as an exponent. No rule depends on it.
    pub(crate) slack: u8,
}

impl LineState {
    #[inline]
    pub(crate) fn has_rerun(self) -> bool {
        matches!(self.phase, Phase::Processing(rerun) if rerun != RerunKind::None)
    }

    /// Applies a request that leaves the record in its list. Returns `None` if the record may move: see
    /// [`RecordState::request_unabsorbed`].
    #[inline]
    pub(crate) fn absorb(&mut self, request: &EnqueueRequest) -> Option<EnqueueOutcome> {
        let outcome = match (self.phase, request.method) {
            (Phase::Ready | Phase::Delayed | Phase::Processing(_), EnqueueMethod::EnqueueIfAbsent)
            | (Phase::Ready | Phase::Processing(_), EnqueueMethod::EnqueueResync | EnqueueMethod::EnqueueSelected) => {
                return Some(EnqueueOutcome::Ignored);
            }
            (Phase::Ready, EnqueueMethod::Reschedule(_)) => return None,
            (Phase::Ready, _) if request.priority <= self.priority => EnqueueOutcome::Merged,
            (Phase::Delayed, EnqueueMethod::Enqueue | EnqueueMethod::EnqueueAfter(_)) => EnqueueOutcome::Held,
            _ => return None,
        };
        self.reasons |= request.reasons;
        self.priority = self.priority.max(request.priority);
        Some(outcome)
    }

    /// Marks the key as being processed. Returns the reasons for the run.
    #[inline]
    pub(crate) fn take(&mut self) -> Reasons {
        self.phase = Phase::Processing(RerunKind::None);
        std::mem::take(&mut self.reasons)
    }

    /// Returns the state of a new record: ready, or idle if only [`RecordState::request_unabsorbed`] can decide. A fast
    /// path: a test checks it against the rule.
    #[inline]
    pub(crate) fn new(request: &EnqueueRequest) -> Self {
        use EnqueueMethod::{EnqueueAfter, EnqueueDebounced, EnqueueNowDebounced, Reschedule};
        let debounced = matches!(request.method, EnqueueDebounced { .. } | EnqueueNowDebounced { .. });
        let is_later = debounced || matches!(request.method, EnqueueAfter(_) | Reschedule(_));
        let phase = if is_later { Phase::Idle } else { Phase::Ready };
        Self { phase, priority: request.priority, reasons: request.reasons }
    }

    /// Returns whether `ending` makes the key idle, if the queue is open and has no minimal interval. A fast path of
    /// [`RecordState::end`]: a test checks it against the rule.
    #[inline]
    pub(crate) fn is_idle_after(self, ending: Ending) -> bool {
        matches!(ending, Ending::Done | Ending::Leave) && !self.has_rerun()
    }
}

impl RecordState {
    #[inline]
    pub(crate) fn of(line: LineState, delay: DelayState) -> Self {
        let LineState { reasons, phase, priority } = line;
        let DelayState { due, failures, early, deferral, .. } = delay;
        Self { due, failures, reasons, phase, priority, early, deferral }
    }

    #[inline]
    pub(crate) fn line(&self) -> LineState {
        LineState { reasons: self.reasons, phase: self.phase, priority: self.priority }
    }

    #[inline]
    pub(crate) fn delay(&self) -> DelayState {
        let Self { due, failures, early, deferral, .. } = *self;
        DelayState { due, failures, early, deferral, slack: 0 }
    }

    #[inline]
    pub(crate) fn has_rerun(&self) -> bool {
        self.line().has_rerun()
    }

    #[inline]
    pub(crate) fn place(&self) -> ListPlace {
        match self.phase {
            Phase::Idle | Phase::Processing(_) => ListPlace::Out,
            Phase::Ready => ListPlace::Level(self.priority),
            Phase::Delayed | Phase::Cooling => ListPlace::Wheel(self.due),
        }
    }

    /// Applies a request that [`LineState::absorb`] has not applied. It cannot shorten a backoff below `floor`.
    #[inline]
    pub(crate) fn request_unabsorbed(
        &mut self,
        bounds: &mut Bounds,
        request: &EnqueueRequest,
        floor: Duration,
        now: impl Fn() -> Nanos,
    ) -> Decision {
        let method = plain(request.method);
        if self.phase == Phase::Cooling {
            self.priority = request.priority;
        }
        let is_resync = matches!(method, EnqueueMethod::EnqueueResync | EnqueueMethod::EnqueueSelected);
        if is_resync && self.phase == Phase::Delayed && !self.is_idle_delay(bounds) {
            return EnqueueOutcome::Ignored.into();
        }
        let decision = match self.phase {
            Phase::Idle => self.request_idle(bounds, method, now),
            Phase::Cooling => self.request_cooling(bounds, method, now()),
            Phase::Ready => self.request_ready(bounds, method, now),
            Phase::Delayed => self.request_delayed(bounds, method, floor, now),
            Phase::Processing(rerun) => self.request_processing(bounds, rerun, method, now),
        };
        self.reasons |= request.reasons;
        self.priority = self.priority.max(request.priority);
        decision
    }

    #[inline]
    fn request_idle(&mut self, bounds: &mut Bounds, method: EnqueueMethod, now: impl Fn() -> Nanos) -> Decision {
        match method {
            EnqueueMethod::EnqueueAfter(delay) | EnqueueMethod::Reschedule(delay) => {
                let now = now();
                self.schedule(now.after(delay), now)
            }
            EnqueueMethod::EnqueueDebounced { quiet, max_wait }
            | EnqueueMethod::EnqueueNowDebounced { quiet, max_wait } => {
                let now = now();
                self.debounce(bounds, now.after(max_wait), quiet, now)
            }
            _ => {
                self.phase = Phase::Ready;
                EnqueueOutcome::Queued.into()
            }
        }
    }

    /// Applies a request during a cool-down. No run is scheduled, and no run may start before the cool-down ends.
    fn request_cooling(&mut self, bounds: &mut Bounds, method: EnqueueMethod, now: Nanos) -> Decision {
        let wanted = match method {
            EnqueueMethod::EnqueueAfter(delay) | EnqueueMethod::Reschedule(delay) => now.after(delay),
            EnqueueMethod::EnqueueDebounced { quiet, max_wait }
            | EnqueueMethod::EnqueueNowDebounced { quiet, max_wait } => {
                bounds.cap = Some(now.after(max_wait));
                now.after(quiet.min(max_wait))
            }
            _ => now,
        };
        self.schedule(wanted.max(bounds.not_before), now)
    }

    fn request_ready(&mut self, bounds: &mut Bounds, method: EnqueueMethod, now: impl Fn() -> Nanos) -> Decision {
        match method {
            EnqueueMethod::Reschedule(delay) => {
                let now = now();
                let at = now.after(delay).max(bounds.not_before);
                bounds.cap = None;
                self.early = at < bounds.backoff_end && bounds.backoff_end < Nanos::NEVER;
                self.keep_backoff_end(bounds, now);
                self.schedule(at, now)
            }
            // Other requests only raise the level.
            _ => EnqueueOutcome::Merged.into(),
        }
    }

    fn request_delayed(
        &mut self,
        bounds: &mut Bounds,
        method: EnqueueMethod,
        floor: Duration,
        now: impl Fn() -> Nanos,
    ) -> Decision {
        match (method, bounds.cap) {
            (EnqueueMethod::EnqueueNow | EnqueueMethod::EnqueueResync | EnqueueMethod::EnqueueSelected, _) => {
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
                let decision = self.move_delay(bounds, wanted, now);
                // The new run replaces the deferred one.
                self.deferral = Deferral::None;
                decision
            }
            (EnqueueMethod::EnqueueDebounced { quiet, .. }, Some(cap)) => {
                let now = now();
                let pushed = now.after(quiet).min(cap);
                if pushed <= self.due {
                    return EnqueueOutcome::Held.into();
                }
                let decision = self.move_delay(bounds, pushed, now);
                bounds.cap = Some(cap);
                decision
            }
            // A debounced request does not move the delay of another method.
            _ => EnqueueOutcome::Held.into(),
        }
    }

    fn request_processing(
        &mut self,
        bounds: &mut Bounds,
        rerun: RerunKind,
        method: EnqueueMethod,
        now: impl Fn() -> Nanos,
    ) -> Decision {
        let rerun = match (method, rerun) {
            (EnqueueMethod::Reschedule(delay), _) => {
                bounds.cap = None;
                self.due = now().after(delay);
                RerunKind::Rescheduled
            }
            (_, RerunKind::Now) => RerunKind::Now,
            (EnqueueMethod::EnqueueNow, _) => {
                bounds.cap = None;
                RerunKind::Now
            }
            (EnqueueMethod::EnqueueAfter(delay), RerunKind::None) => {
                self.due = now().after(delay);
                RerunKind::At
            }
            (EnqueueMethod::EnqueueDebounced { quiet, max_wait }, RerunKind::None) => {
                let now = now();
                bounds.cap = Some(now.after(max_wait));
                self.due = now.after(quiet.min(max_wait));
                RerunKind::At
            }
            (EnqueueMethod::EnqueueDebounced { quiet, .. }, RerunKind::At | RerunKind::Debounced) => {
                if let Some(cap) = bounds.cap {
                    self.due = now().after(quiet).min(cap).max(self.due);
                }
                rerun
            }
            (EnqueueMethod::EnqueueNowDebounced { quiet, max_wait }, _) => {
                self.rerun_change(bounds, rerun, quiet, max_wait, now());
                RerunKind::Debounced
            }
            (_, RerunKind::None) => RerunKind::Soft,
            (_, rerun) => rerun,
        };
        self.phase = Phase::Processing(rerun);
        EnqueueOutcome::Rerun.into()
    }

    /// Schedules a run at `at`. If that time has passed, the key is ready and not deferred, behind all keys of its
    /// level.
    fn schedule(&mut self, at: Nanos, now: Nanos) -> Decision {
        let outcome = if at <= now {
            self.phase = Phase::Ready;
            self.deferral = Deferral::None;
            EnqueueOutcome::Queued
        } else {
            self.phase = Phase::Delayed;
            self.due = at;
            EnqueueOutcome::Scheduled
        };
        Decision { outcome, to_tail: true }
    }

    /// Returns the earliest time to which a request can move a delay. Only a backoff has a floor.
    fn earliest(&self, bounds: &Bounds, floor: Duration, now: Nanos) -> Nanos {
        let is_backoff = self.failures > 0 && self.deferral != Deferral::Deferred && bounds.is_backoff(now);
        let floor = if is_backoff { floor } else { Duration::ZERO };
        now.after(floor).max(bounds.not_before).min(self.due)
    }

    /// Moves the current delay. A run before the end of its backoff is early. A deferred key stays deferred while it is
    /// delayed, and its delay is no backoff.
    fn move_delay(&mut self, bounds: &mut Bounds, at: Nanos, now: Nanos) -> Decision {
        let in_backoff = self.failures > 0 && self.deferral != Deferral::Deferred;
        self.keep_backoff_end(bounds, if in_backoff { self.due } else { now });
        self.early = if in_backoff { at < bounds.backoff_end } else { self.early };
        bounds.cap = None;
        self.schedule(at, now)
    }

    /// Remembers that the backoff of a failed key ends at `end`, unless that is known. Another delay begins.
    fn keep_backoff_end(&self, bounds: &mut Bounds, end: Nanos) {
        if self.failures > 0 && bounds.backoff_end == Nanos::NEVER {
            bounds.backoff_end = end.min(Bounds::LAST);
        }
    }

    /// Returns whether no run is owed. Requeues and reasonless future runs do not count.
    pub(crate) fn is_settled(&self, bounds: &Bounds) -> bool {
        match self.phase {
            Phase::Idle | Phase::Cooling => true,
            // A change that waits for the same run has added its reason. A run that only waits for the end of a
            // cool-down was asked for at once, unless it is a requeue.
            Phase::Delayed => {
                let is_for_later = self.reasons.is_empty() && self.due > bounds.not_before;
                self.is_idle_delay(bounds) && (is_for_later || self.reasons == Reasons::REQUEUE)
            }
            Phase::Ready | Phase::Processing(_) => false,
        }
    }

    /// Returns whether a delayed key needs no run before its delay ends. A backoff, a debounced change and a deferred
    /// run need one.
    pub(super) fn is_idle_delay(&self, bounds: &Bounds) -> bool {
        self.failures == 0 && self.deferral != Deferral::Deferred && bounds.cap.is_none()
    }
}

/// Replaces a delay of zero by no delay.
#[inline]
fn plain(method: EnqueueMethod) -> EnqueueMethod {
    if method == EnqueueMethod::EnqueueAfter(Duration::ZERO) { EnqueueMethod::Enqueue } else { method }
}

#[cfg(all(test, not(loom)))]
mod tests;
