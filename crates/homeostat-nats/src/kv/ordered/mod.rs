//! An ordered consumer as a plain value. It decides when to create consumers, and finds every gap.
//!
//! A consumer numbers its messages consecutively. On a gap, after missed heartbeats and after a reconnect, the old
//! consumer is deleted, and a new one continues after the last position. The server does not report two kinds of loss,
//! so each new consumer checks for them (nats-server#5785):
//!
//! - The stream was deleted or restored: it has a different creation time, or ends before the position. The server
//!   accepts a start beyond the end of a stream, so such a consumer would never receive anything.
//! - Messages after the position were removed before they were delivered: the stream begins later, or the consumer was
//!   absent for longer than delete markers live.
//!
//! # Invariants
//!
//! - Positions only rise. A message is delivered only if all earlier numbers were received.
//! - No message is delivered twice, because messages up to the consumer's start are ignored. With a server before
//!   version 2.11, the consumer of a copy that lags behind may start earlier. A server before version 2.9.19 can send
//!   a message twice, with two numbers.
//! - At most one consumer is wanted at a time. All others were deleted, or their deletion was sent.

use std::time::Duration;

use super::super::error::NatsError;
use homeostat::base::Exponential;
use homeostat::rt::Nanos;

/// Where a consumer starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartAt {
    /// With the last message of each key.
    LastOfEach,
    /// With the first message of the stream.
    All,
    /// With the message after this sequence.
    After(u64),
}

/// The facts about a stream that show whether a position is still valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamFacts {
    /// The creation time, which identifies the stream.
    pub(super) created: String,
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
}

/// The caller's next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OrderedStep {
    /// Create a consumer with this number.
    Create { serial: u64, start: StartAt },
    /// Ask for the stream's facts.
    Inspect { serial: u64 },
    /// Wait for messages and answers until this time.
    Wait(Nanos),
    /// Changes may have been missed, for this reason. Nothing follows.
    Gone(String),
}

/// How the caller must treat a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageAction {
    Deliver,
    /// Keep the message until the consumer is confirmed.
    Hold,
    Ignore,
}

/// The times of an ordered consumer.
#[derive(Clone, Debug)]
pub(super) struct OrderedTimes {
    pub(super) heartbeat: Duration,
    /// The timeout of a creation or an inspection.
    pub(super) answer: Duration,
    /// How long delete markers live. After a longer absence, deletions may have been missed.
    pub(super) marker_life: Duration,
    pub(super) backoff: Exponential,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum OrderedPhase {
    /// Create a consumer at this time.
    Wanted(Nanos),
    /// The creation was sent. Its answer is due at this time.
    Creating(Nanos),
    /// The consumer exists. Next, ask for the stream's facts.
    Created {
        pending: u64,
        position: u64,
    },
    /// The facts are due at the time `until`.
    Inspecting {
        until: Nanos,
        pending: u64,
        position: u64,
    },
    /// The consumer is confirmed. `next` is the number of its next message.
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
    /// The stream sequence up to which everything was delivered. `None` before the first confirmation.
    position: Option<u64>,
    /// The sequence after which the newest consumer delivers. Zero if it starts with the current values or with all
    /// messages.
    starts_after: u64,
    /// The sequence of the last message.
    last: u64,
    /// The stream's creation time.
    identity: String,
    /// The last time at which nothing was missing up to the position. It is the arrival time of the message that
    /// proves this, which may have been read much later.
    complete_at: Option<Nanos>,
    /// The number of consecutive consumers that delivered nothing.
    failures: u32,
    /// Whether the previous consumer still existed, but was stuck, when it was replaced.
    was_stuck: bool,
}

impl OrderedState {
    /// Creates the state, which wants its first consumer at once.
    ///
    /// `identity` is the stream's creation time, read before the first consumer is created. Each new consumer's stream
    /// is compared with it.
    pub(super) fn new(start: StartAt, identity: &str, times: OrderedTimes) -> Self {
        let position = if let StartAt::After(position) = start { Some(position) } else { None };
        Self {
            times,
            start,
            phase: OrderedPhase::Wanted(Nanos::ZERO),
            serial: 0,
            position,
            starts_after: 0,
            last: 0,
            identity: identity.to_owned(),
            complete_at: None,
            failures: 0,
            was_stuck: false,
        }
    }

    /// Returns the number of the newest consumer.
    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns the sequence after which the newest consumer delivers. Zero if it starts with the current values or
    /// with all messages.
    pub(super) fn starts_after(&self) -> u64 {
        self.starts_after
    }

    /// Returns the position and the stream's creation time. `None` before the first confirmation.
    pub(super) fn position(&self) -> Option<(u64, &str)> {
        Some((self.position?, self.identity.as_str()))
    }

    /// Returns whether the server has confirmed a consumer.
    pub(super) fn was_confirmed(&self) -> bool {
        self.complete_at.is_some()
    }

    /// Returns whether a consumer is being created. Its messages must be held until it is confirmed.
    pub(super) fn is_confirming(&self) -> bool {
        use OrderedPhase::{Created, Creating, Inspecting};
        matches!(self.phase, Creating(_) | Created { .. } | Inspecting { .. })
    }

    /// Returns the next action. `arrived` is the arrival time of the last message, read or not.
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
                self.starts_after = if let StartAt::After(position) = start { position } else { 0 };
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

    /// Returns where the next consumer starts. A watch that has read nothing starts from the beginning.
    fn next_start(&self) -> StartAt {
        self.position.filter(|position| *position > 0).map_or(self.start, StartAt::After)
    }

    /// Returns the time at which two heartbeats are missing, with some slack.
    fn silence(&self, arrived: Nanos) -> Nanos {
        let since = self.complete_at.map_or(arrived, |complete_at| complete_at.max(arrived));
        since.after(self.times.heartbeat.saturating_mul(2)).after(self.times.heartbeat / 2)
    }

    /// Handles the answer to a creation: nothing up to `position` needs delivery, and `pending` messages follow.
    pub(super) fn created(&mut self, serial: u64, position: u64, pending: u64) {
        if serial == self.serial && matches!(self.phase, OrderedPhase::Creating(_)) {
            self.phase = OrderedPhase::Created { pending, position };
        }
    }

    /// Handles the stream's facts. If they confirm the consumer, returns how many messages follow.
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
        self.complete_at = Some(now);
        self.phase = OrderedPhase::Live { next: 1 };
        Some(pending)
    }

    /// Returns why changes may have been missed, or `None`.
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
            return Some(format!("its stream begins at revision {first_seq}, but only revision {position} was read"));
        }
        let away = now.since(self.complete_at?);
        (away > self.times.marker_life).then(|| {
            let life = self.times.marker_life;
            format!("its last complete state is {away:?} old, but delete markers are only sure to stay for {life:?}")
        })
    }

    /// Handles message `number` of consumer `serial`. `sequence` is its sequence in the stream, and `now` its arrival
    /// time.
    pub(super) fn message(&mut self, serial: u64, number: u64, sequence: u64, now: Nanos, draw: u64) -> MessageAction {
        if serial != self.serial {
            return MessageAction::Ignore;
        }
        match &mut self.phase {
            OrderedPhase::Creating(_) | OrderedPhase::Created { .. } | OrderedPhase::Inspecting { .. } => {
                MessageAction::Hold
            }
            OrderedPhase::Live { next } if number == *next => {
                *next += 1;
                self.position = self.position.max(Some(sequence));
                self.progress(now);
                // The position may be ahead: a server can report that it has passed a message, and send the message
                // later.
                let is_new = sequence > self.starts_after.max(self.last);
                self.last = self.last.max(sequence);
                if is_new { MessageAction::Deliver } else { MessageAction::Ignore }
            }
            OrderedPhase::Live { next } => {
                // A repetition is harmless. A gap is not.
                if number >= *next {
                    self.failed(now, draw);
                }
                MessageAction::Ignore
            }
            OrderedPhase::Wanted(_) | OrderedPhase::Gone(_) => MessageAction::Ignore,
        }
    }

    /// Handles a heartbeat of consumer `serial`, which names the number and the sequence of its last message. Returns
    /// whether all messages up to that number were received.
    pub(super) fn heartbeat(&mut self, serial: u64, number: u64, sequence: u64, now: Nanos, draw: u64) -> bool {
        let OrderedPhase::Live { next } = self.phase else { return false };
        if serial != self.serial {
            return false;
        }
        let is_whole = number.checked_add(1) == Some(next);
        if number >= next {
            self.failed(now, draw);
        } else if is_whole {
            // The consumer has skipped messages that the filter excludes or a later write replaced.
            self.position = self.position.max(Some(sequence));
            self.progress(now);
        }
        is_whole
    }

    fn progress(&mut self, now: Nanos) {
        self.complete_at = self.complete_at.max(Some(now));
        self.failures = 0;
    }

    /// Handles a reconnect. Wants a new consumer at once, because messages may be missing. Earlier failures do not
    /// delay it: the connection has its own backoff.
    pub(super) fn reconnected(&mut self, now: Nanos) {
        if !matches!(self.phase, OrderedPhase::Gone(_)) {
            (self.failures, self.was_stuck) = (0, false);
            self.phase = OrderedPhase::Wanted(now);
        }
    }

    /// Handles that the server has deleted consumer `serial`, or has refused to create it.
    pub(super) fn refused(&mut self, serial: u64, now: Nanos, draw: u64) {
        if serial == self.serial && !matches!(self.phase, OrderedPhase::Wanted(_)) {
            self.failed(now, draw);
        }
    }

    /// Handles that consumer `serial` waits although it has more to send. A new one continues after the position.
    ///
    /// The stream may begin later by then, because removed entries have stopped the consumer. Meanwhile the consumer
    /// has preserved each marker that it had not sent, so no deletion was missed.
    pub(super) fn stuck(&mut self, serial: u64, now: Nanos, draw: u64) {
        if serial == self.serial && matches!(self.phase, OrderedPhase::Live { .. }) {
            self.failed(now, draw);
            self.was_stuck = true;
        }
    }

    /// Handles that the bucket does not exist.
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
        NatsError::gone(format_args!("the watch of bucket {bucket:?}"), reason)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
