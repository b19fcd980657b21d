//! How a claim's end and a shutdown change a record: the second and the third table of the contract.

use std::time::Duration;

use super::super::request::{DroppedRun, Reasons, Shutdown};
use super::{Bounds, Ending, Phase, State, Wished};
use crate::base::time::Nanos;

impl Wished {
    /// Whether it is a run at a time of its own.
    fn has_time(self) -> bool {
        matches!(self, Self::At | Self::Debounced)
    }
}

impl Bounds {
    /// A claim ends with a delay until `latest`, or until the time of the wish if that comes sooner: a debounced change may be
    /// put off further, but not beyond either.
    fn keep_cap(&mut self, wish: Wished, latest: Nanos) {
        self.cap = self.cap.filter(|_| wish == Wished::Debounced).map(|cap| cap.min(latest));
    }
}

impl State {
    /// The claim ends. Once the queue is shut down (`mode`), no delay begins any more: a wish that stands runs at once,
    /// and a wake that only this ending would set is dropped and returned.
    #[inline]
    pub(crate) fn end(
        &mut self,
        bounds: &mut Bounds,
        ending: Ending,
        floor: Duration,
        mode: Option<Shutdown>,
        now: impl Fn() -> Nanos,
    ) -> Option<DroppedRun> {
        let Phase::Processing(wish) = self.phase else {
            unreachable!("only a claim ends, and what it claims is being processed");
        };
        if !matches!(ending, Ending::PutBack(_) | Ending::PutAside(_)) {
            self.failures = if let Ending::Retry(_) = ending { self.failures_if_retried() } else { 0 };
            self.early = false;
        }
        // Also after a shutdown: a wish that stands is served for these reasons too.
        self.reasons |= match ending {
            Ending::Done | Ending::CoolDown(_) => Reasons::NONE,
            Ending::RequeueAfter(_) => Reasons::REQUEUE,
            Ending::Retry(_) => Reasons::RETRY,
            Ending::PutBack(reasons) | Ending::PutAside(reasons) => reasons,
        };
        if mode.is_some() {
            return self.end_after_shutdown(bounds, wish, ending);
        }
        match ending {
            Ending::Done | Ending::CoolDown(Duration::ZERO) => match wish {
                Wished::None => self.phase = Phase::Idle,
                Wished::Soft | Wished::Now => self.phase = Phase::Ready,
                Wished::At | Wished::Debounced => {
                    self.schedule(self.due, now());
                }
            },
            Ending::CoolDown(delay) => {
                let end = now().after(delay);
                bounds.not_before = end;
                self.phase = if wish == Wished::None { Phase::Cooling } else { Phase::Delayed };
                self.due = if wish.has_time() { end.max(self.due) } else { end };
            }
            Ending::RequeueAfter(delay) => {
                if wish == Wished::Now {
                    self.phase = Phase::Ready;
                } else {
                    let now = now();
                    let requeued = now.after(delay);
                    let at = if wish.has_time() { requeued.min(self.due) } else { requeued };
                    bounds.keep_cap(wish, requeued);
                    self.schedule(at, now);
                }
            }
            Ending::Retry(delay) => {
                let now = now();
                let backoff = now.after(delay);
                let wanted = match wish {
                    Wished::Now => now.after(floor),
                    Wished::Debounced => now.after(floor).max(self.due),
                    Wished::None | Wished::Soft | Wished::At => backoff,
                };
                let at = wanted.min(backoff);
                self.early = at < backoff;
                if self.early {
                    bounds.backoff_end = backoff;
                }
                bounds.keep_cap(wish, backoff);
                self.schedule(at, now);
            }
            Ending::PutBack(_) => {
                bounds.cap = None;
                self.phase = Phase::Ready;
            }
            Ending::PutAside(_) => match wish {
                Wished::Now => self.phase = Phase::Ready,
                Wished::At | Wished::Debounced => {
                    let now = now();
                    self.end_backoff(bounds, now);
                    self.schedule(self.due, now);
                }
                Wished::None | Wished::Soft => {
                    bounds.cap = None;
                    self.aside = true;
                    self.schedule(Nanos::NEVER, now());
                }
            },
        }
        None
    }

    /// After an end: the next run of the key comes no sooner than `interval` from now, whoever wants it.
    pub(crate) fn keep_apart(&mut self, bounds: &mut Bounds, interval: Duration, now: Nanos) {
        let earliest = now.after(interval);
        bounds.not_before = bounds.not_before.max(earliest);
        (self.phase, self.due) = match self.phase {
            Phase::Idle => (Phase::Cooling, earliest),
            Phase::Ready => (Phase::Delayed, earliest),
            phase @ (Phase::Delayed | Phase::Cooling) => (phase, self.due.max(earliest)),
            phase @ Phase::Processing(_) => (phase, self.due),
        };
    }

    fn end_after_shutdown(&mut self, bounds: &mut Bounds, wish: Wished, ending: Ending) -> Option<DroppedRun> {
        *bounds = Bounds::default();
        if wish != Wished::None {
            self.phase = Phase::Ready;
            return None;
        }
        self.phase = Phase::Idle;
        match ending {
            Ending::Done | Ending::CoolDown(_) => None,
            Ending::RequeueAfter(_) | Ending::PutBack(_) | Ending::PutAside(_) => Some(DroppedRun::Requeue),
            Ending::Retry(_) => Some(DroppedRun::Retry),
        }
    }

    /// The queue is shut down, or shut down more strictly. Returns the wake that this drops.
    pub(crate) fn shut_down(&mut self, mode: Shutdown) -> Option<DroppedRun> {
        let (phase, dropped) = match (self.phase, mode) {
            (Phase::Ready, Shutdown::Discard) => (Phase::Idle, Some(DroppedRun::Ready)),
            (Phase::Delayed, Shutdown::RunDelayedNow) => (Phase::Ready, None),
            (Phase::Delayed, Shutdown::ServeReady | Shutdown::Discard) => (Phase::Idle, Some(DroppedRun::Delayed)),
            (Phase::Processing(Wished::At | Wished::Debounced), Shutdown::ServeReady)
            | (Phase::Processing(Wished::Soft | Wished::At | Wished::Debounced | Wished::Now), Shutdown::Discard) => {
                (Phase::Processing(Wished::None), Some(DroppedRun::PendingRerun))
            }
            (Phase::Cooling, _) => (Phase::Idle, None),
            (phase, _) => (phase, None),
        };
        self.phase = phase;
        dropped
    }
}
