//! How the end of a claim, a cancellation and a shutdown change a record: the second and third table of the contract.

use std::time::Duration;

use super::super::request::{DroppedRun, Reasons, Shutdown};
use super::{Bounds, Phase, RecordState, RerunKind};
use crate::base::time::Nanos;

/// How a claim ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Done,
    /// Like `Done`, but there was no run, so no minimum interval begins.
    Leave,
    /// Like `Done`, and the key is ready no sooner than this much later.
    CoolDown(Duration),
    RequeueAfter(Duration),
    /// The run failed; the key runs again this much later.
    Retry(Duration),
    /// The run ended without success or failure. The key is ready again, for these reasons and any newer ones. Its
    /// failures stay.
    PutBack(Reasons),
    /// There was no run, because the key may not run now. Its run is deferred by this much, or until its rerun if that
    /// is earlier. Its reasons and failures stay. A key that was released during the claim is ready at once. A
    /// `reschedule` replaces the run.
    Defer(Reasons, Duration),
}

/// Whether the run of a key is deferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Deferral {
    #[default]
    None,
    /// The key is delayed because it may not run now. It still needs its run, and its delay is no backoff.
    Deferred,
    /// The key was released while a claim holds it, so the claim must not defer it.
    Released,
}

impl Ending {
    /// Returns whether the key had a run.
    pub(crate) fn had_run(self) -> bool {
        !matches!(self, Self::Leave | Self::Defer(..))
    }
}

impl RerunKind {
    /// Returns whether the rerun has its own time.
    pub(super) fn has_time(self) -> bool {
        matches!(self, Self::At | Self::Rescheduled | Self::Debounced)
    }
}

impl Bounds {
    pub(crate) const NONE: Self = Self { not_before: Nanos::ZERO, cap: None, backoff_end: Nanos::NEVER };
    /// The latest end of a backoff.
    pub(super) const LAST: Nanos = Nanos(Nanos::NEVER.0 - 1);

    /// Returns whether the delay of a failed key is a backoff that has not ended.
    pub(super) fn is_backoff(&self, now: Nanos) -> bool {
        self.backoff_end > now
    }

    /// Adapts the cap to a claim that ends with a delay until `latest`. Only a debounced rerun keeps a cap, of at most
    /// `latest`.
    fn keep_cap(&mut self, rerun: RerunKind, latest: Nanos) {
        self.cap = self.cap.filter(|_| rerun == RerunKind::Debounced).map(|cap| cap.min(latest));
    }
}

impl RecordState {
    /// Ends the claim. After a shutdown (`mode`) no delay begins: a pending rerun is ready at once, and a run that only
    /// this ending would schedule is dropped and returned.
    #[inline]
    pub(crate) fn end(
        &mut self,
        bounds: &mut Bounds,
        ending: Ending,
        floor: Duration,
        mode: Option<Shutdown>,
        now: impl Fn() -> Nanos,
    ) -> Option<DroppedRun> {
        let Phase::Processing(rerun) = self.phase else {
            unreachable!("only a claim ends, and what it claims is being processed");
        };
        let was_released = std::mem::take(&mut self.deferral) == Deferral::Released;
        if !matches!(ending, Ending::PutBack(_) | Ending::Defer(..)) {
            self.failures = if let Ending::Retry(_) = ending { self.failures_if_retried() } else { 0 };
            self.early = false;
        }
        // Even after a shutdown: a remaining rerun is served for these reasons too.
        self.reasons |= match ending {
            Ending::Done | Ending::Leave | Ending::CoolDown(_) => Reasons::NONE,
            Ending::RequeueAfter(_) => Reasons::REQUEUE,
            Ending::Retry(_) => Reasons::RETRY,
            Ending::PutBack(reasons) | Ending::Defer(reasons, _) => reasons,
        };
        if mode.is_some() {
            return self.end_after_shutdown(bounds, rerun, ending, || was_released && mode != Some(Shutdown::Discard));
        }
        match ending {
            Ending::Done | Ending::Leave | Ending::CoolDown(Duration::ZERO) => match rerun {
                RerunKind::None => self.phase = Phase::Idle,
                RerunKind::Soft | RerunKind::Now => self.phase = Phase::Ready,
                RerunKind::At | RerunKind::Rescheduled | RerunKind::Debounced => {
                    self.schedule(self.due, now());
                }
            },
            Ending::CoolDown(delay) => {
                let end = now().after(delay);
                bounds.not_before = end;
                self.phase = if rerun == RerunKind::None { Phase::Cooling } else { Phase::Delayed };
                self.due = if rerun.has_time() { end.max(self.due) } else { end };
            }
            Ending::RequeueAfter(delay) => {
                if rerun == RerunKind::Now {
                    self.phase = Phase::Ready;
                } else {
                    let now = now();
                    let requeued = now.after(delay);
                    let at = if rerun.has_time() { requeued.min(self.due) } else { requeued };
                    bounds.keep_cap(rerun, requeued);
                    self.schedule(at, now);
                }
            }
            Ending::Retry(delay) => {
                let now = now();
                let backoff = now.after(delay);
                let wanted = match rerun {
                    RerunKind::Now => now.after(floor),
                    RerunKind::Debounced => now.after(floor).max(self.due),
                    RerunKind::None | RerunKind::Soft | RerunKind::At | RerunKind::Rescheduled => backoff,
                };
                let at = wanted.min(backoff);
                self.early = at < backoff;
                if self.early {
                    bounds.backoff_end = backoff.min(Bounds::LAST);
                }
                bounds.keep_cap(rerun, backoff);
                self.schedule(at, now);
            }
            Ending::PutBack(_) => {
                bounds.cap = None;
                self.phase = Phase::Ready;
            }
            Ending::Defer(_, delay) => match rerun {
                RerunKind::Rescheduled => {
                    let now = now();
                    self.keep_backoff_end(bounds, now);
                    self.schedule(self.due, now);
                }
                _ if was_released || rerun == RerunKind::Now => {
                    bounds.cap = None;
                    self.phase = Phase::Ready;
                }
                _ => self.defer(bounds, rerun, delay, now()),
            },
        }
        None
    }

    /// Defers the run of the key until `delay` from now, or until its rerun if that is earlier.
    fn defer(&mut self, bounds: &mut Bounds, rerun: RerunKind, delay: Duration, now: Nanos) {
        let latest = now.after(delay);
        bounds.keep_cap(rerun, latest);
        self.deferral = Deferral::Deferred;
        self.schedule(if rerun.has_time() { latest.min(self.due) } else { latest }, now);
    }

    /// Delays the next run until `interval` from now. For the end of a claim. The interval is no part of a backoff.
    pub(crate) fn keep_apart(&mut self, bounds: &mut Bounds, interval: Duration, now: Nanos) {
        let earliest = now.after(interval);
        bounds.not_before = bounds.not_before.max(earliest);
        let (phase, planned) = match self.phase {
            Phase::Idle => (Phase::Cooling, now),
            Phase::Ready => (Phase::Delayed, now),
            phase => (phase, self.due),
        };
        (self.phase, self.due) = (phase, planned.max(earliest));
        self.early &= self.due < bounds.backoff_end || bounds.backoff_end == Nanos::NEVER;
        self.keep_backoff_end(bounds, planned);
    }

    /// Ends a claim after a shutdown, and returns the run that is dropped. `is_owed`: whether the key still needs a run
    /// that its claim did not give it.
    fn end_after_shutdown(
        &mut self,
        bounds: &mut Bounds,
        rerun: RerunKind,
        ending: Ending,
        is_owed: impl Fn() -> bool,
    ) -> Option<DroppedRun> {
        *bounds = Bounds::NONE;
        if rerun != RerunKind::None {
            self.phase = Phase::Ready;
            return None;
        }
        self.phase = Phase::Idle;
        match ending {
            Ending::Done | Ending::Leave | Ending::CoolDown(_) => None,
            Ending::Defer(..) if is_owed() => {
                self.phase = Phase::Ready;
                None
            }
            Ending::RequeueAfter(_) | Ending::PutBack(_) | Ending::Defer(..) => Some(DroppedRun::Requeue),
            Ending::Retry(_) => Some(DroppedRun::Retry),
        }
    }

    /// Applies a shutdown. Returns the run that it drops.
    pub(crate) fn shut_down(&mut self, mode: Shutdown) -> Option<DroppedRun> {
        let (phase, dropped) = match (self.phase, mode) {
            (Phase::Ready, Shutdown::Discard) => (Phase::Idle, Some(DroppedRun::Ready)),
            (Phase::Delayed, Shutdown::RunDelayedNow) => (Phase::Ready, None),
            (Phase::Delayed, Shutdown::ServeReady | Shutdown::Discard) => (Phase::Idle, Some(DroppedRun::Delayed)),
            (
                Phase::Processing(RerunKind::At | RerunKind::Rescheduled | RerunKind::Debounced),
                Shutdown::ServeReady | Shutdown::Discard,
            )
            | (Phase::Processing(RerunKind::Soft | RerunKind::Now), Shutdown::Discard) => {
                (Phase::Processing(RerunKind::None), Some(DroppedRun::PendingRerun))
            }
            (Phase::Cooling, _) => (Phase::Idle, None),
            (phase, _) => (phase, None),
        };
        self.phase = phase;
        dropped
    }

    /// Cancels the scheduled run. A current run and a cool-down continue.
    pub(crate) fn cancel(&mut self, bounds: &mut Bounds, now: impl Fn() -> Nanos) {
        bounds.cap = None;
        bounds.backoff_end = Nanos::NEVER;
        self.phase = match self.phase {
            // A key is released only once, so its claim must remember it.
            Phase::Processing(_) => Phase::Processing(RerunKind::None),
            phase @ (Phase::Idle | Phase::Cooling) => phase,
            Phase::Ready | Phase::Delayed => {
                self.deferral = Deferral::None;
                if bounds.not_before > Nanos::ZERO && bounds.not_before > now() {
                    self.due = bounds.not_before;
                    Phase::Cooling
                } else {
                    Phase::Idle
                }
            }
        };
        self.reasons = Reasons::NONE;
        if matches!(self.phase, Phase::Cooling) {
            self.failures = 0;
            self.early = false;
        }
    }

    /// Makes a deferred key ready. If a claim holds the key and then defers it, the key is ready at once; other endings
    /// are not changed. Returns whether the key moves to the tail of its list.
    pub(crate) fn release(&mut self, bounds: &mut Bounds, now: impl Fn() -> Nanos) -> bool {
        match self.phase {
            Phase::Processing(_) => {
                self.deferral = Deferral::Released;
                false
            }
            Phase::Delayed if self.deferral == Deferral::Deferred => {
                let now = now();
                let decision = self.move_delay(bounds, now.max(bounds.not_before), now);
                self.deferral = Deferral::None;
                decision.to_tail
            }
            _ => false,
        }
    }

    /// Returns the count of failures if the current or next run fails.
    pub(crate) fn failures_if_retried(&self) -> u32 {
        failures_if_retried(self.failures, self.early)
    }

    /// Ends the delay or the cool-down of the record.
    pub(crate) fn expire(&mut self) {
        self.deferral = Deferral::None;
        self.phase = match self.phase {
            Phase::Delayed => Phase::Ready,
            Phase::Cooling => Phase::Idle,
            other => other,
        };
    }
}

/// Returns the count of failures after another failed run. An early run does not count: the key backs off by the same
/// step again.
pub(crate) fn failures_if_retried(failures: u32, early: bool) -> u32 {
    failures.saturating_add(u32::from(!early))
}
