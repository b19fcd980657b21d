//! The messages of a subscription, request or flush that no thread has read yet.

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::error::NatsError;
use super::super::protocol::NatsMessage;
use homeostat::base::Clock;
use homeostat::rt::{Monitor, Nanos};

/// The mailbox of one subscription, request or flush.
pub(super) type Mailbox = Monitor<MailboxState>;

#[derive(Debug)]
pub(super) struct MailboxState {
    /// The messages with their arrival times.
    messages: VecDeque<(NatsMessage, Nanos)>,
    bytes: usize,
    most_messages: usize,
    most_bytes: usize,
    /// The number of messages dropped since the last report.
    dropped: u64,
    ended: Option<NatsError>,
    /// Set by an abort: later messages are dropped.
    aborted: bool,
    /// Set when a flush has succeeded.
    flushed: bool,
    /// The number of the connection on which the subscription was last restored.
    restored: u64,
    /// The arrival time of the last message.
    arrived: Nanos,
}

/// An item taken from a mailbox.
#[derive(Debug)]
pub(crate) enum MailboxItem {
    /// A message and its arrival time.
    Message(NatsMessage, Nanos),
    /// The number of dropped messages.
    Dropped(u64),
    Ended(NatsError),
}

pub(super) fn mailbox(clock: &Clock, most_messages: usize, most_bytes: usize) -> Arc<Mailbox> {
    let state = MailboxState {
        messages: VecDeque::new(),
        bytes: 0,
        most_messages,
        most_bytes,
        dropped: 0,
        ended: None,
        aborted: false,
        flushed: false,
        restored: 0,
        arrived: clock.nanos(),
    };
    Mailbox::of(clock.clone(), state)
}

impl MailboxState {
    /// Adds a message. Drops it if the mailbox is full.
    pub(super) fn push(&mut self, message: NatsMessage, now: Nanos) {
        if self.aborted {
            return;
        }
        let size = message.payload.len() + message.headers.block_len();
        // One message of any size always fits.
        let full = self.messages.len() >= self.most_messages
            || (!self.messages.is_empty() && self.bytes.saturating_add(size) > self.most_bytes);
        if full {
            self.dropped += 1;
        } else {
            self.bytes += size;
            self.messages.push_back((message, now));
        }
        self.arrived = now;
    }

    pub(super) fn end(&mut self, error: NatsError) {
        self.ended.get_or_insert(error);
    }

    /// Ends the mailbox at once. Drops its messages and all later ones.
    pub(super) fn abort(&mut self, error: NatsError) {
        self.messages.clear();
        (self.bytes, self.dropped, self.aborted) = (0, 0, true);
        self.ended.get_or_insert(error);
    }

    /// Returns the error of an [`abort`](Self::abort).
    pub(super) fn aborted(&self) -> Option<NatsError> {
        self.ended.clone().filter(|_| self.aborted)
    }

    pub(super) fn flush(&mut self) {
        self.flushed = true;
    }

    pub(super) fn restore(&mut self, connect: u64) {
        self.restored = connect;
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.flushed
    }

    pub(super) fn restored(&self) -> u64 {
        self.restored
    }

    pub(super) fn arrived(&self) -> Nanos {
        self.arrived
    }

    /// Takes the next item: first the number of dropped messages, then the messages, then the end.
    pub(super) fn take(&mut self) -> Option<MailboxItem> {
        if self.dropped > 0 {
            return Some(MailboxItem::Dropped(std::mem::take(&mut self.dropped)));
        }
        if let Some((message, arrived)) = self.messages.pop_front() {
            self.bytes -= message.payload.len() + message.headers.block_len();
            return Some(MailboxItem::Message(message, arrived));
        }
        self.ended.clone().map(MailboxItem::Ended)
    }
}

impl MailboxItem {
    /// Converts the item to the result that the reader of `subject` gets.
    pub(super) fn into_result(self, subject: &str) -> Result<NatsMessage, NatsError> {
        match self {
            Self::Message(message, _) => Ok(message),
            Self::Dropped(dropped) => Err(NatsError::slow_consumer(subject, dropped)),
            Self::Ended(error) => Err(error),
        }
    }
}
