//! Subscriptions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::super::error::NatsError;
use super::super::protocol::NatsMessage;
use super::mailbox::{Mailbox, MailboxItem, MailboxState};
use super::shared::LinkShared;
use homeostat::rt::Nanos;

/// A subscription to a subject. Dropping it unsubscribes.
///
/// It is restored on each new connection; messages sent in between are lost. It does not keep the connection open.
///
/// # Examples
///
/// ```no_run
/// use homeostat_nats::NatsOptions;
///
/// let connection = NatsOptions::new("nats://localhost").connect()?;
/// let events = connection.subscribe("events.>")?;
/// while let Ok(message) = events.recv() {
///     log::info!("{}: {} bytes", message.subject, message.payload.len());
/// }
/// # Ok::<_, homeostat_nats::NatsError>(())
/// ```
#[must_use = "dropping the subscription ends it"]
pub struct NatsSubscription {
    shared: Arc<LinkShared>,
    mailbox: Arc<Mailbox>,
    subject: String,
    sid: u64,
}

impl NatsSubscription {
    pub(super) fn new(shared: Arc<LinkShared>, mailbox: Arc<Mailbox>, subject: &str, sid: u64) -> Self {
        Self { shared, mailbox, subject: subject.to_owned(), sid }
    }

    /// Returns the subject, which may have wildcards.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Blocks until a message arrives or the connection is closed.
    ///
    /// # Errors
    ///
    /// Returns an error if messages were dropped because they were not read in time. The next call continues with the
    /// next message. Also returns an error if the server refuses the subject, or if the connection is closed.
    pub fn recv(&self) -> Result<NatsMessage, NatsError> {
        self.recv_until(Nanos::NEVER, Duration::MAX)
    }

    /// Blocks until a message arrives, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), and if `timeout` passes.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<NatsMessage, NatsError> {
        self.recv_until(self.mailbox.clock().nanos().after(timeout), timeout)
    }

    /// Returns the next message if one has arrived, and `None` otherwise.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    pub fn try_recv(&self) -> Result<Option<NatsMessage>, NatsError> {
        let found = self.mailbox.with(MailboxState::take);
        found.map(|found| found.into_result(&self.subject)).transpose()
    }

    fn recv_until(&self, deadline: Nanos, timeout: Duration) -> Result<NatsMessage, NatsError> {
        let found = self.mailbox.wait_for_some(deadline, MailboxState::take);
        match found {
            Some(found) => found.into_result(&self.subject),
            None => Err(NatsError::timed_out(format!("a message of {:?}", self.subject), timeout)),
        }
    }

    /// Blocks until an item arrives or `deadline` passes. Returns it with the number of the connection on which the
    /// subscription was last restored, and the arrival time of the last message.
    pub(crate) fn take_until(&self, deadline: Nanos, restored: u64) -> (Option<MailboxItem>, u64, Nanos) {
        let found = self.mailbox.wait_for_some(deadline, |state| match state.take() {
            None if state.restored() == restored => None,
            found => Some((found, state.restored(), state.arrived())),
        });
        found.unwrap_or_else(|| self.mailbox.with(|state| (None, state.restored(), state.arrived())))
    }

    /// Subscribes to another subject as well. This subscription receives its messages.
    pub(crate) fn subscribe_also(&self, subject: &str) -> Result<Self, NatsError> {
        let sid = self.shared.subscribe(subject, None, &self.mailbox)?;
        Ok(Self::new(Arc::clone(&self.shared), Arc::clone(&self.mailbox), subject, sid))
    }

    /// Returns the arrival time of the last message.
    pub(crate) fn arrived(&self) -> Nanos {
        self.mailbox.with(|state| state.arrived())
    }

    /// Ends the subscription and the waits of all threads. Unread messages are dropped.
    pub(crate) fn abort(&self, error: NatsError) {
        self.mailbox.change(|state| state.abort(error));
    }

    /// Returns the error that was passed to [`abort`](Self::abort).
    pub(crate) fn aborted(&self) -> Option<NatsError> {
        self.mailbox.with(|state| state.aborted())
    }
}

impl Drop for NatsSubscription {
    fn drop(&mut self) {
        self.shared.unsubscribe(self.sid);
    }
}

impl fmt::Debug for NatsSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSubscription").field("subject", &self.subject).finish_non_exhaustive()
    }
}
