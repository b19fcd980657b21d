//! The state of a connection behind its lock, and the calls of the program on it.
//!
//! Lock order: the state, then a mailbox. A thread that holds the socket's lock takes no other lock.

use std::sync::Arc;
use std::time::Duration;

use super::super::error::NatsError;
use super::super::options::NatsOptions;
use super::super::protocol::NatsMessage;
use super::info::ServerInfo;
use super::mailbox::{Mailbox, MailboxItem, MailboxState, mailbox};
use super::refusals::RefusalLog;
use super::state::{Blocked, LinkPhase, LinkState, Notice, Outgoing};
use super::transport::{SocketCloser, Transport};
use super::turn::{Turn, TurnBuffers};
use homeostat::base::CancellationToken;
use homeostat::rt::{AutoResetEvent, Chain, Monitor, Nanos};
use homeostat_net::NameLookUps;

pub(super) struct LinkShared {
    pub(super) options: NatsOptions,
    pub(super) look_ups: NameLookUps,
    /// Cancelled by a close. Ends waits for a host name.
    pub(super) closing: CancellationToken,
    /// Wakes callers that wait for a connection or for room in the buffer.
    pub(super) link: Arc<Monitor<Link>>,
    /// Wakes the writer thread.
    pub(super) work: Arc<AutoResetEvent>,
}

/// The state of a connection and its current socket.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) state: LinkState<Arc<Mailbox>>,
    pub(super) transport: Option<Arc<Transport>>,
    /// Set while a thread writes its turn.
    pub(super) writing: bool,
    /// Set while the reader delivers messages. It takes a turn afterwards.
    pub(super) delivering: bool,
    /// A turn that a caller has left to the writer thread to finish.
    pub(super) unfinished: Option<Turn>,
    /// The buffers for the next turn.
    pub(super) buffers: TurnBuffers,
    pub(super) closer: Option<SocketCloser>,
    pub(super) info: Arc<ServerInfo>,
    /// The servers of the pool.
    pub(super) servers: Vec<String>,
    /// The servers tried in the first round, each with the reason of its failure.
    pub(super) first_round: Vec<(String, NatsError)>,
    pub(super) first_round_over: bool,
    pub(super) last_error: Option<NatsError>,
    pub(super) refusals: RefusalLog,
    /// The number of running threads.
    pub(super) threads: usize,
}

/// The thread that writes the bytes of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SendBy {
    Caller,
    Writer,
}

impl LinkShared {
    pub(super) fn new(options: NatsOptions) -> Arc<Self> {
        let inbox = format!("{}.{}", options.inbox_prefix, uuid::Uuid::new_v4().simple());
        let link = Link {
            state: LinkState::new(&inbox, options.outbound),
            transport: None,
            writing: false,
            delivering: false,
            unfinished: None,
            buffers: TurnBuffers::default(),
            closer: None,
            info: Arc::default(),
            servers: Vec::new(),
            first_round: Vec::new(),
            first_round_over: false,
            last_error: None,
            refusals: RefusalLog::default(),
            threads: 0,
        };
        let link = Monitor::of(options.clock.clone(), link);
        let work = AutoResetEvent::new(options.clock.clone());
        let look_ups = NameLookUps::new(options.clock.clone(), format!("{}-resolver", options.name));
        Arc::new(Self { options, look_ups, closing: CancellationToken::new(), link, work })
    }

    /// Blocks until a server accepts, or until each server was tried once.
    pub(super) fn wait_for_first(&self) -> Result<(), NatsError> {
        let retry = self.options.retry_first;
        let outcome = self.link.wait_for_some(Nanos::NEVER, |link| match link.state.phase() {
            LinkPhase::Connected => Some(Ok(())),
            LinkPhase::Closed(error) => Some(Err(error.clone())),
            LinkPhase::Connecting if link.state.connects() > 0 || retry => Some(Ok(())),
            LinkPhase::Connecting => {
                link.first_round_over.then(|| Err(NatsError::unreachable(&std::mem::take(&mut link.first_round))))
            }
        });
        outcome.unwrap_or(Ok(()))
    }

    pub(super) fn mailbox(&self) -> Arc<Mailbox> {
        mailbox(&self.options.clock, self.options.buffered_messages, self.options.buffered_bytes)
    }

    /// Calls `call` under the lock, and again after each change, until it is no longer [`Blocked::NotNow`]. Then
    /// writes the outbound bytes, or leaves them to the writer thread.
    fn until_open<R>(
        &self,
        what: &dyn Fn() -> String,
        timeout: Duration,
        deadline: Nanos,
        send: SendBy,
        mut call: impl FnMut(&mut LinkState<Arc<Mailbox>>) -> Result<R, Blocked>,
    ) -> Result<R, NatsError> {
        let mut turn = None;
        let mut attempt = |link: &mut Link| match call(&mut link.state) {
            Ok(result) => {
                turn = if send == SendBy::Caller { link.take_turn() } else { None };
                Some(Ok(result))
            }
            Err(Blocked::Failed(error)) => Some(Err(error)),
            Err(Blocked::NotNow) => None,
        };
        let now = self.link.change(&mut attempt);
        let result = now.or_else(|| self.link.wait_for_some(deadline, attempt));
        match send {
            SendBy::Caller => self.send(turn),
            SendBy::Writer => self.work.set(),
        }
        result.unwrap_or_else(|| {
            let reason = self.link.with(|link| {
                let is_connected = matches!(link.state.phase(), LinkPhase::Connected);
                link.last_error.as_ref().filter(|_| !is_connected).map(ToString::to_string)
            });
            let reason = reason.map_or_else(String::new, |reason| format!(" (not connected: {reason})"));
            Err(NatsError::timed_out(format!("{}{reason}", what()), timeout))
        })
    }

    pub(super) fn publish(&self, message: Outgoing<'_>, timeout: Duration) -> Result<(), NatsError> {
        let deadline = self.options.clock.nanos().after(timeout);
        let what = || format!("the publication to {:?}", message.subject);
        // The writer thread combines the bytes of many publications.
        self.until_open(&what, timeout, deadline, SendBy::Writer, |state| state.publish(message))
    }

    /// Sends a request and blocks until its answer. Fails with a *closed* error when `stop` is cancelled.
    pub(super) fn request(
        self: &Arc<Self>,
        message: Outgoing<'_>,
        timeout: Duration,
        stop: Option<&CancellationToken>,
    ) -> Result<NatsMessage, NatsError> {
        let deadline = self.options.clock.nanos().after(timeout);
        let mailbox = mailbox(&self.options.clock, 1, usize::MAX);
        let what = || format!("the request to {:?}", message.subject);
        let _wakeup = stop.map(|stop| {
            let (shared, mailbox) = (Arc::clone(self), Arc::clone(&mailbox));
            stop.on_cancel(move || {
                mailbox.change(|state| state.end(NatsError::closed()));
                shared.wake();
            })
        });
        let send = |state: &mut LinkState<_>| {
            if stop.is_some_and(CancellationToken::is_cancelled) {
                return Err(Blocked::Failed(NatsError::closed()));
            }
            state.request(message, Arc::clone(&mailbox))
        };
        let number = self.until_open(&what, timeout, deadline, SendBy::Caller, send)?;
        match mailbox.wait_for_some(deadline, MailboxState::take) {
            Some(MailboxItem::Message(message, _)) => Ok(message),
            found => {
                self.link.with(|link| link.state.forget(number));
                found.map_or_else(
                    || Err(NatsError::timed_out(what(), timeout)),
                    |found| found.into_result(message.subject),
                )
            }
        }
    }

    /// Publishes a message if the connection is up and the buffer has room. Returns whether it did.
    pub(super) fn try_publish(&self, message: Outgoing<'_>) -> bool {
        self.change_and_send(|link| link.state.ask(message).is_ok())
    }

    /// Blocks until `deadline`. Returns false if the connection is closed or `stop` is cancelled. After cancelling
    /// `stop`, call [`wake`](Self::wake).
    pub(super) fn pause(&self, deadline: Nanos, stop: Option<&CancellationToken>) -> bool {
        let is_over = |link: &mut Link| link.state.is_closed() || stop.is_some_and(CancellationToken::is_cancelled);
        self.link.wait_for_some(deadline, |link| is_over(link).then_some(())).is_none()
    }

    /// Wakes all blocked calls, so that they check their tokens.
    pub(super) fn wake(&self) {
        self.link.change(|_| ());
    }

    pub(super) fn flush(&self, timeout: Duration) -> Result<(), NatsError> {
        let deadline = self.options.clock.nanos().after(timeout);
        let mailbox = mailbox(&self.options.clock, 1, usize::MAX);
        let what = || "the flush".to_owned();
        self.until_open(&what, timeout, deadline, SendBy::Caller, |state| state.flush(Arc::clone(&mailbox)))?;
        let flushed = mailbox.wait_for_some(deadline, |state| match state.take() {
            Some(MailboxItem::Ended(error)) => Some(Err(error)),
            _ => state.is_flushed().then_some(Ok(())),
        });
        flushed.unwrap_or_else(|| Err(NatsError::timed_out(what(), timeout)))
    }

    pub(super) fn subscribe(
        &self,
        subject: &str,
        group: Option<&str>,
        mailbox: &Arc<Mailbox>,
    ) -> Result<u64, NatsError> {
        self.change_and_send(|link| link.state.subscribe(subject, group, Arc::clone(mailbox)))
    }

    pub(super) fn unsubscribe(&self, sid: u64) {
        self.change_and_send(|link| link.state.unsubscribe(sid));
    }

    pub(super) fn info(&self) -> Arc<ServerInfo> {
        self.link.with(|link| Arc::clone(&link.info))
    }

    /// Ends all calls and closes the socket. Returns at once. Later calls do nothing.
    pub(super) fn close(&self, error: &NatsError) {
        let mut notices = Vec::new();
        self.link.change(|link| {
            link.state.close(error, &mut notices);
            link.transport = None;
            if let Some(closer) = link.closer.take() {
                closer.end();
            }
        });
        self.closing.cancel();
        self.work.set();
        self.deliver(notices);
    }

    /// Delivers messages and ends to their mailboxes.
    pub(super) fn deliver(&self, notices: impl IntoIterator<Item = Notice<Arc<Mailbox>>>) {
        let now = self.options.clock.nanos();
        let mut notices = notices.into_iter().peekable();
        while let Some(notice) = notices.next() {
            match notice {
                Notice::Message(mailbox, message) => mailbox.change(|state| {
                    state.push(message, now);
                    // A subscription often receives many messages in sequence.
                    let is_next = |next: &_| matches!(next, Notice::Message(other, _) if Arc::ptr_eq(other, &mailbox));
                    while let Some(Notice::Message(_, message)) = notices.next_if(is_next) {
                        state.push(message, now);
                    }
                }),
                Notice::Flushed(mailbox) => mailbox.change(MailboxState::flush),
                Notice::Restored(mailbox, connect) => mailbox.change(|state| state.restore(connect)),
                Notice::Ended(mailbox, error) => mailbox.change(|state| state.end(error)),
                Notice::Refused(error) => self.refused(error),
            }
        }
    }

    /// Logs an error that leaves the connection open.
    fn refused(&self, error: NatsError) {
        let connection = self.options.name.as_str();
        let text = Chain(&error).to_string();
        let now = self.options.clock.nanos();
        let count = self.link.with(|link| {
            link.last_error = Some(error);
            link.refusals.take(&text, now)
        });
        let Some(count) = count else { return };
        if count > 0 {
            log::warn!(connection, count; "{connection}: {count} refusals were not logged");
        }
        let error = text.as_str();
        log::warn!(connection, error; "{connection}: {error}");
    }

    /// Blocks until both threads have ended or `timeout` has passed. Returns whether they have ended.
    pub(super) fn wait_for_threads(&self, timeout: Duration) -> bool {
        let deadline = self.options.clock.nanos().after(timeout);
        self.link.wait_for_some(deadline, |link| (link.threads == 0).then_some(())).is_some()
    }

    /// Calls `describe` with the state, for the connection's status.
    pub(super) fn describe<R>(
        &self,
        describe: impl FnOnce(&LinkState<Arc<Mailbox>>, &ServerInfo, &[String], Option<&NatsError>) -> R,
    ) -> R {
        self.link.with(|link| describe(&link.state, &link.info, &link.servers, link.last_error.as_ref()))
    }
}

/// Records the end of a thread, even by a panic. The connection needs both threads, so it ends too.
pub(super) struct ThreadEnd<'a>(pub(super) &'a LinkShared);

impl Drop for ThreadEnd<'_> {
    fn drop(&mut self) {
        self.0.close(&NatsError::closed());
        self.0.link.change(|link| link.threads -= 1);
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Transport")
    }
}
