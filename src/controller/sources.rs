//! The sources of a controller's keys: pollers, and subscriptions to watches.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::StartError;
use crate::base::running::{Runnable, RunningPhase};
use crate::base::sync::Mutex;
use crate::base::task_thread::TaskWaker;
use crate::base::thread::ThreadOptions;
use crate::base::wait::Latch;
use crate::queue::{Key, WorkQueue};
use crate::run::context::Context;
use crate::run::error::BoxError;
use crate::run::gate::Gates;
use crate::watch::source::SourceHandle;
use crate::watch::source_state::KeySource;
use crate::watch::{Event, Poller, Subscriber, Watch};

/// A list of sources for a controller.
///
/// A [`ControllerBuilder`](crate::controller::ControllerBuilder) has the same methods. Use this type to return sources
/// from a function, or to [add them](crate::ControllerHandle::add_sources) to a running controller.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Controller, Sources, Watch};
///
/// let disks = Watch::<&str, &str>::push(); // a disk names its VM
/// let mut sources = Sources::new();
/// sources.watch(disks.watch(), |event| event.value().copied());
///
/// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let controller = Controller::builder("vm", reconcile).sources(sources).build()?;
/// # Ok::<_, homeostat::StartError>(())
/// ```
#[must_use = "sources do nothing until a controller has them"]
pub struct Sources<K: Key> {
    pub(super) starts: Vec<SourceStart<K>>,
    /// The error of the first source with an invalid setting.
    pub(super) bad: Option<StartError>,
    /// Whether a source can list all keys. Watches can, pollers cannot.
    pub(super) knows_keys: bool,
}

impl<K: Key + Sync + fmt::Debug> Sources<K> {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self { starts: Vec::new(), bad: None, knows_keys: false }
    }

    /// Adds a poller; see [`ControllerBuilder::poll`](crate::controller::ControllerBuilder::poll).
    pub fn poll<I, E>(&mut self, period: Duration, list: impl FnMut(&Context) -> Result<I, E> + Send + 'static)
    where
        I: IntoIterator<Item = K> + 'static,
        E: Into<BoxError>,
    {
        self.poller(Poller::new(period, list));
    }

    /// Adds a poller with its own settings; see
    /// [`ControllerBuilder::poller`](crate::controller::ControllerBuilder::poller).
    pub fn poller<I: IntoIterator<Item = K> + 'static>(&mut self, poller: Poller<I>) {
        if let Err(error) = poller.check() {
            self.bad.get_or_insert(error);
        }
        self.starts.push(Box::new(move |target| {
            let poller =
                poller.of_controller(target.controller, target.thread_name.clone()).clock(target.queue.clock());
            let (source, running) = poller.in_pool(target.timer, target.options).start_source(target.queue)?;
            let handle = SourceHandle::clone(&running);
            Ok((RunningSource { source, running: Box::new(running), gate: None }, handle))
        }));
    }

    /// Adds a watch; see [`ControllerBuilder::watch`](crate::controller::ControllerBuilder::watch).
    pub fn watch<J, T, I>(&mut self, watch: &Watch<J, T>, keys: impl FnMut(&Event<J, T>) -> I + Send + 'static)
    where
        J: Key + Sync,
        T: Send + Sync + 'static,
        I: IntoIterator<Item = K> + 'static,
    {
        self.subscribe(watch, move |queue| Subscriber::to(queue, keys));
    }

    /// Adds a watch with a subscriber; see
    /// [`ControllerBuilder::subscribe`](crate::controller::ControllerBuilder::subscribe).
    pub fn subscribe<J, T>(
        &mut self,
        watch: &Watch<J, T>,
        subscriber: impl FnOnce(&WorkQueue<K>) -> Subscriber<J, T> + Send + 'static,
    ) where
        J: Key + Sync,
        T: Send + Sync + 'static,
    {
        let watch = watch.clone();
        self.knows_keys = true;
        self.starts.push(Box::new(move |target| {
            let mut subscriber = subscriber(target.queue).or_thread_options(target.options);
            let name = subscriber.name.take().unwrap_or_else(|| watch.name().to_owned());
            subscriber = subscriber.name(target.thread_name.clone());
            if let Some((quiet, max_wait)) = target.debounce {
                subscriber = subscriber.debounced(quiet, max_wait);
            }
            if watch.polls_outside(&target.queue.clock()) {
                return Err(StartError::named("watch", watch.name(), "polls by another clock than its simulation"));
            }
            let gate = watch.gate_bringer().and_then(|bring| bring(target.gates));
            let subscription = watch.subscribe(subscriber)?;
            let handle = watch.source().named(&name).synced_by(subscription.synced());
            let source = Arc::clone(&subscription.source);
            Ok((RunningSource { source, running: Box::new(subscription), gate }, handle))
        }));
    }

    pub(super) fn append(&mut self, others: Self) {
        self.starts.extend(others.starts);
        self.bad = self.bad.take().or(others.bad);
        self.knows_keys |= others.knows_keys;
    }
}

impl<K: Key + Sync + fmt::Debug> Default for Sources<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key> fmt::Debug for Sources<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("len", &self.starts.len()).field("bad", &self.bad).finish_non_exhaustive()
    }
}

/// Starts a source. Its handle counts as synced once the initial listing has been enqueued.
pub(super) type SourceStart<K> =
    Box<dyn FnOnce(&Target<'_, K>) -> Result<(RunningSource, SourceHandle), StartError> + Send>;

/// The queue and settings for a source.
pub(super) struct Target<'a, K: Key> {
    pub(super) queue: &'a WorkQueue<K>,
    pub(super) gates: &'a Gates,
    /// The name of the controller.
    pub(super) controller: &'a str,
    /// The base of the source's thread names.
    pub(super) thread_name: String,
    pub(super) debounce: Option<(Duration, Duration)>,
    /// The options for a source without thread options.
    pub(super) options: &'a ThreadOptions,
    /// The thread of the watchdogs.
    pub(super) timer: &'a TaskWaker,
}

/// The sources of one controller. Sources can be added and removed while it runs.
#[derive(Default)]
pub(super) struct SourceList(Mutex<SourceEntries>);

#[derive(Default)]
struct SourceEntries {
    /// All sources that were started, except removed ones that have been joined.
    entries: Vec<SourceEntry>,
    /// The number of sources that were ever started.
    started: usize,
}

struct SourceEntry {
    handle: SourceHandle,
    /// Set when the source has ended.
    ended: Arc<Latch>,
    /// `None` once the threads of the source have been joined.
    running: Option<RunningSource>,
    removed: bool,
}

/// A started source.
pub(super) struct RunningSource {
    pub(super) source: Arc<dyn KeySource>,
    pub(super) running: Box<dyn Runnable>,
    /// The gate that a watch brings. Kept while the source reads that watch.
    pub(super) gate: Option<Box<dyn Any + Send + Sync>>,
}

impl SourceEntries {
    fn running(&self) -> impl Iterator<Item = &RunningSource> {
        self.entries.iter().filter_map(|entry| entry.running.as_ref())
    }

    /// Takes the sources for which `select` returns true, to join them without the lock.
    fn take(&mut self, select: impl Fn(&RunningSource) -> bool) -> Vec<RunningSource> {
        let entries = self.entries.iter_mut();
        let taken = entries.filter_map(|entry| entry.running.take_if(|source| select(source))).collect();
        self.entries.retain(|entry| !entry.removed || entry.running.is_some());
        taken
    }
}

impl RunningSource {
    fn has_ended(&self) -> bool {
        self.running.status().phase == RunningPhase::Ended
    }
}

/// The state of the initial listings.
pub(super) enum Syncing {
    Synced,
    /// The initial listings of these sources are missing.
    Missing(Vec<SourceHandle>),
    /// The source with this name ended before its initial listing was complete.
    Ended(String),
}

/// The changes that each source has accepted at one time.
#[derive(Default)]
pub(super) struct AcceptedChanges(Vec<(Arc<dyn KeySource>, u64)>);

impl AcceptedChanges {
    /// Returns whether all these changes have been enqueued.
    pub(super) fn are_enqueued(&self) -> bool {
        self.0.iter().all(|(source, accepted)| source.progress().has_enqueued(*accepted))
    }
}

impl SourceList {
    /// Returns the number of the next source.
    pub(super) fn next_number(&self) -> usize {
        let mut entries = self.0.lock();
        entries.started += 1;
        entries.started - 1
    }

    /// Adds a source, unless `is_closed` returns true under the lock. Makes the name of its handle unique. The latch is
    /// set when the source ends.
    pub(super) fn add(
        &self,
        source: RunningSource,
        handle: SourceHandle,
        ended: Arc<Latch>,
        is_closed: impl FnOnce() -> bool,
    ) -> Result<SourceHandle, RunningSource> {
        let SourceEntries { entries, .. } = &mut *self.0.lock();
        if is_closed() {
            return Err(source);
        }
        let handle = with_own_name(handle, entries);
        entries.push(SourceEntry { handle: handle.clone(), ended, running: Some(source), removed: false });
        Ok(handle)
    }

    /// Stops the source with this name and removes it. Returns a latch that is set when the source has ended. `None` if
    /// there is no such source.
    pub(super) fn remove(&self, name: &str) -> Option<Arc<Latch>> {
        let (ended, removed) = {
            let mut list = self.0.lock();
            let mut entries = list.entries.iter_mut();
            let entry = entries.find(|entry| !entry.removed && entry.handle.name() == name)?;
            entry.removed = true;
            let removed = entry.running.as_mut().map(|running| (Arc::clone(&running.source), running.gate.take()));
            (Arc::clone(&entry.ended), removed)
        };
        // Without the lock: the end drops the source's values and its mapping, which may use the controller.
        if let Some((source, _gate)) = removed {
            source.end(false);
        }
        Some(ended)
    }

    /// Aborts the removed source with this latch. Returns the names of its threads that have not ended.
    pub(super) fn abort_removed(&self, ended: &Arc<Latch>) -> Vec<String> {
        let find = |list: &SourceEntries| {
            let entry = list.entries.iter().find(|entry| Arc::ptr_eq(&entry.ended, ended))?;
            let RunningSource { source, running, .. } = entry.running.as_ref()?;
            Some((Arc::clone(source), running.status().threads))
        };
        let found = find(&self.0.lock());
        // Without the lock: the cancellation of a listing may call user code.
        if let Some((source, _)) = found {
            source.end(true);
        }
        find(&self.0.lock()).map(|(_, threads)| threads).unwrap_or_default()
    }

    /// Lets no source begin another listing. Runs no user code.
    pub(super) fn close(&self) {
        self.0.lock().running().for_each(|source| source.running.close());
    }

    /// Returns the sources that have not been removed, including ended ones.
    pub(super) fn handles(&self) -> Vec<SourceHandle> {
        let list = self.0.lock();
        list.entries.iter().filter(|entry| !entry.removed).map(|entry| entry.handle.clone()).collect()
    }

    /// A removed source is marked under the lock before it ends, so it does not count as ended here.
    pub(super) fn syncing(&self) -> Syncing {
        let list = self.0.lock();
        let sources = || list.entries.iter().filter(|entry| !entry.removed).map(|entry| &entry.handle);
        if let Some(ended) = sources().find(|source| source.synced().is_given_up()) {
            return Syncing::Ended(ended.name().to_owned());
        }
        let missing: Vec<_> = sources().filter(|source| !source.synced().is_open()).cloned().collect();
        if missing.is_empty() { Syncing::Synced } else { Syncing::Missing(missing) }
    }

    /// Calls `call` for each source, without the lock: it may run mappings or drop values, which may use the
    /// controller.
    pub(super) fn for_each(&self, call: impl Fn(&dyn KeySource)) {
        let sources: Vec<_> = self.0.lock().running().map(|source| Arc::clone(&source.source)).collect();
        for source in sources {
            call(&*source);
        }
    }

    pub(super) fn detach(&self) {
        for source in self.0.lock().entries.iter_mut().filter_map(|entry| entry.running.as_mut()) {
            source.running.detach();
        }
    }

    /// Returns the names of the threads that have not ended.
    pub(super) fn threads(&self) -> Vec<String> {
        self.0.lock().running().flat_map(|source| source.running.status().threads).collect()
    }

    /// Sets the period of all pollers. Returns whether there are any.
    pub(super) fn set_period(&self, period: Duration) -> bool {
        self.0.lock().running().fold(false, |is_set, source| source.source.set_period(period) | is_set)
    }

    /// Returns the changes that the sources have accepted by now.
    pub(super) fn accepted(&self) -> AcceptedChanges {
        let list = self.0.lock();
        let entries = list.entries.iter().filter(|entry| !entry.removed);
        let sources = entries.filter_map(|entry| Some(&entry.running.as_ref()?.source));
        AcceptedChanges(sources.map(|source| (Arc::clone(source), source.progress().accepted())).collect())
    }

    /// Returns whether any source has not ended, without counting a source that the caller runs in.
    pub(super) fn run_elsewhere(&self) -> bool {
        self.0.lock().running().any(|source| !source.has_ended() && !source.source.is_current())
    }

    /// Joins all sources. Does not wait for a source that the caller runs in.
    pub(super) fn join(&self) {
        let sources = self.0.lock().take(|_| true);
        join(sources);
    }

    /// Joins the ended sources.
    pub(super) fn join_ended(&self) {
        let ended = self.0.lock().take(RunningSource::has_ended);
        join(ended);
    }
}

/// Joins sources. Call it without the lock: a join drops the source's values, which is user code.
fn join(sources: Vec<RunningSource>) {
    for mut source in sources {
        drop(source.running.join());
    }
}

/// Gives a source a unique name among `others`.
fn with_own_name(source: SourceHandle, others: &[SourceEntry]) -> SourceHandle {
    let is_taken = |name: &str| others.iter().any(|other| !other.removed && other.handle.name() == name);
    let (mut name, mut number) = (source.name().to_owned(), 1);
    while is_taken(&name) {
        number += 1;
        name = format!("{}-{number}", source.name());
    }
    source.named(&name)
}
