//! Watches of a client's objects: list them once, then follow the changes.

mod client_number;
mod driver;
mod machine;
#[cfg(all(test, not(loom)))]
mod tests;

use std::any::type_name;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::client_number::client_number;
use self::driver::{Transform, WatchDriver};
pub use self::machine::LONGEST_SILENCE;
use self::machine::WatchMachine;
use super::api::Api;
#[cfg(doc)]
use super::client::Client;
#[cfg(doc)]
use super::error::ClientError;
use super::key::ObjectKey;
use super::object::Object;
use super::own_writes::ShownObjects;
use super::query::Query;
use super::stable_hash::stable_hash;
use homeostat::base::{CancellationToken, Clock, Exponential, Running, StartError, ThreadOptions};
use homeostat::manager::Manager;
use homeostat::rt::{AutoResetEvent, ThreadGroup, ThreadGroupKind};
use homeostat::watch::Watch;

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

/// Returns the name of that watch. It is the same at each start of a program that uses its clients in the same order.
pub(crate) fn watch_name<U: Object>(api: &Api<U>, query: &Query) -> String {
    // The watch holds the client, so no other client can have the same number.
    let client = client_number(api.client()).to_string();
    let query = if *query == Query::all() { String::new() } else { format!("{query:?}") };
    format!("{}-{}", api.kind().plural(), stable_hash(&[&client, &api.kind().to_string(), type_name::<U>(), &query]))
}

/// A [`Watch`] of a client's objects. It lists them, then follows the changes on one thread for any number of
/// subscribers.
///
/// Objects are equal if their versions are equal. If the JSON of an object does not match the type, or if reading it
/// panics, the object keeps its last valid value. The watch logs this at *warn*, and the
/// [status](homeostat::watch::SourceStatus::undecodable) of the source has the number of such objects.
///
/// The last value of a deleted object is its last known state. It has a `deletionTimestamp` only if finalizers delayed
/// the deletion and the watch has seen that.
///
/// # Lists and streams
///
/// The watch of a [local](super::Capabilities::local) client begins with a list. Any other watch begins with a
/// [stream](Client::stream_list) of all objects. It lists them instead if its query has a [limit](Query::limit), if the
/// server cannot stream lists, or if the stream fails, sends no new object for 30 seconds, or takes more than five
/// minutes.
///
/// The first list may come from a cache of the server, and may be old. The newest list is read in pages of 500 objects.
///
/// # Failures
///
/// After any failure the store ends equal to a fresh list, and subscribers get each deletion. Until then the store
/// keeps the last known objects, and the source is not ready.
///
/// | event | the watch |
/// |---|---|
/// | a stream ends or fails | resumes at the last version: at once after a change, otherwise after a growing [delay](Self::backoff) |
/// | the client no longer knows that version ([gone](crate::ClientErrorKind::Gone)) | lists the objects and compares them with the store |
/// | a server was restored to an older state | takes the newest list. To notice this, it lists one object before it resumes a stream that has failed |
/// | a stream is silent for two minutes (five if it has sent no bookmark) | opens a new one. After two silent streams, it also lists the objects |
/// | a stream ignores its cancellation | shows that as a failure; the thread of the watch waits for the stream, also at a stop |
/// | a client repeats a call for more than five seconds | shows that as a failure of its source until the call succeeds |
/// | a server is [busy](crate::ClientErrorKind::TooManyRequests) | waits for the time that the server asks for, at most ten minutes |
/// | the kind is [no longer served](crate::ClientErrorKind::KindNotServed) | keeps its objects, and lists them when the kind is served again |
/// | any other error | retries after a growing delay |
///
/// A second thread, `<name>-watchdog`, ends silent streams.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Api, DynamicObject, Kind, MemoryClient, ObjectKey, ObjectWatch};
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
#[must_use = "a watch does nothing until `start` is called"]
#[doc(alias = "informer")]
#[doc(alias = "reflector")]
pub struct ObjectWatch<T> {
    api: Api<T>,
    query: Query,
    transform: Option<Transform<T>>,
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
        // Longer than the calls of `KubernetesClient`, which repeats reads for 90 s while a server is busy.
        let list_timeout = Duration::from_secs(180);
        Self { api, query, transform: None, name, clock, backoff, list_timeout, threads }
    }

    /// Watches only the objects that the query selects.
    ///
    /// The [limit](Query::limit) of the query is the page size of the list. If a page is gone before it is read, the
    /// watch lists all objects at once.
    pub fn query(self, query: Query) -> Self {
        Self { query, ..self }
    }

    /// Changes each object before the watch compares and keeps it. Use it to drop fields that the program does not
    /// need.
    ///
    /// The store and all events have the changed objects. Do not [update](Client::update) an object from such a watch:
    /// that would remove the dropped fields on the server. Instead patch or apply it, or get the whole object first.
    ///
    /// `transform` must not change the name, namespace, uid and version. If it panics, the object counts as one that
    /// does not match its type.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat_objects::{Api, DynamicObject, Kind, MemoryClient, Object, ObjectWatch};
    /// use std::sync::Arc;
    ///
    /// const POD: Kind = Kind::namespaced("", "v1", "Pod");
    /// let api = Api::<DynamicObject>::of_kind(Arc::new(MemoryClient::new()), POD);
    /// let pods = ObjectWatch::new(api).transform(|pod| {
    ///     pod.fields_mut().remove("status");
    ///     pod.meta_mut().annotations.clear();
    /// });
    /// let running = pods.start()?;
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    #[doc(alias = "SetTransform")]
    pub fn transform(self, transform: impl Fn(&mut T) + Send + Sync + 'static) -> Self {
        Self { transform: Some(Box::new(transform)), ..self }
    }

    /// Sets the name for log lines and for the thread (`<name>-0`). Default: the plural of the kind.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the clock of the watch and its subscriptions. Default: the system clock.
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Sets the delay before a retry, after the client fails or a stream ends soon without a change. Default: 0.8 s,
    /// doubled up to 30 s, with jitter. The first delay also separates short streams that have changes.
    pub fn backoff(self, backoff: Exponential) -> Self {
        Self { backoff, ..self }
    }

    /// Sets how long the client may take to list the objects and open the stream. Default: three minutes.
    ///
    /// After that, [`Manager::live`](homeostat::Manager::live) reports the watch. The call itself continues, because
    /// nothing can interrupt it.
    pub fn list_timeout(self, timeout: Duration) -> Self {
        Self { list_timeout: timeout, ..self }
    }

    /// Sets the options of the thread.
    pub fn thread_options(self, threads: ThreadOptions) -> Self {
        Self { threads, ..self }
    }

    /// Starts the watch. Returns at once; the store is [in sync](homeostat::Store::wait_synced) after the first
    /// listing.
    ///
    /// # Errors
    ///
    /// If the system cannot create a thread; in a simulation, if the client's streams are not
    /// [polled](super::ObjectStream::polled).
    pub fn start(self) -> Result<Running<Watch<ObjectKey, T>>, StartError> {
        let Self { api, query, transform, name, clock, backoff, list_timeout, threads } = self;
        let push = Watch::compared(T::has_version_of).name(name.clone()).clock(clock.clone()).push();
        let watch = push.watch().clone();
        let stop = CancellationToken::new();
        let shown = Arc::new(ShownObjects::new(&**api.client(), api.kind(), &query, watch.store(), stop.clone()));
        let own_writes = Arc::clone(&shown);
        watch.bring_gate(Box::new(move |gates| Arc::clone(&own_writes).bring_gate(gates)));
        let group = ThreadGroup::new(ThreadGroupKind::Watch, name, clock, 1);
        if group.clock.seed().is_some()
            && let Ok(stream) = api.client().watch(api.kind(), &query, None, &stop)
            && !stream.is_polled()
        {
            return Err(StartError::not_simulated(&format!("{}-0", group.name)));
        }
        let is_local = api.client().capabilities().local;
        let machine = WatchMachine::new(query.clone(), is_local, backoff, group.clock.draws());
        let driver = WatchDriver::new(api, query, machine, list_timeout, push.clone(), stop.clone(), &group);
        let driver = driver.transform(transform).shown(shown);
        let event = AutoResetEvent::new(watch.clock());
        let source = watch.name();
        log::info!(source; "{source}: the watch starts");
        // The streams of a local client need no deadline.
        let watchdog = (!is_local).then(|| driver::report_overruns(Arc::clone(watch.source_state())));
        let own = Arc::clone(&group);
        let on_stop = move || {
            push.stop();
            own.cancel_aside(&stop);
        };
        let handle = group.start_one(&threads, driver, event, watchdog, on_stop)?;
        Ok(Running::new(watch, handle, Duration::MAX))
    }
}

impl<T> fmt::Debug for ObjectWatch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectWatch").field("name", &self.name).field("query", &self.query).finish_non_exhaustive()
    }
}
