//! Where a controller's keys come from: pollers, and subscriptions to watches.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::crew::{Crew, StillRunning};
use crate::error::StartError;
use crate::poller::{Poller, PollerHandle};
use crate::queue::{Key, WorkQueue};
use crate::reconcile::context::Context;
use crate::reconcile::error::BoxError;
use crate::wait::Gate;
use crate::watch::{Event, Subscriber, Subscription, Watch};

/// Where the keys of a controller are to come from. A [`ControllerBuilder`](crate::ControllerBuilder) has the same methods; this is
/// for what adds sources to a controller that somebody else builds.
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
    pub(super) starts: Vec<Start<K>>,
    /// The first one with a setting that makes no sense.
    pub(super) bad: Option<StartError>,
    /// Whether one of them can name all keys that there are.
    pub(super) knows_keys: bool,
}

impl<K: Key + Sync + fmt::Debug> Sources<K> {
    /// None yet.
    pub fn new() -> Self {
        Self { starts: Vec::new(), bad: None, knows_keys: false }
    }

    /// See [`ControllerBuilder::poll`](crate::ControllerBuilder::poll).
    pub fn poll<I, E>(&mut self, period: Duration, list: impl FnMut(&Context) -> Result<I, E> + Send + 'static)
    where
        I: IntoIterator<Item = K> + 'static,
        E: Into<BoxError> + 'static,
    {
        self.poller(Poller::new(period, list));
    }

    /// See [`ControllerBuilder::poller`](crate::ControllerBuilder::poller).
    pub fn poller<F, I, E>(&mut self, poller: Poller<F>)
    where
        F: FnMut(&Context) -> Result<I, E> + Send + 'static,
        I: IntoIterator<Item = K> + 'static,
        E: Into<BoxError> + 'static,
    {
        if let Err(error) = poller.check() {
            self.bad.get_or_insert(error);
        }
        self.starts.push(Box::new(move |target| {
            let handle = poller.name(target.name.clone()).start(target.queue)?;
            Ok(Box::new(handle) as Box<dyn Source>)
        }));
    }

    /// See [`ControllerBuilder::watch`](crate::ControllerBuilder::watch).
    pub fn watch<J, T, I>(&mut self, watch: &Watch<J, T>, keys: impl FnMut(&Event<J, T>) -> I + Send + 'static)
    where
        J: Key + Sync,
        T: Send + Sync + 'static,
        I: IntoIterator<Item = K> + 'static,
    {
        self.subscribe(watch, move |queue| Subscriber::to(queue, keys));
    }

    /// See [`ControllerBuilder::subscribe`](crate::ControllerBuilder::subscribe).
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
            let mut subscriber = subscriber(target.queue).name(target.name.clone());
            if let Some((quiet, max_wait)) = target.debounce {
                subscriber = subscriber.debounced(quiet, max_wait);
            }
            Ok(Box::new(watch.subscribe(subscriber)?) as Box<dyn Source>)
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

/// A source that runs.
pub(super) trait Source: Send {
    fn name(&self) -> &str;

    /// Open once its initial listing is in line.
    fn gate(&self) -> Arc<Gate>;

    /// Its thread.
    fn crew(&self) -> &Arc<Crew>;

    /// Names all keys that it knows. A poller knows none.
    fn resync(&self) {}

    /// `None`: it has no period.
    fn change_period(&self, _period: Duration) -> Option<Result<(), StartError>> {
        None
    }

    fn stop(&self);
    fn abort(&self);
    fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning>;
    fn detach(self: Box<Self>);
}

/// A source that is to be started, with the number it has in its controller.
pub(super) type Start<K> = Box<dyn FnOnce(&Target<'_, K>) -> Result<Box<dyn Source>, StartError> + Send>;

/// What a source feeds.
pub(super) struct Target<'a, K: Key> {
    pub(super) queue: &'a WorkQueue<K>,
    /// The name of the source.
    pub(super) name: String,
    pub(super) debounce: Option<(Duration, Duration)>,
}

impl Source for PollerHandle {
    fn name(&self) -> &str {
        PollerHandle::name(self)
    }

    fn gate(&self) -> Arc<Gate> {
        Arc::clone(self.listed())
    }

    fn crew(&self) -> &Arc<Crew> {
        self.crew()
    }

    fn change_period(&self, period: Duration) -> Option<Result<(), StartError>> {
        Some(PollerHandle::set_period(self, period))
    }

    fn stop(&self) {
        PollerHandle::stop(self);
    }

    fn abort(&self) {
        PollerHandle::abort(self);
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning> {
        PollerHandle::join_timeout(self, timeout)
    }

    fn detach(self: Box<Self>) {
        PollerHandle::detach(*self);
    }
}

impl Source for Subscription {
    fn name(&self) -> &str {
        Subscription::name(self)
    }

    fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.synced)
    }

    fn crew(&self) -> &Arc<Crew> {
        self.crew()
    }

    fn resync(&self) {
        Subscription::resync(self);
    }

    fn stop(&self) {
        Subscription::stop(self);
    }

    fn abort(&self) {
        Subscription::stop(self);
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning> {
        Subscription::join_timeout(self, timeout)
    }

    fn detach(self: Box<Self>) {
        Subscription::detach(*self);
    }
}
