//! The decisions about one lease as a plain value: when to read, take, renew and release it.
//!
//! Times are instants of this machine's own clock, which also counts sleep. They are never compared with a time in the
//! lease: a candidate waits until it has *seen* the lease unchanged for the lease's duration, and a leader counts from
//! before it *sent* its last renewal. Each write names the version that was read, so of two competing writes one is
//! refused.
//!
//! # Invariants
//!
//! - The work of a term ends one margin before its deadline. The deadline is one renewal deadline after the last
//!   renewal was sent. Candidates count a longer time from a later moment, so they wait beyond the deadline, unless
//!   their clocks run much faster.
//! - A term that has ended does not begin again. Each later term has a greater number, even a term of the same
//!   candidate.
//!
//! The rules follow client-go (`tools/leaderelection`).

use std::time::Duration;

use super::timing::LeaseTiming;
use homeostat::rt::{Draws, Nanos};

/// The fields of a lease that the decisions use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseSpec {
    /// The identity of the leader. Empty if the lease has no leader.
    pub(crate) holder: String,
    /// The time after which others may take over. `None` if the lease does not name it.
    pub(crate) duration: Option<Duration>,
    /// How often the leader has changed: the fencing number.
    pub(crate) number: u64,
}

/// A lease at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundLease {
    pub(crate) version: String,
    pub(crate) spec: LeaseSpec,
}

/// The next call to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaseCall {
    /// Do nothing until this time.
    Wait(Nanos),
    /// Read the lease.
    Read,
    Write(LeaseWrite),
    /// The term has ended, or the lease has been released.
    Ended(LeaseLoss),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseWrite {
    /// The version that the lease must have. `None` to create it.
    pub(crate) version: Option<String>,
    pub(crate) spec: LeaseSpec,
    pub(crate) purpose: LeasePurpose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeasePurpose {
    Acquire,
    Renew,
    Release,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaseAnswer {
    Found(FoundLease),
    /// There is no such lease.
    Missing,
    /// The lease has been written and now has this version.
    Written(String),
    /// The lease has another version, or exists already.
    Refused,
    /// The call failed. The lease may or may not have been written.
    Failed,
}

/// Why a term ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaseLoss {
    /// It was not renewed in time.
    RanOut,
    /// Another process holds the lease.
    Taken(String),
    Deleted,
    Released,
}

/// The decisions about one lease for one candidate and its term.
#[derive(Clone, Debug)]
pub(crate) struct LeaseMachine {
    me: String,
    timing: LeaseTiming,
    seen: Option<SeenLease>,
    /// When the lease was first found missing, after it had been seen.
    missing_since: Option<Nanos>,
    /// The greatest number seen in any lease.
    highest: Option<u64>,
    phase: LeasePhase,
}

#[derive(Clone, Debug)]
struct SeenLease {
    found: FoundLease,
    /// When this version was first seen.
    since: Nanos,
}

#[derive(Clone, Debug)]
enum LeasePhase {
    /// Reads the lease at this time.
    Waiting(Nanos),
    /// The lease was free when it was read.
    Taking,
    Leading(LeaseTerm),
    Ended(LeaseLoss),
    /// Releases the lease. After a refused write, reads it first.
    Releasing {
        number: u64,
        is_to_read: bool,
        tries: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct LeaseTerm {
    number: u64,
    /// Counted from before the last renewal was sent.
    deadline: Nanos,
    /// The time of the next call.
    next: Nanos,
    /// Whether the next call reads, because the last renewal was refused.
    is_to_read: bool,
    /// Whether a renewal was refused since the last one that succeeded.
    was_refused: bool,
}

/// How many writes of a release may be refused before it gives up.
const MOST_RELEASES: u32 = 3;

impl LeaseMachine {
    pub(crate) fn new(me: String, timing: LeaseTiming) -> Self {
        Self { me, timing, seen: None, missing_since: None, highest: None, phase: LeasePhase::Waiting(Nanos::ZERO) }
    }

    /// Returns the number of the current term and the time at which its work must end.
    pub(crate) fn term(&self) -> Option<(u64, Nanos)> {
        let LeasePhase::Leading(term) = &self.phase else { return None };
        Some((term.number, self.work_ends(term.deadline)))
    }

    /// Returns the next call.
    pub(crate) fn next(&mut self, now: Nanos) -> LeaseCall {
        if let LeasePhase::Leading(term) = &self.phase
            && now >= self.work_ends(term.deadline)
        {
            self.phase = LeasePhase::Ended(LeaseLoss::RanOut);
        }
        match &self.phase {
            LeasePhase::Waiting(at) if now < *at => LeaseCall::Wait(*at),
            LeasePhase::Waiting(_) | LeasePhase::Releasing { is_to_read: true, .. } => LeaseCall::Read,
            LeasePhase::Taking => {
                let number = self.highest.map_or(0, |highest| highest.saturating_add(1));
                self.write(LeasePurpose::Acquire, number)
            }
            LeasePhase::Leading(term) if now < term.next => {
                LeaseCall::Wait(term.next.min(self.work_ends(term.deadline)))
            }
            LeasePhase::Leading(term) if term.is_to_read => LeaseCall::Read,
            LeasePhase::Leading(term) => self.write(LeasePurpose::Renew, term.number),
            LeasePhase::Ended(loss) => LeaseCall::Ended(loss.clone()),
            LeasePhase::Releasing { number, .. } => self.write(LeasePurpose::Release, *number),
        }
    }

    /// Processes the answer to the last call, which was sent at `sent`. `draw` is a random number.
    pub(crate) fn answered(&mut self, sent: Nanos, now: Nanos, answer: LeaseAnswer, draw: u64) {
        if let LeaseAnswer::Found(found) = &answer {
            self.see(found.clone(), now);
        }
        self.phase = match self.phase.clone() {
            LeasePhase::Waiting(_) => self.after_read(now, &answer, draw),
            LeasePhase::Taking => self.after_taking(sent, now, answer, draw),
            LeasePhase::Leading(term) => self.while_leading(term, sent, now, answer, draw),
            LeasePhase::Releasing { number, tries, .. } => self.while_releasing(number, tries, answer),
            ended @ LeasePhase::Ended(_) => ended,
        };
    }

    /// Moves the next renewal to this time, if that is earlier. Returns whether this candidate leads.
    pub(crate) fn renew_at(&mut self, at: Nanos) -> bool {
        let LeasePhase::Leading(term) = &mut self.phase else { return false };
        term.next = term.next.min(at);
        true
    }

    /// Begins to release the lease, unless it is certainly lost.
    pub(crate) fn release(&mut self) {
        let is_mine = self.seen.as_ref().filter(|seen| seen.found.spec.holder == self.me);
        self.phase = match (&self.phase, is_mine) {
            (LeasePhase::Leading(_) | LeasePhase::Ended(LeaseLoss::RanOut), Some(seen)) => {
                let number = seen.found.spec.number;
                LeasePhase::Releasing { number: self.highest.unwrap_or(number), is_to_read: false, tries: 0 }
            }
            _ => LeasePhase::Ended(LeaseLoss::Released),
        };
    }

    fn work_ends(&self, deadline: Nanos) -> Nanos {
        Nanos(deadline.0.saturating_sub(Nanos::ZERO.after(self.timing.margin).0))
    }

    fn write(&self, purpose: LeasePurpose, number: u64) -> LeaseCall {
        let (holder, duration) = match purpose {
            LeasePurpose::Acquire | LeasePurpose::Renew => (self.me.clone(), self.timing.duration),
            // The shortest duration that the field can have.
            LeasePurpose::Release => (String::new(), Duration::from_secs(1)),
        };
        let version = self.seen.as_ref().map(|seen| seen.found.version.clone());
        let spec = LeaseSpec { holder, duration: Some(duration), number };
        LeaseCall::Write(LeaseWrite { version, spec, purpose })
    }

    fn see(&mut self, found: FoundLease, now: Nanos) {
        self.highest = self.highest.max(Some(found.spec.number));
        self.missing_since = None;
        if self.seen.as_ref().is_none_or(|seen| seen.found.version != found.version) {
            self.seen = Some(SeenLease { found, since: now });
        }
    }

    /// Returns when this candidate may take a lease that it has seen unchanged or missing since `since`.
    fn free_at(&self, seen: &SeenLease, since: Nanos) -> Nanos {
        let spec = &seen.found.spec;
        // A candidate that finds its own name never learned that it had acquired the lease.
        if spec.holder.is_empty() || spec.holder == self.me {
            return Nanos::ZERO;
        }
        since.after(spec.duration.unwrap_or(self.timing.duration))
    }

    /// Returns the time of the next read, a little later at random.
    fn later(&self, now: Nanos, draw: u64) -> Nanos {
        now.after(self.timing.poll().mul_f64(1.0 + LeaseTiming::JITTER * Draws::unit(draw)))
    }

    fn after_read(&mut self, now: Nanos, answer: &LeaseAnswer, draw: u64) -> LeasePhase {
        let later = self.later(now, draw);
        let is_missing = *answer == LeaseAnswer::Missing;
        if is_missing {
            self.missing_since.get_or_insert(now);
        }
        let free = match (answer, &self.seen) {
            // The leader may not know yet that its lease was deleted.
            (LeaseAnswer::Missing, Some(seen)) => self.free_at(seen, self.missing_since.unwrap_or(now)),
            (LeaseAnswer::Missing, None) => now,
            (LeaseAnswer::Found(_), Some(seen)) => self.free_at(seen, seen.since),
            _ => return LeasePhase::Waiting(later),
        };
        if now < free {
            return LeasePhase::Waiting(later.min(free));
        }
        self.seen.take_if(|_| is_missing);
        LeasePhase::Taking
    }

    fn after_taking(&mut self, sent: Nanos, now: Nanos, answer: LeaseAnswer, draw: u64) -> LeasePhase {
        let LeaseCall::Write(LeaseWrite { spec, .. }) = self.next(now) else { return self.phase.clone() };
        let LeaseAnswer::Written(version) = answer else { return LeasePhase::Waiting(self.later(now, draw)) };
        let number = spec.number;
        self.see(FoundLease { version, spec }, now);
        let deadline = sent.after(self.timing.renew_deadline);
        if now >= self.work_ends(deadline) {
            // The answer took so long that the term is over. The next read finds this candidate's own name.
            return LeasePhase::Waiting(self.later(now, draw));
        }
        LeasePhase::Leading(LeaseTerm {
            number,
            deadline,
            next: self.renewal(sent, draw),
            is_to_read: false,
            was_refused: false,
        })
    }

    /// Returns the time of the next renewal, a little earlier at random.
    fn renewal(&self, sent: Nanos, draw: u64) -> Nanos {
        sent.after(self.timing.retry.mul_f64(1.0 - LeaseTiming::JITTER * Draws::unit(draw)))
    }

    fn while_leading(
        &mut self,
        term: LeaseTerm,
        sent: Nanos,
        now: Nanos,
        answer: LeaseAnswer,
        draw: u64,
    ) -> LeasePhase {
        if now >= self.work_ends(term.deadline) {
            // The answer came too late: the work has been cancelled.
            return LeasePhase::Ended(LeaseLoss::RanOut);
        }
        let next = self.renewal(sent, draw);
        LeasePhase::Leading(match answer {
            LeaseAnswer::Written(version) => {
                let spec =
                    LeaseSpec { holder: self.me.clone(), duration: Some(self.timing.duration), number: term.number };
                self.see(FoundLease { version, spec }, now);
                let deadline = sent.after(self.timing.renew_deadline);
                LeaseTerm { number: term.number, deadline, next, is_to_read: false, was_refused: false }
            }
            // An answer may have been lost, or a label changed: read and renew again, once without a pause.
            LeaseAnswer::Refused => {
                let next = if term.was_refused { next.max(now) } else { now };
                LeaseTerm { next, is_to_read: true, was_refused: true, ..term }
            }
            LeaseAnswer::Found(FoundLease { spec, .. }) => {
                if spec.holder == self.me && spec.number <= term.number {
                    // The renewal writes the number again, if somebody has lowered it.
                    LeaseTerm { next: now, is_to_read: false, ..term }
                } else if spec.number < term.number {
                    // The answer is older than this term.
                    LeaseTerm { next, ..term }
                } else {
                    return LeasePhase::Ended(LeaseLoss::Taken(spec.holder));
                }
            }
            LeaseAnswer::Missing => return LeasePhase::Ended(LeaseLoss::Deleted),
            LeaseAnswer::Failed => LeaseTerm { next: next.max(now), ..term },
        })
    }

    fn while_releasing(&self, number: u64, tries: u32, answer: LeaseAnswer) -> LeasePhase {
        let is_mine = |spec: &LeaseSpec| spec.holder == self.me;
        match answer {
            LeaseAnswer::Refused if tries + 1 < MOST_RELEASES => {
                LeasePhase::Releasing { number, is_to_read: true, tries: tries + 1 }
            }
            LeaseAnswer::Found(found) if is_mine(&found.spec) => {
                LeasePhase::Releasing { number, is_to_read: false, tries }
            }
            _ => LeasePhase::Ended(LeaseLoss::Released),
        }
    }
}
