//! An ordered consumer as a plain value: it decides when to create consumers, and finds every gap.
//!
//! A consumer of the server sends its messages with consecutive numbers. On a gap, after missed heartbeats and after a reconnect,
//! the old consumer is deleted and a new one continues after the last position. Two losses would be silent, and are looked for at
//! each creation (nats-server#5785 and the life of delete markers):
//!
//! - The stream was deleted or restored: it has another creation time, or ends before the position. A start beyond the end of a
//!   stream is not an error, so such a consumer would hear nothing.
//! - Messages after the position were removed before they were delivered: the stream begins later, or the absence was longer than
//!   delete markers live.
//!
//! # Invariants
//!
//! - Positions only rise. A message is delivered only if all numbers before it were received.
//! - No message is delivered twice: a consumer delivers only messages after its start. A server before version 2.11 lets the consumer of a
//!   copy that lags behind begin earlier. One before version 2.9.19 can send a message twice, with two numbers.
//! - At most one consumer is wanted at a time. Each other one was deleted, or its deletion was sent.

use std::time::Duration;

use super::super::error::NatsError;
use crate::base::backoff::Exponential;
use crate::base::time::Nanos;

/// The first message of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartAt {
    /// The last message of each key.
    LastOfEach,
    /// All messages.
    All,
    /// The messages after this sequence.
    After(u64),
}

/// The facts about a stream that show whether a position is still valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamFacts {
    /// The time of creation, which identifies the stream.
    pub(super) created: String,
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
}

/// The next action of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OrderedStep {
    /// Create a consumer with this number.
    Create { serial: u64, start: StartAt },
    /// Ask for the facts of the stream.
    Inspect { serial: u64 },
    /// Wait for messages and answers, until this time.
    Wait(Nanos),
    /// Changes were possibly missed. Nothing follows.
    Gone(String),
}

/// The treatment of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receipt {
    Deliver,
    /// Keep it until the consumer is confirmed.
    Hold,
    Ignore,
}

/// The times of an ordered consumer.
#[derive(Clone, Debug)]
pub(super) struct OrderedTimes {
    pub(super) heartbeat: Duration,
    /// The time for the answer of a creation.
    pub(super) answer: Duration,
    /// The life of delete markers. After a longer absence, deletions may have been missed.
    pub(super) marker_life: Duration,
    pub(super) backoff: Exponential,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum OrderedPhase {
    /// A consumer is to be created at this time.
    Wanted(Nanos),
    /// The creation was sent. Its answer must come until this time.
    Creating(Nanos),
    /// The consumer exists. The facts of the stream are to be asked for.
    Created {
        pending: u64,
        position: u64,
    },
    /// The facts must come until this time.
    Inspecting {
        until: Nanos,
        pending: u64,
        position: u64,
    },
    /// The consumer is confirmed. The next message has this number.
    Live {
        next: u64,
    },
    Gone(String),
}

/// An ordered consumer.
#[derive(Debug)]
pub(super) struct OrderedState {
    times: OrderedTimes,
    start: StartAt,
    phase: OrderedPhase,
    serial: u64,
    /// The sequence of the stream up to which everything was delivered. `None` before the first confirmation.
    position: Option<u64>,
    /// The newest consumer delivers messages after this sequence. Zero if it begins with the present values or with all messages.
    floor: u64,
    /// The sequence of the last message.
    last: u64,
    /// The creation time of the stream.
    identity: String,
    /// The last time at which nothing was missing up to the position: a message that proves it arrived then, perhaps
    /// long before it was read.
    whole: Option<Nanos>,
    /// The consumers in a row that brought nothing.
    failures: u32,
    /// The consumer before was there until this one was wanted.
    was_stuck: bool,
}

impl OrderedState {
    /// Creates the state. The first consumer is wanted at once.
    ///
    /// `identity` is the creation time of the stream, read before the first consumer is created. It is compared after each creation,
    /// so a consumer is known to be of this stream.
    pub(super) fn new(start: StartAt, identity: &str, times: OrderedTimes) -> Self {
        let position = if let StartAt::After(position) = start { Some(position) } else { None };
        Self {
            times,
            start,
            phase: OrderedPhase::Wanted(Nanos::ZERO),
            serial: 0,
            position,
            floor: 0,
            last: 0,
            identity: identity.to_owned(),
            whole: None,
            failures: 0,
            was_stuck: false,
        }
    }

    /// Returns the number of the newest consumer.
    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns the sequence after which the newest consumer delivers messages. Zero if it begins with values or with all messages.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns the position, and the creation time of the stream. `None` before the first confirmation.
    pub(super) fn position(&self) -> Option<(u64, &str)> {
        Some((self.position?, self.identity.as_str()))
    }

    /// Returns whether the server has confirmed a consumer.
    pub(super) fn was_confirmed(&self) -> bool {
        self.whole.is_some()
    }

    /// Returns whether a consumer is being created. Its messages must be held.
    pub(super) fn is_confirming(&self) -> bool {
        use OrderedPhase::{Created, Creating, Inspecting};
        matches!(self.phase, Creating(_) | Created { .. } | Inspecting { .. })
    }

    /// Returns the next action. `arrived` is the time at which the last message has arrived, read or not.
    pub(super) fn step(&mut self, now: Nanos, arrived: Nanos, draw: u64) -> OrderedStep {
        match self.phase {
            OrderedPhase::Creating(until) | OrderedPhase::Inspecting { until, .. } if until <= now => {
                self.failed(now, draw);
            }
            OrderedPhase::Live { .. } if self.silence(arrived) <= now => self.failed(now, draw),
            _ => {}
        }
        match &self.phase {
            OrderedPhase::Wanted(at) if *at <= now => {
                self.serial += 1;
                self.phase = OrderedPhase::Creating(now.after(self.times.answer));
                let start = self.next_start();
                self.floor = if let StartAt::After(position) = start { position } else { 0 };
                OrderedStep::Create { serial: self.serial, start }
            }
            OrderedPhase::Wanted(at) => OrderedStep::Wait(*at),
            OrderedPhase::Created { pending, position } => {
                let (pending, position) = (*pending, *position);
                self.phase = OrderedPhase::Inspecting { until: now.after(self.times.answer), pending, position };
                OrderedStep::Inspect { serial: self.serial }
            }
            OrderedPhase::Creating(until) | OrderedPhase::Inspecting { until, .. } => OrderedStep::Wait(*until),
            OrderedPhase::Live { .. } => OrderedStep::Wait(self.silence(arrived)),
            OrderedPhase::Gone(reason) => OrderedStep::Gone(reason.clone()),
        }
    }

    /// Returns the start of the next consumer. A watch that has read nothing begins again.
    fn next_start(&self) -> StartAt {
        self.position.filter(|position| *position > 0).map_or(self.start, StartAt::After)
    }

    /// Returns the time at which two heartbeats are missing, with some slack.
    fn silence(&self, arrived: Nanos) -> Nanos {
        let since = self.whole.map_or(arrived, |whole| whole.max(arrived));
        since.after(self.times.heartbeat.saturating_mul(2)).after(self.times.heartbeat / 2)
    }

    /// Takes the answer of a creation: everything before `position` needs no delivery, and `pending` messages follow.
    pub(super) fn created(&mut self, serial: u64, position: u64, pending: u64) {
        if serial == self.serial && matches!(self.phase, OrderedPhase::Creating(_)) {
            self.phase = OrderedPhase::Created { pending, position };
        }
    }

    /// Takes the facts of the stream. Returns the messages that follow, if the consumer is confirmed.
    pub(super) fn inspected(&mut self, serial: u64, facts: &StreamFacts, now: Nanos) -> Option<u64> {
        let OrderedPhase::Inspecting { pending, position, .. } = self.phase else { return None };
        if serial != self.serial {
            return None;
        }
        if let Some(reason) = self.missed(facts, now) {
            self.phase = OrderedPhase::Gone(reason);
            return None;
        }
        self.position = self.position.max(Some(position));
        self.whole = Some(now);
        self.phase = OrderedPhase::Live { next: 1 };
        Some(pending)
    }

    /// Returns the reason why changes were possibly missed.
    fn missed(&self, facts: &StreamFacts, now: Nanos) -> Option<String> {
        let StreamFacts { created, first_seq, last_seq } = facts;
        if self.identity != *created {
            return Some(format!("its stream of {} was replaced by one of {created}", self.identity));
        }
        let StartAt::After(position) = self.next_start() else { return None };
        if *last_seq < position {
            return Some(format!("its stream ends at revision {last_seq}, before revision {position}, which was read"));
        }
        if *first_seq > position.saturating_add(1) && !self.was_stuck {
            return Some(format!("its stream begins at revision {first_seq}, and only revision {position} was read"));
        }
        let away = now.since(self.whole?);
        (away > self.times.marker_life).then(|| {
            let life = self.times.marker_life;
            format!("it is complete only up to {away:?} ago, longer than delete markers are sure to live ({life:?})")
        })
    }

    /// Takes a message of consumer `serial`, which has arrived at the time `now`: its number, and its sequence in the
    /// stream.
    pub(super) fn message(&mut self, serial: u64, number: u64, sequence: u64, now: Nanos, draw: u64) -> Receipt {
        if serial != self.serial {
            return Receipt::Ignore;
        }
        match &mut self.phase {
            OrderedPhase::Creating(_) | OrderedPhase::Created { .. } | OrderedPhase::Inspecting { .. } => Receipt::Hold,
            OrderedPhase::Live { next } if number == *next => {
                *next += 1;
                self.position = self.position.max(Some(sequence));
                self.progress(now);
                // The position may be ahead: a server can report that it is past a message, and send it later.
                let is_new = sequence > self.floor.max(self.last);
                self.last = self.last.max(sequence);
                if is_new { Receipt::Deliver } else { Receipt::Ignore }
            }
            OrderedPhase::Live { next } => {
                // A repetition is harmless. A gap is not.
                if number >= *next {
                    self.failed(now, draw);
                }
                Receipt::Ignore
            }
            OrderedPhase::Wanted(_) | OrderedPhase::Gone(_) => Receipt::Ignore,
        }
    }

    /// Takes a heartbeat of consumer `serial`: the number and the sequence of its last message. Returns whether all messages before it
    /// were received.
    pub(super) fn heartbeat(&mut self, serial: u64, number: u64, sequence: u64, now: Nanos, draw: u64) -> bool {
        let OrderedPhase::Live { next } = self.phase else { return false };
        if serial != self.serial {
            return false;
        }
        let is_whole = number.checked_add(1) == Some(next);
        if number >= next {
            self.failed(now, draw);
        } else if is_whole {
            // The consumer has skipped messages that the filter or a later write has hidden.
            self.position = self.position.max(Some(sequence));
            self.progress(now);
        }
        is_whole
    }

    fn progress(&mut self, now: Nanos) {
        self.whole = self.whole.max(Some(now));
        self.failures = 0;
    }

    /// Notes that the connection is a new one. Creates a consumer at once, because messages may be missing. Earlier failures do not
    /// delay it: the connection has its own backoff.
    pub(super) fn reconnected(&mut self, now: Nanos) {
        if !matches!(self.phase, OrderedPhase::Gone(_)) {
            (self.failures, self.was_stuck) = (0, false);
            self.phase = OrderedPhase::Wanted(now);
        }
    }

    /// Notes that the server has deleted consumer `serial`, or has refused to create it.
    pub(super) fn refused(&mut self, serial: u64, now: Nanos, draw: u64) {
        if serial == self.serial && !matches!(self.phase, OrderedPhase::Wanted(_)) {
            self.failed(now, draw);
        }
    }

    /// Notes that consumer `serial` waits although it has more to send. Another one continues after the position.
    ///
    /// The stream may begin later by then: entries that were removed have stopped the consumer. It has kept each marker that it had not
    /// sent, so no deletion was missed.
    pub(super) fn stuck(&mut self, serial: u64, now: Nanos, draw: u64) {
        if serial == self.serial && matches!(self.phase, OrderedPhase::Live { .. }) {
            self.failed(now, draw);
            self.was_stuck = true;
        }
    }

    /// Notes that the bucket does not exist.
    pub(super) fn deleted(&mut self) {
        self.phase = OrderedPhase::Gone("its stream was deleted".to_owned());
    }

    /// Plans a new consumer after the backoff.
    fn failed(&mut self, now: Nanos, draw: u64) {
        if matches!(self.phase, OrderedPhase::Gone(_)) {
            return;
        }
        self.was_stuck = false;
        self.failures = self.failures.saturating_add(1);
        self.phase = OrderedPhase::Wanted(now.after(self.times.backoff.jittered(self.failures, draw)));
    }

    /// Returns the error of a watch that is gone.
    pub(super) fn gone(bucket: &str, reason: &str) -> NatsError {
        NatsError::new(super::super::error::NatsErrorKind::Gone {
            what: format!("the watch of bucket {bucket:?}"),
            reason: reason.to_owned(),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
