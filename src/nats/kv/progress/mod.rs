//! Finds out when a watch has delivered all that its bucket has, as a plain value.
//!
//! Each message tells how many are to come, but that count is only a hint. Since version 2.9.15, servers subtract a removed message at
//! once, and add the message that has replaced it later: the count can be zero too early. It can also stay above zero, if the last
//! messages were removed before they were sent. And the copy of a consumer may lag behind.
//!
//! Two things are certain:
//!
//! - The count in the confirmation of a consumer, if the bucket has one copy and nothing was written or removed since the start. Then so
//!   many messages of the start follow.
//! - The last revision of the watched keys, asked from the server that orders all writes, if the watch had read up to there before.

use std::time::Duration;

use crate::base::time::Nanos;

/// The time after which a refused question is repeated.
const PAUSE: Duration = Duration::from_millis(250);
/// The answers above the position after which the start ends at the last one. A key is missing only if it was written again between
/// each two of them, and each time before the consumer came to it.
const MOST_ANSWERS: u32 = 10;

/// The next action of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgressStep {
    /// Ask for the last revision of the watched keys.
    Ask { number: u64 },
    /// The start was delivered. Comes once.
    Synced,
    /// Wait for messages and answers, until this time.
    Wait(Nanos),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastQuestion {
    None,
    /// It was asked when the watch had read up to `position`. The answer must come until this time.
    Sent {
        position: u64,
        until: Nanos,
    },
    /// The watch had not read up to `last`.
    Answered {
        last: u64,
    },
}

/// The times of a [`WatchProgress`].
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgressTimes {
    /// The time for an answer.
    pub(super) answer: Duration,
    /// The time between two questions after the start. `None` asks only for the start.
    pub(super) interval: Option<Duration>,
}

/// The entries of a bucket at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BucketExtent {
    pub(super) messages: u64,
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
}

/// Knows whether more messages of the bucket are to come.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct WatchProgress {
    pub(super) times: ProgressTimes,
    /// The bucket before the first consumer was created.
    at_start: BucketExtent,
    has_one_copy: bool,
    /// The messages of the start that are to come. `None` before the first consumer is confirmed.
    left: Option<u64>,
    /// Whether `left` is certain.
    is_exact: bool,
    /// Whether all that exists may have been delivered.
    may_be_complete: bool,
    is_synced: bool,
    /// The number of the last question.
    number: u64,
    question: LastQuestion,
    /// The answers about the start that were above the position. Questions without an answer tell nothing.
    answers: u32,
    /// The time before which nothing is asked after the start.
    pause: Nanos,
    caught_up: u64,
}

impl WatchProgress {
    /// Creates the progress of a watch of a bucket with these entries.
    pub(super) fn new(at_start: BucketExtent, has_one_copy: bool, times: ProgressTimes) -> Self {
        Self {
            times,
            at_start,
            has_one_copy,
            left: None,
            is_exact: false,
            may_be_complete: false,
            is_synced: false,
            number: 0,
            question: LastQuestion::None,
            answers: 0,
            pause: Nanos::ZERO,
            caught_up: 0,
        }
    }

    /// Ends the start: the watch begins with the next change.
    pub(super) fn without_start(mut self) -> Self {
        (self.left, self.is_exact) = (Some(0), true);
        self
    }

    /// Returns the last revision before the start.
    pub(super) fn end_at_start(&self) -> u64 {
        self.at_start.last_seq
    }

    pub(super) fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Returns a revision at which the watch had delivered all that the bucket had.
    ///
    /// Each change of the watched keys up to there was delivered, unless the bucket has removed it because of later ones: of such a key
    /// a later change was delivered.
    pub(super) fn caught_up(&self) -> u64 {
        self.caught_up
    }

    /// Takes the confirmation of a consumer: the messages that follow, and the bucket after the creation.
    ///
    /// An entry that expires while the server creates the consumer can be subtracted from the count before it is added.
    pub(super) fn confirmed(&mut self, pending: u64, extent: BucketExtent) {
        if !self.is_synced {
            self.left = Some(pending);
            self.is_exact = self.has_one_copy && extent == self.at_start;
            self.may_be_complete = pending == 0;
        }
        self.question = LastQuestion::None;
    }

    /// Takes a message that is delivered: its revision, and the number of those to come.
    pub(super) fn delivered(&mut self, sequence: u64, pending: u64) {
        self.is_exact &= sequence <= self.at_start.last_seq;
        self.may_be_complete |= pending == 0;
        if let Some(left) = self.left.as_mut().filter(|_| !self.is_synced) {
            *left = left.saturating_sub(1);
            self.may_be_complete |= *left == 0;
        }
    }

    /// Takes a heartbeat of a consumer that has sent all up to this revision, and waits for more.
    pub(super) fn idle(&mut self, sequence: u64) {
        self.caught_up = self.caught_up.max(sequence);
        self.may_be_complete |= !self.is_synced && sequence >= self.at_start.last_seq;
    }

    /// Returns whether a consumer that has sent all up to this revision, and waits for more, has not sent the start.
    ///
    /// Since version 2.10, servers wait for the next write or heartbeat at each entry of the start that was removed before it was sent.
    /// Or the copy of the consumer lags behind.
    pub(super) fn is_stuck(&self, sequence: u64) -> bool {
        !self.is_synced && sequence < self.at_start.last_seq
    }

    /// Takes the last revision of the watched keys.
    pub(super) fn answered(&mut self, number: u64, last: u64) {
        let LastQuestion::Sent { position, .. } = self.question else { return };
        if number != self.number {
            return;
        }
        self.question = LastQuestion::Answered { last };
        if position >= last {
            self.caught_up = self.caught_up.max(position);
            (self.left, self.is_exact) = (Some(0), true);
        } else {
            self.answers = self.answers.saturating_add(1);
        }
    }

    /// Notes that a question was not heard.
    pub(super) fn unheard(&mut self, number: u64, now: Nanos) {
        if let LastQuestion::Sent { until, .. } = &mut self.question
            && number == self.number
        {
            *until = now.after(PAUSE).min(*until);
        }
    }

    /// Returns the next action. The watch has read up to `position`.
    pub(super) fn step(&mut self, position: u64, now: Nanos) -> ProgressStep {
        if self.is_synced {
            let is_due = self.may_be_complete && self.pause <= now;
            let Some(interval) = self.times.interval.filter(|_| is_due) else {
                return ProgressStep::Wait(Nanos::NEVER);
            };
            self.may_be_complete = false;
            self.pause = now.after(interval);
            return self.ask(position, now);
        }
        let Some(left) = self.left else { return ProgressStep::Wait(Nanos::NEVER) };
        if self.is_exact && left == 0 {
            return self.synced();
        }
        match self.question {
            LastQuestion::Sent { until, .. } if now < until => ProgressStep::Wait(until),
            LastQuestion::Answered { last } if position < last => ProgressStep::Wait(Nanos::NEVER),
            LastQuestion::Answered { .. } if self.answers >= MOST_ANSWERS => self.synced(),
            LastQuestion::None if !self.may_be_complete => ProgressStep::Wait(Nanos::NEVER),
            _ => self.ask(position, now),
        }
    }

    fn ask(&mut self, position: u64, now: Nanos) -> ProgressStep {
        self.number += 1;
        self.question = LastQuestion::Sent { position, until: now.after(self.times.answer) };
        ProgressStep::Ask { number: self.number }
    }

    fn synced(&mut self) -> ProgressStep {
        (self.is_synced, self.may_be_complete) = (true, false);
        self.question = LastQuestion::None;
        ProgressStep::Synced
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
