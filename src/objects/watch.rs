//! Watches of a client's objects: list them once, then follow the changes.

use std::any::type_name;
use std::fmt;
#[cfg(feature = "testing")]
use std::panic::resume_unwind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
#[cfg(feature = "testing")]
use std::task::Poll;
use std::time::Duration;

use super::api::Api;
use super::client::{ObjectStream, StreamItem, WatchEvent};
use super::error::ClientError;
use super::key::ObjectKey;
use super::object::Object;
use super::pager::list_all;
use super::query::{ObjectList, Query};
use super::shared::SharedObject;
use super::stable_hash::stable_hash;
use crate::base::backoff::Exponential;
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::group::{Handle, ThreadGroup, ThreadGroupKind};
use crate::base::running::Running;
#[cfg(feature = "testing")]
use crate::base::task::TurnContext;
use crate::base::task::{Next, Task};
#[cfg(feature = "testing")]
use crate::base::thread::Panic;
use crate::base::thread::{ThreadOptions, panic_message};
use crate::base::time::Nanos;
use crate::base::wait::AutoResetEvent;
use crate::manager::Manager;
use crate::run::error::Chain;
use crate::watch::source::SourceState;
use crate::watch::{Push, Watch, WatchBuilder};

/// Returns the watch of these objects that a manager shares: one for each client, type and query.
pub(crate) fn shared_watch<U: Object>(
    manager: &Manager,
    api: &Api<U>,
    query: &Query,
) -> Result<Watch<ObjectKey, U>, StartError> {
    manager.watch(&watch_name(api, query), || {
        let watch = ObjectWatch::new(api.clone()).query(query.clone()).clock(manager.clock().clone());
        watch.thread_options(manager.thread_options().clone()).start()
    })
}

/// Returns the name of that watch.
pub(crate) fn watch_name<U: Object>(api: &Api<U>, query: &Query) -> String {
    // The watch holds the client, so no other client can have its address.
    let client = format!("{:p}", Arc::as_ptr(api.client()));
    let query = if *query == Query::all() { String::new() } else { format!("{query:?}") };
    format!("{}-{}", api.kind().plural(), stable_hash(&[&client, &api.kind().to_string(), type_name::<U>(), &query]))
}

/// A [`Watch`] of the objects of a client. It lists them, then follows the changes on one thread, however many subscribe.
///
/// After an interruption the watch resumes at the last version that it has seen. If the client no longer knows that version, the
/// watch lists the objects again. If the client fails, the watch retries with a growing [delay](Self::backoff).
///
/// Objects are equal if their versions are. If the JSON of an object does not match the type, the watch logs that at *warn* and
/// keeps the value it had before. The last value of a deleted object is its last state. It has a `deletionTimestamp`, unless the
/// object was [purged](super::DeleteOptions::purge) or had gone before a new listing.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{Api, DynamicObject, Kind, MemoryClient, ObjectKey, ObjectWatch};
/// use homeostat::{Subscriber, WorkQueue};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let api = Api::<DynamicObject>::of_kind(Arc::new(MemoryClient::new()), CONFIG_MAP);
/// let configs = ObjectWatch::new(api.clone()).start()?;
/// let queue = WorkQueue::<ObjectKey>::new();
/// let subscription = configs.watch().subscribe(Subscriber::to_itself(&queue))?;
///
/// api.create(&DynamicObject::new(&CONFIG_MAP, "default", "colours"))?;
/// let claim = queue.dequeue()?;
/// assert_eq!(claim.to_string(), "default/colours");
/// assert!(configs.watch().store().get(&claim).is_some());
/// # drop(subscription);
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[must_use = "a watch does nothing until it is started"]
#[doc(alias = "informer")]
#[doc(alias = "reflector")]
pub struct ObjectWatch<T> {
    api: Api<T>,
    query: Query,
    name: String,
    clock: Clock,
    backoff: Exponential,
    list_timeout: Duration,
    threads: ThreadOptions,
}

impl<T: Object> ObjectWatch<T> {
    /// Watches all objects of an [`Api`].
    pub fn new(api: Api<T>) -> Self {
        let name = api.kind().plural().into_owned();
        // The delays of client-go's reflector.
        let backoff = Exponential::new(Duration::from_millis(800), Duration::from_secs(30));
        let (query, clock, threads) = (Query::all(), Clock::system(), ThreadOptions::new());
        Self { api, query, name, clock, backoff, list_timeout: Duration::from_secs(60), threads }
    }

    /// Watches only the objects that the query selects.
    ///
    /// The [limit](Query::limit) of the query is the page size of the listing. If a page is gone before it is read, the watch
    /// lists all objects at once.
    pub fn query(self, query: Query) -> Self {
        Self { query, ..self }
    }

    /// Sets the name for log lines and for the thread (`<name>-0`). Default: the plural of the kind.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the clock of the watch and its subscriptions. Default: the system clock.
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Sets the delay before a retry, after the client fails or a stream ends soon without a change. Default: 0.8 s, doubled up
    /// to 30 s.
    pub fn backoff(self, backoff: Exponential) -> Self {
        Self { backoff, ..self }
    }

    /// Sets how long the client may take to list the objects and open the stream. Default: one minute.
    ///
    /// After that, [`Manager::live`](crate::Manager::live) reports the watch. The call goes on, because nothing can interrupt it.
    pub fn list_timeout(self, timeout: Duration) -> Self {
        Self { list_timeout: timeout, ..self }
    }

    /// Sets the options of the thread.
    pub fn thread_options(self, threads: ThreadOptions) -> Self {
        Self { threads, ..self }
    }

    /// Starts the watch. Returns at once; the store is [in sync](crate::Store::wait_synced) after the first listing.
    ///
    /// # Errors
    ///
    /// If the system cannot create a thread; in a simulation, if the client's streams are not
    /// [polled](super::ObjectStream::polled).
    pub fn start(self) -> Result<Running<Watch<ObjectKey, T>>, StartError> {
        let Self { api, query, name, clock, backoff, list_timeout, threads } = self;
        let same = |one: &T, other: &T| one.has_version_of(other);
        let push = WatchBuilder::with(Box::new(same)).name(name.clone()).clock(clock.clone()).push();
        let watch = push.watch().clone();
        let stop = CancellationToken::new();
        let group = ThreadGroup::new(ThreadGroupKind::Watch, name, clock, 1);
        if group.clock.scheduler().is_some()
            && let Ok(stream) = api.client().watch(api.kind(), &query, None, &stop)
            && !stream.is_polled()
        {
            return Err(StartError::not_simulated(&group.slots[0].name));
        }
        let follower = Follower {
            api,
            query,
            backoff,
            list_timeout,
            source: Arc::clone(push.watch().source_state()),
            push: push.clone(),
            stop: stop.clone(),
            from: None,
            stream: None,
            delivered: false,
            began: Nanos::ZERO,
            failures: 0,
            #[cfg(feature = "testing")]
            polled: None,
        };
        let event = AutoResetEvent::new(watch.clock());
        let source = watch.name();
        log::info!(source; "{source}: the watch starts");
        let joiners = group.start_one(&threads, follower, &event, None)?;
        let on_stop = move || {
            push.stop();
            stop.cancel();
            event.set();
        };
        let handle = Handle::new(group, joiners, on_stop);
        Ok(Running::new(watch, handle, Duration::MAX))
    }
}

/// The task of the thread.
struct Follower<T: Object> {
    api: Api<T>,
    query: Query,
    backoff: Exponential,
    list_timeout: Duration,
    /// The state that the watch reports.
    source: Arc<SourceState>,
    push: Push<ObjectKey, T>,
    stop: CancellationToken,
    /// The last version seen; `None` if the objects must be listed.
    from: Option<String>,
    /// The stream of changes after that version.
    stream: Option<ObjectStream>,
    /// Whether the stream has delivered an event.
    delivered: bool,
    /// The time at which the stream began.
    began: Nanos,
    /// The number of attempts since the last change.
    failures: u32,
    /// In a simulation: the next event, or the panic that reading it caused.
    #[cfg(feature = "testing")]
    polled: Option<Result<Option<StreamItem>, Panic>>,
}

impl<T: Object> Follower<T> {
    /// Lists the objects and opens a stream, or handles the next event, which `read` takes from the stream. Returns the pause
    /// before the next step.
    fn advance(&mut self, read: impl FnOnce(&mut ObjectStream) -> Option<StreamItem>) -> Duration {
        let ended = match catch_unwind(AssertUnwindSafe(|| self.follow(read))) {
            Ok(Ok(true)) => return Duration::ZERO,
            ended => ended,
        };
        let lasted = self.stream.as_ref().map_or(Duration::ZERO, |_| self.now().since(self.began));
        self.stream = None;
        if self.stop.is_cancelled() && ended.is_ok() {
            // The stop may be the cause.
            return Duration::ZERO;
        }
        let failed = !matches!(ended, Ok(Ok(_)));
        match ended {
            Ok(Ok(_)) if self.delivered => {}
            Ok(Ok(_)) => self.source.ended_without_event(),
            Ok(Err(error)) if error.is_gone() && self.from.is_some() => {
                let (source, shown) = (self.source.name(), Chain(&error));
                log::info!(source, error:% = shown; "{source}: listing the objects again: {shown}");
                self.from = None;
            }
            Ok(Err(error)) => self.source.failed(Chain(&error).to_string()),
            Err(panic) => {
                // List the objects again.
                self.source.panicked(panic_message(&*panic));
                self.from = None;
            }
        }
        self.pause(lasted, failed)
    }

    /// Returns the pause before the next attempt, after a stream that lasted this long.
    ///
    /// Only changes count as progress. Bookmarks do not, or a stream that ends after each bookmark would be reopened without
    /// pause. A stream that outlasted the pause counts too.
    fn pause(&mut self, lasted: Duration, failed: bool) -> Duration {
        if self.failures > 0 && lasted >= self.backoff.delay(self.failures) {
            self.failures = u32::from(failed);
        }
        if self.failures > 0 { self.backoff.delay(self.failures) } else { Duration::ZERO }
    }

    fn now(&self) -> Nanos {
        self.push.watch().clock().nanos()
    }

    /// Returns whether the stream goes on.
    fn follow(&mut self, read: impl FnOnce(&mut ObjectStream) -> Option<StreamItem>) -> Result<bool, ClientError> {
        let Some(stream) = &mut self.stream else {
            self.failures = self.failures.saturating_add(1);
            self.begin()?;
            return Ok(true);
        };
        let Some(event) = read(stream) else { return Ok(false) };
        self.take(event?);
        Ok(true)
    }

    /// Lists the objects if necessary, and opens the stream.
    fn begin(&mut self) -> Result<(), ClientError> {
        let (client, kind) = (Arc::clone(self.api.client()), self.api.kind().clone());
        let now = self.now();
        let _listing = self.source.begin(now, now.after(self.list_timeout));
        self.delivered = false;
        if self.from.is_none() {
            let Some(ObjectList { items, version, .. }) =
                list_all(&*client, &kind, &self.query, self.source.name(), &self.stop)?
            else {
                return Ok(());
            };
            let known = self.push.watch().store();
            let items = items.iter().filter_map(|object| {
                let key = object.key();
                match self.read(object) {
                    Some(value) => Some((key, Arc::new(value))),
                    None => known.get(&key).map(|value| (key, value)),
                }
            });
            self.push.replace_all_shared(&items.collect::<Vec<_>>());
            self.from = Some(version);
            self.source.succeeded();
        }
        self.stream = Some(client.watch(&kind, &self.query, self.from.as_deref(), &self.stop)?);
        self.began = self.now();
        self.source.resumed();
        Ok(())
    }

    fn take(&mut self, event: WatchEvent<SharedObject>) {
        if event.object().is_some() {
            self.failures = 0;
        }
        let version = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                if let Some(value) = self.read(&object) {
                    self.push.set(object.key(), value);
                }
                object.resource_version().to_owned()
            }
            WatchEvent::Deleted(object) => {
                match self.read(&object) {
                    Some(last) => self.push.remove_with(&object.key(), last),
                    None => self.push.remove(&object.key()),
                };
                object.resource_version().to_owned()
            }
            WatchEvent::Bookmark(version) => version,
        };
        self.from = Some(version);
        if !std::mem::replace(&mut self.delivered, true) {
            self.source.succeeded();
        }
    }

    fn read(&self, object: &SharedObject) -> Option<T> {
        let read = T::from_shared(object);
        read.inspect_err(|error| {
            let (source, object, shown) = (self.source.name(), object.key(), Chain(error));
            log::warn!(source, object:%, error:% = shown; "{source}: {object} does not match its type and is skipped: {shown}");
        })
        .ok()
    }
}

impl<T: Object> Follower<T> {
    /// Ends the stream, then the watch.
    fn end(&mut self) -> Next {
        self.stream = None;
        self.push.stop();
        Next::Finished
    }
}

impl<T: Object> Task for Follower<T> {
    fn step(&mut self, _now: Nanos) -> Next {
        if self.stop.is_cancelled() {
            return self.end();
        }
        let pause = self.advance(Iterator::next);
        Next::At(if pause.is_zero() { Nanos::ZERO } else { self.now().after(pause) })
    }

    #[cfg(feature = "testing")]
    fn due(&mut self, next: Nanos) -> Nanos {
        if self.stop.is_cancelled() {
            return Nanos::ZERO;
        }
        let Some(stream) = &mut self.stream else { return next };
        if self.polled.is_none() {
            self.polled = match catch_unwind(AssertUnwindSafe(|| stream.poll())) {
                Ok(Poll::Ready(item)) => Some(Ok(item)),
                Ok(Poll::Pending) => None,
                Err(panic) => Some(Err(panic)),
            };
        }
        if self.polled.is_some() { Nanos::ZERO } else { Nanos::NEVER }
    }

    /// Handles one event.
    #[cfg(feature = "testing")]
    fn take_turn(&mut self, _turn: &TurnContext<'_>) -> Next {
        if self.stop.is_cancelled() {
            return self.end();
        }
        let polled = self.polled.take();
        let pause = self.advance(|_| polled.and_then(|item| item.unwrap_or_else(|panic| resume_unwind(panic))));
        Next::At(self.now().after(pause))
    }
}

impl<T> fmt::Debug for ObjectWatch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectWatch").field("name", &self.name).field("query", &self.query).finish_non_exhaustive()
    }
}
