//! The objects of a client as a watch: listed once, then followed.

use std::any::type_name;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde_json::Value;

use super::api::Api;
use super::client::{ObjectStream, StreamItem, WatchEvent};
use super::error::ClientError;
use super::json::{key_of, text_of};
use super::key::ObjectKey;
use super::object::Object;
use super::pager::list_all;
use super::query::{ObjectList, Query};
use super::stable_hash::stable_hash;
use crate::base::backoff::Exponential;
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::group::{Handle, StillRunning, ThreadGroup, ThreadGroupKind};
use crate::base::thread::{Body, Cue, Panic, Player, ThreadOptions, panic_message};
use crate::base::time::Nanos;
use crate::manager::{Component, Manager};
use crate::run::context::Context;
use crate::run::error::Chain;
use crate::watch::fed::Fed;
use crate::watch::source::SourceState;
use crate::watch::{Push, Watch, WatchBuilder, WatchProducer};

/// The watch of these objects that all of a manager share: one for each client, type and query.
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

/// The name of that watch.
pub(crate) fn watch_name<U: Object>(api: &Api<U>, query: &Query) -> String {
    // The watch holds the client, so no other one can come to its address.
    let client = format!("{:p}", Arc::as_ptr(api.client()));
    let query = if *query == Query::all() { String::new() } else { format!("{query:?}") };
    format!("{}-{}", api.kind().plural(), stable_hash(&[&client, &api.kind().to_string(), type_name::<U>(), &query]))
}

/// A [`Watch`] of the objects of a client: it lists them, follows what changes, and goes on from there when it is interrupted. It lists
/// them again where the client no longer knows what has changed since, and tries again later, ever more so, where the client
/// fails. One thread, however many subscribe.
///
/// Objects are the same if their versions are. One whose JSON is not of the type is named in the log, and what was known of it
/// stays. The last value of a deleted object is its last state: with a `deletionTimestamp`, unless it has been
/// [purged](super::DeleteOptions::purge) or had gone before it was listed again.
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
    /// A watch of all objects of an [`Api`].
    pub fn new(api: Api<T>) -> Self {
        let name = api.kind().plural().into_owned();
        // As client-go's reflector does.
        let backoff = Exponential::new(Duration::from_millis(800), Duration::from_secs(30));
        let (query, clock, threads) = (Query::all(), Clock::system(), ThreadOptions::new());
        Self { api, query, name, clock, backoff, list_timeout: Duration::from_secs(60), threads }
    }

    /// Watches only what this selects. Its [limit](Query::limit) is the size of the pages in which it lists. If
    /// a page is gone before it is read, the watch lists all objects at once.
    pub fn query(self, query: Query) -> Self {
        Self { query, ..self }
    }

    /// The name in log lines, and of its thread (`<name>-0`). Default: the plural of the kind.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The clock that it and its subscriptions go by. Default: the system's.
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// How long it waits before it tries again after a failure of the client, or after a stream that ended soon and without a change.
    /// Default: 0.8 s, doubled up to 30 s.
    pub fn backoff(self, backoff: Exponential) -> Self {
        Self { backoff, ..self }
    }

    /// How long the client may take to list the objects and to open the stream of changes. After that
    /// [`Manager::live`](crate::Manager::live) reports the watch; the call goes on, because nothing can interrupt it. Default: one
    /// minute.
    pub fn list_timeout(self, timeout: Duration) -> Self {
        Self { list_timeout: timeout, ..self }
    }

    /// How its thread is made.
    pub fn thread_options(self, threads: ThreadOptions) -> Self {
        Self { threads, ..self }
    }

    /// Starts it. Returns at once: the store is [in sync](crate::Store::wait_synced) when the first list is in.
    ///
    /// # Errors
    ///
    /// If the system gives no thread; in a simulation, if the client's streams are not [polled](super::ObjectStream::polled).
    pub fn start(self) -> Result<ObjectWatchHandle<T>, StartError> {
        let Self { api, query, name, clock, backoff, list_timeout, threads } = self;
        let same = |one: &T, other: &T| one.meta().resource_version == other.meta().resource_version;
        let push = WatchBuilder::with(Box::new(same)).name(name.clone()).clock(clock.clone()).push();
        let watch = push.watch().clone();
        let stop = CancellationToken::new();
        let group = ThreadGroup::new(ThreadGroupKind::Watch, name, clock, 1);
        if group.clock.scheduler().is_some()
            && let Ok(stream) = api.client().watch(api.kind(), &query, None, &stop)
            && !stream.is_polled()
        {
            return Err(StartError::not_simulated(&group.seats[0].name));
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
            told: false,
            began: Nanos::ZERO,
            failures: 0,
        };
        let source = watch.name();
        log::info!(source; "{source}: the watch starts");
        let joiners = group.start_one(&threads, follower, None)?;
        let handle = Handle::new(group, joiners, Box::new(move || stop.cancel()), Duration::MAX);
        Ok(ObjectWatchHandle(Fed::new(handle, push, false)))
    }
}

/// What its thread does.
struct Follower<T: Object> {
    api: Api<T>,
    query: Query,
    backoff: Exponential,
    list_timeout: Duration,
    /// Where it writes down how it is doing.
    source: Arc<SourceState>,
    push: Push<ObjectKey, T>,
    stop: CancellationToken,
    /// Up to which version the objects are known; `None`: they are to be listed.
    from: Option<String>,
    /// What follows them from there.
    stream: Option<ObjectStream>,
    /// The stream has told something.
    told: bool,
    /// When the stream was begun.
    began: Nanos,
    /// How many tries have brought no change, one after the other.
    failures: u32,
}

impl<T: Object> Follower<T> {
    /// Begins to follow the objects, or does so by one event, which is what `read` makes of the stream. Returns how long to leave
    /// the client alone.
    fn step(&mut self, read: impl FnOnce(&mut ObjectStream) -> Option<StreamItem>) -> Duration {
        let ended = match catch_unwind(AssertUnwindSafe(|| self.follow(read))) {
            Ok(Ok(true)) => return Duration::ZERO,
            ended => ended,
        };
        let lasted = self.stream.as_ref().map_or(Duration::ZERO, |_| self.now().since(self.began));
        self.stream = None;
        if self.stop.is_cancelled() && ended.is_ok() {
            // That may be why.
            return Duration::ZERO;
        }
        let failed = !matches!(ended, Ok(Ok(_)));
        match ended {
            Ok(Ok(_)) if self.told => {}
            Ok(Ok(_)) => self.source.ended_untold(),
            Ok(Err(error)) if error.is_gone() && self.from.is_some() => {
                let (source, shown) = (self.source.name(), Chain(&error));
                log::info!(source, error:% = shown; "{source}: the objects are listed again: {shown}");
                self.from = None;
            }
            Ok(Err(error)) => self.source.failed(Chain(&error).to_string()),
            Err(panic) => {
                // The objects are listed again.
                self.source.panicked(panic_message(&*panic));
                self.from = None;
            }
        }
        self.pause(lasted, failed)
    }

    /// How long to leave the client alone after a stream that lasted this long. Only changes are progress, not bookmarks: a stream
    /// that ends after each bookmark would be begun without end. A stream that lasted longer than the pause is progress too.
    fn pause(&mut self, lasted: Duration, failed: bool) -> Duration {
        if self.failures > 0 && lasted >= self.backoff.delay(self.failures) {
            self.failures = u32::from(failed);
        }
        if self.failures > 0 { self.backoff.delay(self.failures) } else { Duration::ZERO }
    }

    fn now(&self) -> Nanos {
        self.push.watch().clock().nanos()
    }

    /// Returns whether there is more to come.
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

    /// Lists the objects if need be, and follows them from there.
    fn begin(&mut self) -> Result<(), ClientError> {
        let (client, kind) = (Arc::clone(self.api.client()), self.api.kind().clone());
        let now = self.now();
        let _listing = self.source.begin(now, now.after(self.list_timeout));
        self.told = false;
        if self.from.is_none() {
            let Some(ObjectList { items, version, .. }) =
                list_all(&*client, &kind, &self.query, self.source.name(), &self.stop)?
            else {
                return Ok(());
            };
            let known = self.push.watch().store();
            let items = items.iter().filter_map(|json| {
                let key = key_of(json);
                match self.read(json) {
                    Some(object) => Some((key, Arc::new(object))),
                    None => known.get(&key).map(|object| (key, object)),
                }
            });
            self.push.replace_all_shared(items.collect());
            self.from = Some(version);
            self.source.succeeded();
        }
        self.stream = Some(client.watch(&kind, &self.query, self.from.as_deref(), &self.stop)?);
        self.began = self.now();
        self.source.resumed();
        Ok(())
    }

    fn take(&mut self, event: WatchEvent<Arc<Value>>) {
        if event.object().is_some() {
            self.failures = 0;
        }
        let version = match event {
            WatchEvent::Added(json) | WatchEvent::Modified(json) => {
                if let Some(object) = self.read(&json) {
                    self.push.set(key_of(&json), object);
                }
                text_of(&json, "resourceVersion").to_owned()
            }
            WatchEvent::Deleted(json) => {
                match self.read(&json) {
                    Some(last) => self.push.remove_with(&key_of(&json), last),
                    None => self.push.remove(&key_of(&json)),
                };
                text_of(&json, "resourceVersion").to_owned()
            }
            WatchEvent::Bookmark(version) => version,
        };
        self.from = Some(version);
        if !std::mem::replace(&mut self.told, true) {
            self.source.succeeded();
        }
    }

    fn read(&self, json: &Value) -> Option<T> {
        let read = T::from_json(json);
        read.inspect_err(|error| {
            let (source, object, shown) = (self.source.name(), key_of(json), Chain(error));
            log::warn!(source, object:%, error:% = shown; "{source}: {object} is not of its type: {shown}");
        })
        .ok()
    }
}

impl<T: Object> Body for Follower<T> {
    fn run(mut self) {
        let cx = Context::detached_with(self.push.watch().clock(), self.stop.clone());
        while !self.stop.is_cancelled() {
            let pause = self.step(Iterator::next);
            if !pause.is_zero() && cx.sleep(pause).is_err() {
                break;
            }
        }
        // The stream ends before the watch does.
        self.stream = None;
        self.push.stop();
    }

    fn into_player(self) -> Option<Box<dyn Player>> {
        Some(Box::new(Following { follower: self, told: None, again_at: Nanos::ZERO }))
    }
}

/// The same in turns: a turn is one event.
struct Following<T: Object> {
    follower: Follower<T>,
    /// What the stream has told, or panicked with, and nobody has taken.
    told: Option<Result<Option<StreamItem>, Panic>>,
    again_at: Nanos,
}

impl<T: Object> Player for Following<T> {
    fn due(&mut self) -> Nanos {
        let Self { follower: Follower { stream, stop, .. }, told, again_at } = self;
        let Some(stream) = stream.as_mut().filter(|_| !stop.is_cancelled()) else {
            return if stop.is_cancelled() { Nanos::ZERO } else { *again_at };
        };
        if told.is_none() {
            *told = match catch_unwind(AssertUnwindSafe(|| stream.poll())) {
                Ok(Poll::Ready(next)) => Some(Ok(next)),
                Ok(Poll::Pending) => None,
                Err(panic) => Some(Err(panic)),
            };
        }
        if told.is_some() { Nanos::ZERO } else { Nanos::NEVER }
    }

    fn play(&mut self, _cue: &Cue<'_>) -> bool {
        if self.follower.stop.is_cancelled() {
            self.follower.push.stop();
            return false;
        }
        let told = self.told.take();
        let pause = self.follower.step(|_| told.and_then(|told| told.unwrap_or_else(|panic| resume_unwind(panic))));
        // The client may have waited.
        self.again_at = self.follower.push.watch().clock().nanos().after(pause);
        true
    }
}

/// An [`ObjectWatch`] that runs. Dropping it stops it and joins its thread. A [`Manager`] takes it, and shares it by
/// name among those who ask for it ([`Manager::watch`](crate::Manager::watch)).
#[must_use = "dropping the handle stops the watch"]
pub struct ObjectWatchHandle<T: Object>(Fed<ObjectKey, T>);

impl<T: Object> ObjectWatchHandle<T> {
    /// The watch.
    #[must_use]
    pub fn watch(&self) -> &Watch<ObjectKey, T> {
        self.0.watch()
    }

    /// Stops it, also while it blocks on the client's stream. Returns at once.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Waits for at most `timeout`, by the watch's clock, until it has ended.
    ///
    /// # Errors
    ///
    /// [`StillRunning`] if it has not ended by then.
    pub fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning> {
        self.0.join_timeout(timeout)
    }

    /// Stops it and joins its thread.
    pub fn shutdown(self) {
        drop(self);
    }

    /// Lets it run on for as long as the process does.
    pub fn detach(mut self) {
        self.0.detach();
    }
}

impl<T: Object> WatchProducer<ObjectKey, T> for ObjectWatchHandle<T> {
    fn watch(&self) -> &Watch<ObjectKey, T> {
        self.0.watch()
    }
}

impl<T: Object> From<ObjectWatchHandle<T>> for Component {
    fn from(watch: ObjectWatchHandle<T>) -> Self {
        watch.0.into()
    }
}

impl<T> fmt::Debug for ObjectWatch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectWatch").field("name", &self.name).field("query", &self.query).finish_non_exhaustive()
    }
}

impl<T: Object> fmt::Debug for ObjectWatchHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug("ObjectWatchHandle", f)
    }
}
