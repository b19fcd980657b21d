//! A watch that is fed by a poller: each poll is a whole listing.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::core::{Same, WatchCore};
use super::push::Producer;
use super::source::SourceHandle;
use super::{Watch, WatchProducer};
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::running::Running;
use crate::base::thread::ThreadOptions;
use crate::base::wait::Latch;
use crate::queue::Key;
use crate::run::context::Context;
use crate::run::error::BoxError;
use crate::watch::poller::{Poller, PollerControl};

/// Watches the items that a listing function returns, at a fixed rate.
///
/// Each listing is compared with the stored items, and the changes are delivered to the subscribers of the [`Watch`]. A key
/// that is no longer listed is deleted.
///
/// The first listing that succeeds is the initial list. If a listing fails or panics, it is logged and changes nothing: the
/// items are not treated as deleted. As with a [`Poller`], each listing has a deadline of one period, and the next one comes as
/// planned.
///
/// # Examples
///
/// ```
/// use homeostat::{Context, Predicate, Subscriber, WorkQueue};
/// use homeostat::watch::PollWatch;
/// use std::time::Duration;
///
/// fn list(_cx: &Context) -> std::io::Result<Vec<(String, u64)>> {
///     Ok(vec![("vm-1".to_owned(), 4)]) // a name and what is to be watched of it
/// }
///
/// let vms = PollWatch::new(Duration::from_secs(30), list).name("vms").start()?;
/// let queue = WorkQueue::<String>::new();
/// let subscription = vms.watch().subscribe(Subscriber::to_itself(&queue))?;
/// assert_eq!(*queue.dequeue()?, "vm-1");
/// vms.shutdown(Duration::from_secs(1));
/// # drop(subscription);
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[must_use = "a watch does nothing until it is started"]
pub struct PollWatch<K, T> {
    poller: Poller<List<K, T>>,
    same: Same<T>,
}

type List<K, T> = Box<dyn FnMut(&Context) -> Result<Vec<(K, Arc<T>)>, BoxError> + Send>;

impl<K: Key + Sync, T: Send + Sync + 'static> PollWatch<K, T> {
    /// Calls `list` every `period`, the first time at once. An item that equals its last value makes no event.
    pub fn new<I, E>(period: Duration, list: impl FnMut(&Context) -> Result<I, E> + Send + 'static) -> Self
    where
        I: IntoIterator<Item = (K, T)>,
        E: Into<BoxError>,
        T: PartialEq,
    {
        Self::with(period, list, Box::new(T::eq))
    }

    /// As [`new`](Self::new), but compares values by their versions.
    ///
    /// ```
    /// use homeostat::Context;
    /// use homeostat::watch::PollWatch;
    /// use std::time::Duration;
    ///
    /// struct Vm { revision: u64, load: f64 }
    ///
    /// let list = |_cx: &Context| Ok::<_, std::io::Error>([("vm-1", Vm { revision: 1, load: 0.2 })]);
    /// let watch = PollWatch::versioned(Duration::from_secs(5), list, |vm: &Vm| vm.revision).start()?;
    /// assert!(watch.watch().store().wait_synced(Duration::from_secs(10)));
    /// # Ok::<_, homeostat::StartError>(())
    /// ```
    pub fn versioned<I, E, V>(
        period: Duration,
        list: impl FnMut(&Context) -> Result<I, E> + Send + 'static,
        version: impl Fn(&T) -> V + Send + Sync + 'static,
    ) -> Self
    where
        I: IntoIterator<Item = (K, T)>,
        E: Into<BoxError>,
        V: PartialEq,
    {
        Self::with(period, list, Box::new(move |one, other| version(one) == version(other)))
    }

    fn with<I, E>(
        period: Duration,
        mut list: impl FnMut(&Context) -> Result<I, E> + Send + 'static,
        same: Same<T>,
    ) -> Self
    where
        I: IntoIterator<Item = (K, T)>,
        E: Into<BoxError>,
    {
        // Collects the whole list before any comparison: half a list would delete the other half.
        let list: List<K, T> = Box::new(move |cx| match list(cx) {
            Ok(items) => Ok(items.into_iter().map(|(key, value)| (key, Arc::new(value))).collect()),
            Err(error) => Err(error.into()),
        });
        Self { poller: Poller::new(period, list).name("watch"), same }
    }

    /// Sets the name for log lines. Default: `watch`. It also names the threads (`<name>-0`, `<name>-watchdog`) and prefixes
    /// the default names of subscriptions.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.poller = self.poller.name(name);
        self
    }

    /// Sets the clock of the watch and its subscriptions. Default: the system clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.poller = self.poller.clock(clock);
        self
    }

    /// Sets the jitter: see [`Poller::jitter`].
    pub fn jitter(mut self, share: f64) -> Self {
        self.poller = self.poller.jitter(share);
        self
    }

    /// Delays the first listing by one period: see [`Poller::first_after_period`].
    pub fn first_after_period(mut self) -> Self {
        self.poller = self.poller.first_after_period();
        self
    }

    /// Sets the grace period for a listing at shutdown: see [`Poller::shutdown_grace`].
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.poller = self.poller.shutdown_grace(grace);
        self
    }

    /// Sets how the threads are made.
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.poller = self.poller.thread_options(options);
        self
    }

    /// Starts the watch and its poller.
    ///
    /// # Errors
    ///
    /// If the name contains a NUL character, the period is zero, the jitter is not between 0 and 1, or the system cannot start
    /// a thread.
    pub fn start(self) -> Result<Running<PollWatchControl<K, T>>, StartError> {
        let Self { poller, same } = self;
        let core = WatchCore::new(poller.name.clone(), poller.clock.clone(), same);
        // The poller has its own latch: a listing that comes after the stop must not open the latch of the store.
        let source = SourceHandle::new(&core.source, &Latch::new(core.clock.clone()));
        let producer = Producer(Arc::clone(&core));
        let deliver = move |items: Vec<(K, Arc<T>)>| {
            let counts = producer.0.replace_all(&items);
            counts.created + counts.updated + counts.unchanged
        };
        let stopped = Arc::clone(&core);
        let control = |poller| PollWatchControl { poller, watch: Watch { core } };
        poller.with_source(source).start_with(deliver, move || stopped.stop(), control)
    }
}

impl<K, T> fmt::Debug for PollWatch<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollWatch").field("poller", &self.poller).finish_non_exhaustive()
    }
}

/// The methods of a running [`PollWatch`], which its handle [`Running<PollWatchControl<K, T>>`](Running) derefs to. It derefs to
/// the control of the poller, whose polls are the listings.
///
/// # Examples
///
/// ```
/// use homeostat::Context;
/// use homeostat::watch::PollWatch;
/// use std::time::Duration;
///
/// let list = |_cx: &Context| Ok::<_, std::io::Error>([("vm-1", 4)]);
/// let hourly = PollWatch::new(Duration::from_secs(3600), list).first_after_period().start()?;
/// hourly.trigger();
/// assert!(hourly.watch().store().wait_synced(Duration::from_secs(10)));
/// hourly.shutdown(Duration::from_secs(1));
/// # Ok::<_, homeostat::StartError>(())
/// ```
pub struct PollWatchControl<K, T> {
    poller: PollerControl,
    watch: Watch<K, T>,
}

impl<K: Key + Sync, T: Send + Sync + 'static> PollWatchControl<K, T> {
    /// Returns the watch.
    #[must_use]
    pub fn watch(&self) -> &Watch<K, T> {
        &self.watch
    }
}

impl<K, T> Deref for PollWatchControl<K, T> {
    type Target = PollerControl;

    fn deref(&self) -> &PollerControl {
        &self.poller
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> WatchProducer<K, T> for Running<PollWatchControl<K, T>> {
    fn watch(&self) -> &Watch<K, T> {
        PollWatchControl::watch(self)
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> fmt::Debug for PollWatchControl<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollWatchControl")
            .field("watch", &self.watch)
            .field("poller", &self.poller)
            .finish_non_exhaustive()
    }
}
