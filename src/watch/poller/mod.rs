//! A poller: lists keys at a fixed rate, and enqueues them or feeds a watch.

mod polling;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::polling::PollerSettings;
use super::core::Same;
use super::source::SourceHandle;
use super::source_state::{KeySource, SourceState};
use super::{Watch, WatchBuilder};
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::running::Running;
use crate::base::task_thread::TaskWaker;
use crate::base::thread::ThreadOptions;
use crate::base::wait::Latch;
use crate::queue::{Enqueue, EnqueueMethod, EnqueueRequest, Key, Priority, Reasons};
use crate::run::context::Context;
use crate::run::error::BoxError;

/// Calls a listing function at a fixed rate, and enqueues the keys that it returns.
///
/// Keys are enqueued with [`enqueue_if_absent`](Enqueue::enqueue_if_absent), unless [`edge`](Self::edge) is set. A
/// function that lists keys with values can feed a [`Watch`] instead: see [`watch`](Self::watch).
///
/// Polls begin at multiples of the period after the start, or after the last [`set_period`](SourceHandle::set_period).
/// A poll that would begin while another one runs is skipped. The listing function receives a [`Context`] with a
/// deadline: one period after the beginning of the poll.
///
/// After an error or a panic, the next poll starts as planned. The [`SourceHandle`] reports failures. In a series of
/// failures, the first, second, fourth and so on are logged, errors as warnings and panics as errors; the others are
/// logged at debug. The poll that ends the series is logged at info.
///
/// # Examples
///
/// ```
/// use homeostat::{Poller, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// let poller = Poller::new(Duration::from_secs(30), |_cx| Ok::<_, std::io::Error>(vec!["vm-1", "vm-2"])).start(&queue)?;
/// assert_eq!(*queue.dequeue()?, "vm-1");
/// poller.shutdown(Duration::ZERO);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a poller does nothing until `start` or `watch` is called"]
#[doc(alias = "feeder")]
pub struct Poller<I> {
    list: List<I>,
    settings: PollerSettings,
    /// The handle of the poller's health, once it exists.
    source: Option<SourceHandle>,
}

type List<I> = Box<dyn FnMut(&Context) -> Result<I, BoxError> + Send>;

impl<I: 'static> Poller<I> {
    /// Calls `list` every `period`, the first time at once.
    pub fn new<E: Into<BoxError>>(
        period: Duration,
        mut list: impl FnMut(&Context) -> Result<I, E> + Send + 'static,
    ) -> Self {
        let settings = PollerSettings {
            name: "poller".to_owned(),
            period,
            thread_name: None,
            controller: None,
            jitter: 0.0,
            first_after: false,
            retry: None,
            method: EnqueueMethod::EnqueueIfAbsent,
            priority: Priority::Normal,
            clock: Clock::system(),
            grace: Duration::from_secs(30),
            threads: None,
            watchdog: None,
        };
        Self { list: Box::new(move |cx| list(cx).map_err(Into::into)), settings, source: None }
    }

    /// Sets the name for log lines, status, metrics and threads: `<name>-0`, and `<name>-watchdog` outside a manager or
    /// controller. Default: `poller`. It also prefixes the default names of subscriptions to a [watch](Self::watch).
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// Makes the poller a source of this controller, and sets the name of its threads.
    pub(crate) fn of_controller(mut self, controller: &str, thread_name: String) -> Self {
        self.settings.controller = Some(controller.to_owned());
        self.settings.thread_name = Some(thread_name);
        self
    }

    /// Delays each poll by a random time of up to `share` of the period. Use it to keep many pollers from polling at
    /// once. The schedule itself does not drift. `share` is between 0 (the default) and 1.
    pub fn jitter(mut self, share: f64) -> Self {
        self.settings.jitter = share;
        self
    }

    /// Delays the first poll by one period.
    pub fn first_after_period(mut self) -> Self {
        self.settings.first_after = true;
        self
    }

    /// Repeats a failed poll after `delay`, if that is before the next planned poll. With this setting, the poller
    /// counts as synced once its first poll has ended, even if that poll failed: a service that is down does not keep a
    /// controller from all other work.
    pub fn retry_failed(mut self, delay: Duration) -> Self {
        self.settings.retry = Some(delay);
        self
    }

    /// Enqueues keys with [`enqueue`](Enqueue::enqueue): a key that is being processed runs again. Use it if the
    /// function lists changed keys.
    pub fn edge(mut self) -> Self {
        self.settings.method = EnqueueMethod::Enqueue;
        self
    }

    /// Sets the priority level of the keys. Default: normal.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.settings.priority = priority;
        self
    }

    /// Sets the clock of the poller, or of its watch and subscriptions. Default: the system clock. A poller of a
    /// controller uses the clock of the controller.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.settings.clock = clock;
        self
    }

    /// Sets how long a running poll may continue after its handle is dropped. After that, the poll is aborted. Default:
    /// 30 s.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// Sets the options of the poller's threads. Default: the options of its controller, or the platform's options
    /// without a controller.
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.settings.threads = Some(options);
        self
    }

    /// Runs the watchdog on the thread of `timer`. Sets the thread options, unless the user has set them.
    pub(crate) fn in_pool(mut self, timer: &TaskWaker, options: &ThreadOptions) -> Self {
        self.settings.watchdog = Some(timer.clone());
        self.settings.threads.get_or_insert_with(|| options.clone());
        self
    }

    /// Checks the name and the settings.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        self.settings.check()
    }

    /// Returns the handle of the poller's health. The handle has the name and the clock that are set by now. The poller
    /// counts as synced once the first listing has been enqueued.
    pub(crate) fn source(&mut self) -> SourceHandle {
        let PollerSettings { name, controller, clock, .. } = &mut self.settings;
        let new =
            || SourceHandle::new(&SourceState::new(name, controller.take(), clock.clone()), &Latch::new(clock.clone()));
        self.source.get_or_insert_with(new).clone()
    }

    /// Starts polling into `to`.
    ///
    /// # Errors
    ///
    /// If the name contains a NUL character, the period is zero, the jitter is not between 0 and 1, or the system
    /// cannot start a thread.
    pub fn start<K, Q>(self, to: &Q) -> Result<Running<SourceHandle>, StartError>
    where
        I: IntoIterator<Item = K>,
        Q: Enqueue<K> + Clone + Send + 'static,
        K: 'static,
    {
        self.start_source(to).map(|(_, running)| running)
    }

    /// Starts polling into `to`, as the source of a controller.
    pub(crate) fn start_source<K, Q>(
        mut self,
        to: &Q,
    ) -> Result<(Arc<dyn KeySource>, Running<SourceHandle>), StartError>
    where
        I: IntoIterator<Item = K>,
        Q: Enqueue<K> + Clone + Send + 'static,
        K: 'static,
    {
        let (to, source) = (to.clone(), self.source());
        let request = EnqueueRequest::new(self.settings.method).at(self.settings.priority).because(Reasons::POLL);
        let deliver = move |keys: I| to.request_all(&mut keys.into_iter(), request).total();
        let list = polling::list_and_deliver(self.list, deliver);
        self.settings.start(&source, list, || {}, source.clone())
    }
}

impl<I> fmt::Debug for Poller<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PollerSettings { name, period, jitter, method, priority, .. } = &self.settings;
        f.debug_struct("Poller")
            .field("name", name)
            .field("period", period)
            .field("jitter", jitter)
            .field("method", method)
            .field("priority", priority)
            .finish_non_exhaustive()
    }
}

impl<I: 'static> Poller<I> {
    /// Starts a watch of the items that the function lists.
    ///
    /// Each listing is compared with the stored items, and the changes are delivered to the subscribers of the
    /// [`Watch`]. An item that equals its last value makes no event. A key that is no longer listed is deleted.
    ///
    /// The first listing that succeeds is the initial list. If a listing fails or panics, it is logged and changes
    /// nothing: the items are not treated as deleted. The watch stops with the poller. [`edge`](Self::edge) and
    /// [`priority`](Self::priority) have no effect: the [`Subscriber`](crate::Subscriber) decides how keys are
    /// enqueued.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat::{Context, Poller, Subscriber, WorkQueue};
    /// use std::time::Duration;
    ///
    /// fn list(_cx: &Context) -> std::io::Result<Vec<(String, u64)>> {
    ///     Ok(vec![("vm-1".to_owned(), 4)]) // a name and what is to be watched of it
    /// }
    ///
    /// let vms = Poller::new(Duration::from_secs(30), list).name("vms").watch()?;
    /// let queue = WorkQueue::<String>::new();
    /// let subscription = vms.subscribe(Subscriber::to_itself(&queue))?;
    /// assert_eq!(*queue.dequeue()?, "vm-1");
    /// vms.shutdown(Duration::from_secs(1))?;
    /// # drop(subscription);
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn watch<K, T>(self) -> Result<Running<Watch<K, T>>, StartError>
    where
        I: IntoIterator<Item = (K, T)>,
        K: Key + Sync,
        T: PartialEq + Send + Sync + 'static,
    {
        self.watch_by(Box::new(T::eq))
    }

    /// Starts a watch like [`watch`](Self::watch), but compares values by their versions.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    ///
    /// ```
    /// use homeostat::{Context, Poller};
    /// use std::time::Duration;
    ///
    /// struct Vm { revision: u64, load: f64 }
    ///
    /// let list = |_cx: &Context| Ok::<_, std::io::Error>([("vm-1", Vm { revision: 1, load: 0.2 })]);
    /// let vms = Poller::new(Duration::from_secs(5), list).watch_versioned(|vm| vm.revision)?;
    /// assert!(vms.store().wait_synced(Duration::from_secs(10)));
    /// # Ok::<_, homeostat::StartError>(())
    /// ```
    pub fn watch_versioned<K, T, V: PartialEq>(
        self,
        version: impl Fn(&T) -> V + Send + Sync + 'static,
    ) -> Result<Running<Watch<K, T>>, StartError>
    where
        I: IntoIterator<Item = (K, T)>,
        K: Key + Sync,
        T: Send + Sync + 'static,
    {
        self.watch_by(Box::new(move |one, other| version(one) == version(other)))
    }

    fn watch_by<K, T>(self, same: Same<T>) -> Result<Running<Watch<K, T>>, StartError>
    where
        I: IntoIterator<Item = (K, T)>,
        K: Key + Sync,
        T: Send + Sync + 'static,
    {
        let settings = &self.settings;
        let push = WatchBuilder::with(same).name(settings.name.as_str()).clock(settings.clock.clone()).push();
        let watch = push.watch().clone();
        // The poller has its own latch: a listing that returns after the stop must not set the latch of the store.
        let source = SourceHandle::new(watch.source_state(), &Latch::new(watch.clock()));
        let stopped = Arc::clone(&watch.core);
        let deliver = move |items: I| {
            // Collects the whole list before any comparison: half a list would delete the other half.
            let counts = push.replace_all(items);
            counts.created + counts.updated + counts.unchanged
        };
        let list = polling::list_and_deliver(self.list, deliver);
        Ok(self.settings.start(&source, list, move || stopped.stop(), watch)?.1)
    }
}
