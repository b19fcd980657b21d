//! The sources of a controller's keys: pollers, and subscriptions to watches.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::source_list::RunningSource;
use crate::base::error::StartError;
use crate::base::task_thread::TaskWaker;
use crate::base::thread::ThreadOptions;
use crate::queue::{Key, WorkQueue};
use crate::run::context::Context;
use crate::run::error::BoxError;
use crate::run::gate::Gates;
use crate::watch::source::SourceHandle;
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
            let gate = watch.gate_source().and_then(|source| Arc::clone(source).open(target.gates));
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
