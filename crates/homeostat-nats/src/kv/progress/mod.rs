//! Decides when a watch has delivered everything in its bucket. A plain value.
//!
//! Each message has a count of the messages that follow, but this is only a hint. Since version 2.9.15, servers
//! subtract a removed message at once and add its replacement later, so the count can reach zero too early. The count
//! can also stay above zero if the last messages were removed before they were sent. And the consumer's copy may lag
//! behind.
//!
//! Two facts are certain:
//!
//! - The count in a consumer's confirmation, if the bucket has one copy and nothing was written or removed since the
//!   start. Exactly that many messages of the start follow.
//! - The last revision of the watched keys, as the server that orders all writes reports it, if the watch had already
//!   read up to it.

use std::time::Duration;

use homeostat::rt::Nanos;

/// The pause before a refused question is repeated.
const PAUSE: Duration = Duration::from_millis(250);
/// The start ends after this many answers above the position. A key can only be missing then if it was written again
/// between each two answers, each time before the consumer reached it.
const MOST_ANSWERS: u32 = 10;

/// The caller's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgressStep {
    /// Ask for the last revision of the watched keys.
    Ask { number: u64 },
    /// The start was delivered. Reported once.
    Synced,
    /// Wait for messages and answers until this time.
    Wait(Nanos),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastQuestion {
    None,
    /// The question was sent when the watch had read up to `position`. The answer is due at the time `until`.
    Sent {
        position: u64,
        until: Nanos,
    },
    /// The watch had not read up to `last`, which was the answer.
    Answered {
        last: u64,
    },
}

/// The times of a [`WatchProgress`].
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgressTimes {
    /// The timeout of a question.
    pub(super) answer: Duration,
    /// The interval of questions after the start. `None` asks only about the start.
    pub(super) interval: Option<Duration>,
}

/// How far a bucket's entries reach at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BucketExtent {
    pub(super) messages: u64,
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
}

/// Decides whether the watch still misses messages of the bucket.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct WatchProgress {
    pub(super) times: ProgressTimes,
    /// The bucket before the first consumer was created.
    at_start: BucketExtent,
    has_one_copy: bool,
    /// How many messages of the start are outstanding. `None` before the first consumer is confirmed.
    left: Option<u64>,
    /// Whether `left` is exact.
    is_exact: bool,
    /// Whether everything may have been delivered.
    may_be_complete: bool,
    is_synced: bool,
    /// The number of the last question.
    number: u64,
    question: LastQuestion,
    /// The number of answers about the start that were above the position. Unanswered questions do not count.
    answers: u32,
    /// After the start, no question is asked before this time.
    pause: Nanos,
    caught_up: u64,
}

impl WatchProgress {
    /// Creates the progress of a watch. `at_start` describes its bucket.
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

    /// Skips the start: the watch begins with the next change.
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

    /// Returns a revision at which the watch had delivered everything in the bucket.
    ///
    /// Each change of a watched key up to this revision was delivered, or the bucket has replaced it with a later
    /// change that was delivered.
    pub(super) fn caught_up(&self) -> u64 {
        self.caught_up
    }

    /// Handles the confirmation of a consumer: the number of messages that follow, and the bucket after the creation.
    ///
    /// If an entry expires while the server creates the consumer, the server may subtract it from the count before it
    /// adds it.
    pub(super) fn confirmed(&mut self, pending: u64, extent: BucketExtent) {
        if !self.is_synced {
            self.left = Some(pending);
            self.is_exact = self.has_one_copy && extent == self.at_start;
            self.may_be_complete = pending == 0;
        }
        self.question = LastQuestion::None;
    }

    /// Handles a delivered message: its revision, and the number of messages that follow.
    pub(super) fn delivered(&mut self, sequence: u64, pending: u64) {
        self.is_exact &= sequence <= self.at_start.last_seq;
        self.may_be_complete |= pending == 0;
        if let Some(left) = self.left.as_mut().filter(|_| !self.is_synced) {
            *left = left.saturating_sub(1);
            self.may_be_complete |= *left == 0;
        }
    }

    /// Handles a heartbeat of a consumer that has sent everything up to this revision and waits for more.
    pub(super) fn idle(&mut self, sequence: u64) {
        self.caught_up = self.caught_up.max(sequence);
        self.may_be_complete |= !self.is_synced && sequence >= self.at_start.last_seq;
    }

    /// Returns whether a consumer that has sent everything up to this revision, and waits for more, has not sent the
    /// whole start.
    ///
    /// Since version 2.10, servers stop at each entry of the start that was removed before it was sent, until the next
    /// write or heartbeat. Or the consumer's copy lags behind.
    pub(super) fn is_stuck(&self, sequence: u64) -> bool {
        !self.is_synced && sequence < self.at_start.last_seq
    }

    /// Handles the answer to a question: the last revision of the watched keys.
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

    /// Handles that a question was not heard.
    pub(super) fn unheard(&mut self, number: u64, now: Nanos) {
        if let LastQuestion::Sent { until, .. } = &mut self.question
            && number == self.number
        {
            *until = now.after(PAUSE).min(*until);
        }
    }

    /// Returns the next action of a watch that has read up to `position`.
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
