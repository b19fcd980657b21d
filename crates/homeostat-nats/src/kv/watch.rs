//! Watches: a bucket's changes in order, without unreported losses.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::super::connection::{MailboxItem, NatsConnection, NatsSubscription, REFUSED};
use super::super::error::NatsError;
use super::super::protocol::NatsMessage;
use super::api::{self, ConsumerInfo, STREAM_NOT_FOUND, StreamInfo, StreamState, WATCHES};
use super::config::subject_prefix;
use super::entry::{KvEntry, Placement, from_consumer};
use super::ordered::{MessageAction, OrderedState, OrderedStep, OrderedTimes, StartAt, StreamFacts};
use super::progress::{BucketExtent, ProgressStep, ProgressTimes, WatchProgress};
use super::watch_options::{KvPosition, KvWatchOptions, WatchStart};
use homeostat::base::Exponential;
use homeostat::rt::{Draws, Nanos};

/// A change that a [`KvWatch`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KvUpdate {
    /// A key was written or deleted.
    Entry(KvEntry),
    /// All values from before the start were reported. Reported once.
    ///
    /// A key may be missing if it is rewritten again and again, each time before the watch has read its last value.
    /// Its next value follows.
    Synced,
}

/// A watch of a bucket.
///
/// It reports each key's changes in order, and survives lost connections. If it may have missed a change, it ends with
/// a *gone* error: list the bucket, compare, and watch again. Dropping it deletes its consumer on the server.
///
/// # Examples
///
/// ```no_run
/// use homeostat_nats::{KvBucket, KvUpdate, KvWatchOptions, NatsOptions};
///
/// let connection = NatsOptions::new("nats://localhost").connect()?;
/// let bucket = KvBucket::bind(&connection, "vms")?;
/// let mut watch = bucket.watch(&KvWatchOptions::new())?;
/// while let Ok(update) = watch.recv() {
///     if let KvUpdate::Entry(entry) = update {
///         log::info!("{} is at revision {}", entry.key, entry.revision);
///     }
/// }
/// # Ok::<_, homeostat_nats::NatsError>(())
/// ```
#[must_use = "dropping the watch ends it"]
pub struct KvWatch {
    pub(super) connection: NatsConnection,
    /// Receives the server's answers, and everything that `delivery` receives.
    pub(super) subscription: Arc<NatsSubscription>,
    /// Receives the messages and heartbeats of the newest consumer. A consumer sends only to a subscription to exactly
    /// its subject.
    pub(super) delivery: Option<NatsSubscription>,
    pub(super) bucket: String,
    /// The prefix of the subjects of this watch's messages and answers.
    pub(super) inbox: String,
    /// The prefix of the names of this watch's consumers. A number follows.
    pub(super) consumer: String,
    /// The prefix of the keys' subjects.
    pub(super) prefix: String,
    /// The name of the newest consumer.
    pub(super) current: String,
    pub(super) options: KvWatchOptions,
    pub(super) ordered: OrderedState,
    draws: Draws,
    /// The number of the last connection that this watch has noticed.
    restored: u64,
    /// Messages that arrived before their consumer was confirmed, with their arrival times.
    pub(super) held: VecDeque<(NatsMessage, Nanos)>,
    /// Decides when everything that exists has been delivered.
    pub(super) progress: WatchProgress,
    /// The revision after which the newest consumers continued, until the caller takes it.
    resumed: Option<u64>,
    /// Whether each new consumer that continues wakes the caller.
    announces: bool,
    /// The numbers of consumers without a confirmed deletion.
    pub(super) present: BTreeSet<u64>,
    failed: Option<NatsError>,
}

/// Ends a watch from another thread.
#[derive(Clone)]
pub struct KvWatchStopper(Arc<NatsSubscription>);

impl KvWatchStopper {
    /// Ends the watch. Its blocked and later calls return a *closed* error, even if changes are unread.
    pub fn stop(&self) {
        self.0.abort(NatsError::closed());
    }
}

impl fmt::Debug for KvWatchStopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KvWatchStopper")
    }
}

/// The longest delay between consumers that deliver nothing.
const SLOWEST: Duration = Duration::from_secs(30);

impl KvWatch {
    /// Starts a watch. `info` was read just before and tells the next revision.
    pub(super) fn start(
        connection: &NatsConnection,
        bucket: &str,
        info: &StreamInfo,
        options: &KvWatchOptions,
    ) -> Result<Self, NatsError> {
        options.check()?;
        let (start, identity) = match &options.start {
            WatchStart::Values => (StartAt::LastOfEach, &info.created),
            WatchStart::History => (StartAt::All, &info.created),
            WatchStart::Updates => (StartAt::After(info.state.last_seq), &info.created),
            WatchStart::After(position) => (StartAt::After(position.revision), &position.created),
        };
        let max_age = Duration::from_nanos(info.config.max_age);
        let marker_life = if max_age.is_zero() { options.marker_life } else { options.marker_life.min(max_age / 2) };
        // If the buffer is full, the answer may be dropped.
        let answer = connection.request_timeout().min(options.heartbeat.saturating_mul(2).max(Duration::from_secs(1)));
        let progress = WatchProgress::new(
            extent_of(&info.state),
            info.config.num_replicas < 2,
            ProgressTimes { answer, interval: None },
        );
        let times = OrderedTimes {
            heartbeat: options.heartbeat,
            answer,
            marker_life,
            backoff: Exponential::new(Duration::from_millis(100), SLOWEST).jitter(0.3),
        };
        let id = uuid::Uuid::new_v4().simple().to_string();
        let inbox = format!("{}.{id}", connection.inbox_prefix());
        Ok(Self {
            connection: connection.clone(),
            subscription: Arc::new(connection.subscribe(&format!("{inbox}.a.*"))?),
            delivery: None,
            bucket: bucket.to_owned(),
            prefix: subject_prefix(bucket),
            current: String::new(),
            inbox,
            consumer: format!("{WATCHES}{id}"),
            options: options.clone(),
            ordered: OrderedState::new(start, identity, times),
            draws: connection.clock().draws(),
            restored: 0,
            held: VecDeque::new(),
            progress: match options.start {
                WatchStart::Updates => progress.without_start(),
                _ => progress,
            },
            resumed: None,
            announces: false,
            present: BTreeSet::new(),
            failed: None,
        })
    }

    /// Blocks until the next change. A reconnect, a stop or the end of the connection wakes it.
    ///
    /// # Errors
    ///
    /// Returns a *gone* error if a change may have been missed. Returns a *closed* error after a stop, or if the
    /// connection is closed. Further calls return the same error.
    pub fn recv(&mut self) -> Result<KvUpdate, NatsError> {
        match self.recv_until(Nanos::NEVER)? {
            Some(update) => Ok(update),
            None => Err(NatsError::timed_out(self.what(), Duration::MAX)),
        }
    }

    /// Blocks until the next change, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), and if `timeout` passes. The next call continues.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<KvUpdate, NatsError> {
        let deadline = self.connection.clock().nanos().after(timeout);
        self.recv_until(deadline)?.ok_or_else(|| NatsError::timed_out(self.what(), timeout))
    }

    /// Returns a handle that ends this watch from another thread.
    #[must_use]
    pub fn stopper(&self) -> KvWatchStopper {
        KvWatchStopper(Arc::clone(&self.subscription))
    }

    /// Returns the position up to which changes were reported. `None` before the server's first answer.
    #[must_use]
    pub fn position(&self) -> Option<KvPosition> {
        let (read, created) = self.ordered.position()?;
        // A synced watch has delivered all changes of its keys up to the start.
        let revision = if self.progress.is_synced() { read.max(self.progress.end_at_start()) } else { read };
        Some(KvPosition { revision, created: created.to_owned() })
    }

    /// Returns the last revision before the start if more than one consumer was needed to deliver the start.
    pub(super) fn interrupted_since(&self) -> Option<u64> {
        (self.ordered.serial() > 1).then_some(self.progress.end_at_start())
    }

    /// Returns a revision at which the watch had delivered everything in the bucket.
    ///
    /// Each change of a watched key up to this revision was delivered, or the bucket has replaced it with a later
    /// change that was delivered.
    pub(crate) fn caught_up(&self) -> u64 {
        self.progress.caught_up()
    }

    /// Makes each wait end when a new consumer continues, before it delivers anything. Also keeps
    /// [`caught_up`](Self::caught_up) recent while changes arrive continually.
    pub(crate) fn announce(&mut self) {
        self.announces = true;
        self.progress.times.interval = Some(self.options.heartbeat);
    }

    /// Returns the revision after which new consumers have continued since the last call.
    pub(crate) fn take_resumed(&mut self) -> Option<u64> {
        self.resumed.take()
    }

    pub(super) fn what(&self) -> String {
        format!("a change in bucket {:?}", self.bucket)
    }

    pub(super) fn recv_until(&mut self, deadline: Nanos) -> Result<Option<KvUpdate>, NatsError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.subscription.aborted().map_or_else(|| self.next_update(deadline), Err);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
            self.delete_consumers();
        }
        result
    }

    fn next_update(&mut self, deadline: Nanos) -> Result<Option<KvUpdate>, NatsError> {
        let mut arrived = self.subscription.arrived();
        loop {
            if self.announces && self.resumed.is_some() {
                return Ok(None);
            }
            let now = self.connection.clock().nanos();
            let read = self.ordered.position().map_or(0, |(position, _)| position);
            let answered = match self.progress.step(read, now) {
                ProgressStep::Synced => return Ok(Some(KvUpdate::Synced)),
                ProgressStep::Ask { number } => {
                    self.ask_end(number, now);
                    continue;
                }
                ProgressStep::Wait(until) => until,
            };
            let draw = self.draws.draw();
            let until = match self.ordered.step(now, arrived, draw) {
                OrderedStep::Create { serial, start } => {
                    self.create(serial, start, now, draw)?;
                    continue;
                }
                OrderedStep::Inspect { serial } => {
                    self.inspect(serial, now, draw);
                    continue;
                }
                OrderedStep::Gone(reason) => return Err(OrderedState::gone(&self.bucket, &reason)),
                OrderedStep::Wait(until) => until.min(answered),
            };
            let is_live = !self.ordered.is_confirming();
            if is_live && let Some((message, at)) = self.held.pop_front() {
                if let Some(update) = self.take(message, at)? {
                    return Ok(Some(update));
                }
                continue;
            }
            let (found, restored, last) = self.subscription.take_until(until.min(deadline), self.restored);
            arrived = last;
            match found {
                Some(MailboxItem::Message(message, at)) => {
                    if let Some(update) = self.take(message, at)? {
                        return Ok(Some(update));
                    }
                }
                Some(MailboxItem::Dropped(_)) => {
                    // The next message's number, or the next heartbeat, shows the gap.
                    let subscription = self.bucket.as_str();
                    log::debug!(subscription; "{subscription}: the buffer of a watch was full");
                }
                Some(MailboxItem::Ended(error)) => return Err(error),
                None if restored != self.restored => {
                    self.restored = restored;
                    self.ordered.reconnected(self.connection.clock().nanos());
                }
                None if self.connection.clock().reached(deadline) => return Ok(None),
                None => {}
            }
        }
    }

    /// Handles a message of the inbox, which arrived at the time `now`. A slow reader may handle it much later, so it
    /// proves nothing about later messages.
    fn take(&mut self, message: NatsMessage, now: Nanos) -> Result<Option<KvUpdate>, NatsError> {
        let draw = self.draws.draw();
        if message.subject.starts_with(&self.prefix) {
            return Ok(self.take_entry(message, now, draw));
        }
        let Some((kind, serial)) = message.subject.strip_prefix(&self.inbox).and_then(parse_token) else {
            return Ok(None);
        };
        match kind {
            'm' => self.take_status(serial, message, now, draw),
            'c' | 'i' | 'l' if message.headers.status() == Some(REFUSED) => self.forbidden(kind, serial, &message)?,
            'c' | 'i' if message.headers.status() == Some(503) => {
                // `JetStream` may run on another server of the account, which can be unreachable for a while.
                if !self.connection.has_jetstream() && !self.ordered.was_confirmed() {
                    return Err(api::no_jetstream(&self.connection));
                }
                self.ordered.refused(serial, now, draw);
            }
            'l' => self.take_end(serial, &message, now)?,
            'c' => match api::parse::<ConsumerInfo>("a consumer", &message.payload)? {
                // The position in the answer may be ahead of messages that were taken from the stream but not sent.
                Ok(ConsumerInfo { num_pending }) => self.ordered.created(serial, 0, num_pending),
                Err(error) => self.refused(serial, error, now, draw)?,
            },
            'd' if message.headers.status() != Some(503) => {
                // It no longer exists, or the user lacks the permission to delete it. In that case it ends by itself.
                let _ = self.present.remove(&serial);
            }
            'i' => match api::parse::<StreamInfo>("a stream", &message.payload)? {
                Ok(StreamInfo { created, state, .. }) => {
                    let extent = extent_of(&state);
                    let facts = StreamFacts { created, first_seq: extent.first_seq, last_seq: extent.last_seq };
                    let pending = self.ordered.inspected(serial, &facts, now);
                    if let Some(pending) = pending {
                        self.progress.confirmed(pending, extent);
                    }
                    let starts_after = self.ordered.starts_after();
                    if pending.is_some() && starts_after > 0 {
                        self.resumed.get_or_insert(starts_after);
                    }
                }
                Err(error) => self.refused(serial, error, now, draw)?,
            },
            _ => {}
        }
        Ok(None)
    }

    fn refused(&mut self, serial: u64, error: api::ApiError, now: Nanos, draw: u64) -> Result<(), NatsError> {
        if error.err_code == STREAM_NOT_FOUND {
            self.present.clear();
            self.ordered.deleted();
        } else if (400..500).contains(&error.code) {
            // Repeating the request would fail again.
            return Err(error.into_error(&self.connection, &self.what()));
        } else {
            self.ordered.refused(serial, now, draw);
        }
        Ok(())
    }

    /// Handles a message of the bucket.
    fn take_entry(&mut self, message: NatsMessage, now: Nanos, draw: u64) -> Option<KvUpdate> {
        // The subject of the acknowledgement tells the stream, the consumer and the position.
        let place = Placement::parse(message.reply.as_deref()?)?;
        let serial = if place.consumer == self.current { self.ordered.serial() } else { 0 };
        match self.ordered.message(serial, place.consumer_seq, place.stream_seq, now, draw) {
            MessageAction::Ignore => return None,
            MessageAction::Hold => {
                self.held.push_back((message, now));
                return None;
            }
            MessageAction::Deliver => {}
        }
        self.progress.delivered(place.stream_seq, place.pending);
        let key = message.subject.strip_prefix(&self.prefix)?.to_owned();
        let entry = from_consumer(key, &message.headers, message.payload, place);
        (!self.options.ignore_deletes || !entry.is_marker()).then_some(KvUpdate::Entry(entry))
    }

    /// Handles a heartbeat, a flow-control request or the end of a consumer.
    fn take_status(&mut self, serial: u64, message: NatsMessage, now: Nanos, draw: u64) {
        if message.headers.status() != Some(100) {
            return self.ordered.refused(serial, now, draw);
        }
        if self.ordered.is_confirming() && serial == self.ordered.serial() {
            return self.held.push_back((message, now));
        }
        let stalled = message.headers.get("Nats-Consumer-Stalled");
        if let Some(reply) = message.reply.as_deref().or(stalled) {
            self.connection.try_publish(reply, None, b"");
        }
        let number = |name| message.headers.get(name).and_then(|text| text.parse().ok());
        if let (Some(number), Some(sequence)) = (number("Nats-Last-Consumer"), number("Nats-Last-Stream")) {
            // The sequence of a stalled consumer may be ahead of messages that it has not sent.
            let sequence = if stalled.is_some() { 0 } else { sequence };
            if self.ordered.heartbeat(serial, number, sequence, now, draw) {
                self.progress.idle(sequence);
                if stalled.is_none() && self.progress.is_stuck(sequence) {
                    self.ordered.stuck(serial, now, draw);
                }
            }
        }
    }
}

/// Returns how far a bucket's entries reach, from the state of its stream.
fn extent_of(state: &StreamState) -> BucketExtent {
    BucketExtent { messages: state.messages, first_seq: state.first_seq, last_seq: state.last_seq }
}

/// Parses `.m12` and `.a.c12` as a kind and a number.
fn parse_token(token: &str) -> Option<(char, u64)> {
    let mut rest = token.strip_prefix(".a").unwrap_or(token).strip_prefix('.')?.chars();
    Some((rest.next()?, rest.as_str().parse().ok()?))
}

impl Drop for KvWatch {
    fn drop(&mut self) {
        self.delete_consumers();
    }
}

impl fmt::Debug for KvWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvWatch")
            .field("bucket", &self.bucket)
            .field("filter", &self.options.filter)
            .field("position", &self.ordered.position())
            .finish_non_exhaustive()
    }
}
