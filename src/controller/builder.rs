//! The settings of a controller.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::observers::EndedRun;
use super::rate::{check_max_concurrent, check_rate};
use super::sources::Sources;
use super::state::{ControllerState, StateSettings};
use super::{Controller, StartSettings, Unstarted};
use crate::base::backoff::Exponential;
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::thread::ThreadOptions;
use crate::queue::{Key, WorkQueue};
use crate::run::context::Context;
use crate::run::error::{BoxError, terminal};
use crate::run::gate::{Gate, ResyncForGates};
use crate::run::reconciler::{Reconciler, RetryPolicy};
use crate::run::runner::{Reconcile, boxed};
use crate::watch::{Event, Poller, Subscriber, Watch};

/// The settings of a [`Controller`].
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Controller};
///
/// let reconcile = |_cx: &Context, _vm: &String| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// let error = Controller::builder("vm", reconcile).max_concurrent_reconciles(0).build().unwrap_err();
/// assert_eq!(error.to_string(), "max_concurrent_reconciles is 0, but must be at least 1");
/// ```
#[must_use = "settings do nothing until `build` is called"]
pub struct ControllerBuilder<K: Key> {
    state: StateSettings<K>,
    start: StartSettings,
    reconcile: Reconcile<K>,
    policy: Box<dyn RetryPolicy<K>>,
    min_interval: Duration,
    sources: Sources<K>,
}

impl<K: Key + Sync + fmt::Debug> ControllerBuilder<K> {
    pub(super) fn new<R: Reconciler<K> + 'static>(name: String, reconciler: R) -> Self {
        Self {
            state: StateSettings {
                name,
                clock: Clock::system(),
                timeout: None,
                max_concurrent: 1,
                resync: None,
                rate: None,
                max_failed_keys: 10_000,
                unready_after: None,
                gates: Vec::new(),
                observers: Vec::new(),
            },
            start: StartSettings {
                debounce: None,
                sync_timeout: Duration::from_secs(120),
                own_threads: None,
                grace: Duration::from_secs(30),
                options: None,
            },
            reconcile: boxed(reconciler),
            policy: Box::new(Exponential::default()),
            min_interval: Duration::ZERO,
            sources: Sources::new(),
        }
    }

    /// Sets the number of keys that may run at once. Default: 1.
    #[doc(alias = "concurrency")]
    pub fn max_concurrent_reconciles(mut self, runs: usize) -> Self {
        self.state.max_concurrent = runs;
        self
    }

    /// Sets the time limit of a run. After that time, its context is cancelled. Default: no limit.
    ///
    /// A run that ends promptly counts as [timed out](crate::run::WorkersMetrics::timeouts). A run that is still active
    /// 100 ms later is an overrun: it is reported and keeps its key, and a spare thread takes its place (see
    /// [`WorkerPool`](crate::WorkerPool)).
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Self {
        self.state.timeout = Some(timeout);
        self
    }

    /// Sets the retry policy. Default: [`Exponential::default`]. A change runs a failed key early, but only after the
    /// policy's [floor](RetryPolicy::floor).
    pub fn retry(mut self, policy: impl RetryPolicy<K> + 'static) -> Self {
        self.policy = Box::new(policy);
        self
    }

    /// Sets the shortest time from the end of a key's run to the start of its next run. Default: zero.
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.min_interval = interval;
        self
    }

    /// Delays changes from watches until their key has been `quiet` for this long, but at most for `max_wait` after the
    /// first change. In backoff, the run also waits for the [floor](RetryPolicy::floor). Default: no delay.
    pub fn debounce(mut self, quiet: Duration, max_wait: Duration) -> Self {
        self.start.debounce = Some((quiet, max_wait));
        self
    }

    /// Every `interval`, runs all keys that the watches know, at low priority. Default: never.
    ///
    /// A resync calls the mappings of the watches on a thread of the pool, once one is free. While the controller is
    /// suspended, the resync waits. The first resync is one interval after the start. Keys that are queued, running, in
    /// backoff or debounced stay as they are.
    pub fn resync(mut self, interval: Duration) -> Self {
        self.state.resync = Some(interval);
        self
    }

    /// Limits the rate of runs over all keys: `burst` at once, and `per_second` in the long run.
    ///
    /// A run that starts late because all threads were busy does not delay later runs. One more than `burst` may then
    /// start at once. Default: no limit.
    pub fn rate_limit(mut self, per_second: f64, burst: u32) -> Self {
        self.state.rate = Some((per_second, burst));
        self
    }

    /// Sets the time limit for the initial listings. The controller fails if they are not complete by then. Default:
    /// two minutes.
    pub fn sync_timeout(mut self, timeout: Duration) -> Self {
        self.start.sync_timeout = timeout;
        self
    }

    /// Sets the time that a source may fail before [`Manager::ready`](crate::Manager::ready) reports the controller.
    /// Default: the [manager's bound](crate::manager::ManagerBuilder::unready_after).
    pub fn unready_after(mut self, bound: Duration) -> Self {
        self.state.unready_after = Some(bound);
        self
    }

    /// Adds a poller: calls `list` every `period`, and enqueues each key that is absent
    /// ([`enqueue_if_absent`](crate::Enqueue::enqueue_if_absent)).
    ///
    /// For a reconciler with `path: &PathBuf`, `list` returns `Ok::<_, BoxError>(paths)`, where `paths` is a
    /// `Vec<PathBuf>`. Without the type of the error, `rustc` reports E0283.
    pub fn poll<I, E>(mut self, period: Duration, list: impl FnMut(&Context) -> Result<I, E> + Send + 'static) -> Self
    where
        I: IntoIterator<Item = K> + 'static,
        E: Into<BoxError>,
    {
        self.sources.poll(period, list);
        self
    }

    /// Adds a poller with its own settings. Status, errors, logs and metrics show its [name](Poller::name), with a
    /// number if another source has that name (`poller-2`). Its threads are named after the controller.
    pub fn poller<I: IntoIterator<Item = K> + 'static>(mut self, poller: Poller<I>) -> Self {
        self.sources.poller(poller);
        self
    }

    /// Adds a watch: enqueues the keys that `keys` returns for each event. If the keys are those of the watch, that is
    /// `|event| event.key().cloned()`: an event may have no key.
    ///
    /// If a [`Push`](crate::watch::Push) feeds the watch, call its [`synced`](crate::watch::Push::synced) or
    /// [`replace_all`](crate::watch::Push::replace_all). No key runs before that, and after the
    /// [`sync_timeout`](Self::sync_timeout) the controller fails.
    pub fn watch<J, T, I>(mut self, watch: &Watch<J, T>, keys: impl FnMut(&Event<J, T>) -> I + Send + 'static) -> Self
    where
        J: Key + Sync,
        T: Send + Sync + 'static,
        I: IntoIterator<Item = K> + 'static,
    {
        self.sources.watch(watch, keys);
        self
    }

    /// Adds a watch with a subscriber: for other mappings, predicates, enqueue methods and priorities. `subscriber`
    /// gets the queue to feed. Status, errors, logs and metrics show the subscriber's [name](Subscriber::name), by
    /// default the watch's, with a number if another source has that name (`watch-2`).
    ///
    /// ```
    /// use homeostat::{Action, BoxError, Context, Controller, Predicate, Subscriber, Watch};
    ///
    /// let disks = Watch::<&str, (&str, u64)>::push(); // a disk's VM and size
    /// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    /// let controller = Controller::builder("vm", reconcile)
    ///     .subscribe(disks.watch(), |vms| {
    ///         let owner = Subscriber::to_owner(vms, |_disk, (vm, _size): &(&str, u64)| [*vm]);
    ///         owner.when(Predicate::changed_by(|(_vm, size): &(&str, u64)| *size)).secondary()
    ///     })
    ///     .build()?;
    /// # Ok::<_, homeostat::StartError>(())
    /// ```
    pub fn subscribe<J, T>(
        mut self,
        watch: &Watch<J, T>,
        subscriber: impl FnOnce(&WorkQueue<K>) -> Subscriber<J, T> + Send + 'static,
    ) -> Self
    where
        J: Key + Sync,
        T: Send + Sync + 'static,
    {
        self.sources.subscribe(watch, subscriber);
        self
    }

    /// Adds these sources.
    pub fn sources(mut self, sources: Sources<K>) -> Self {
        self.sources.append(sources);
        self
    }

    /// Checks each key before the reconciler is called. A key that fails the check is parked with the error.
    pub fn validate<E: Into<BoxError>>(mut self, valid: impl Fn(&K) -> Result<(), E> + Send + Sync + 'static) -> Self {
        let reconcile = self.reconcile;
        self.reconcile = Box::new(move |cx, key| {
            valid(key).map_err(terminal)?;
            reconcile(cx, key)
        });
        self
    }

    /// Calls `observer` at the end of each run; see
    /// [`ControllerHandle::observe_runs`](super::ControllerHandle::observe_runs).
    pub fn observe_runs(mut self, observer: impl Fn(&EndedRun<'_>) + Send + Sync + 'static) -> Self {
        self.state.observers.push(Arc::new(observer));
        self
    }

    /// Adds a gate, which decides whether a key may run now. `new` creates it when the controller is built, and is
    /// called with the queue of the controller and a [resync for its gates](ResyncForGates).
    ///
    /// Gates are asked in the order in which they were added, after the suspended keys, and before a gate that a watch
    /// brings.
    pub fn gate<G: Gate>(
        mut self,
        new: impl FnOnce(&WorkQueue<K>, &ResyncForGates) -> Arc<G> + Send + 'static,
    ) -> Self {
        self.state.gates.push(Box::new(move |queue, resync| new(queue, resync)));
        self
    }

    /// Sets how many parked keys, and how many failing keys, keep their errors. The latest failures are kept.
    ///
    /// Other failing keys are only counted. Other parked keys are forgotten, so that they take no memory. An error
    /// takes about 1,024 bytes at most. Default: 10,000 of each.
    pub fn max_failed_keys(mut self, keys: usize) -> Self {
        self.state.max_failed_keys = keys;
        self
    }

    /// Runs the keys on this number of dedicated threads instead of the shared pool.
    ///
    /// Does not raise [`max_concurrent_reconciles`](Self::max_concurrent_reconciles): with its default of 1, one of the
    /// threads works at a time.
    pub fn own_threads(mut self, threads: usize) -> Self {
        self.start.own_threads = Some(threads);
        self
    }

    /// Sets the clock of the controller and its sources. The pool must use the same clock. Default: the system clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.state.clock = clock;
        self
    }

    /// Sets how long active runs may continue after the running controller is dropped. After that, they are aborted.
    /// Default: 30 s.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.start.grace = grace;
        self
    }

    /// Sets the options of the controller's threads, including the threads of its sources and of
    /// [`own_threads`](Self::own_threads).
    ///
    /// A [`Poller`] or [`Subscriber`] with its own options keeps them. Default: the platform's options; in a manager,
    /// the [manager's](crate::manager::ManagerBuilder::thread_options).
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.start.options = Some(options);
        self
    }

    /// Builds the controller.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] for an empty or invalid name, zero runs or threads, a timeout or interval of zero, a
    /// `max_wait` shorter than `quiet`, a rate that is not positive, or an invalid source. A resync without a watch is
    /// an error too, because only watches know the keys.
    pub fn build(mut self) -> Result<Controller<K>, StartError> {
        self.check()?;
        if let Some(error) = self.sources.bad.take() {
            return Err(error);
        }
        let Self { state, start, reconcile, policy, min_interval, sources } = self;
        let queue = WorkQueue::builder()
            .name(state.name.clone())
            .clock(state.clock.clone())
            .floor(policy.floor())
            .min_interval(min_interval)
            .thread_options(start.options.clone().unwrap_or_default())
            .timing(true);
        let unstarted = Unstarted { state: ControllerState::new(state, queue), started: false };
        Ok(Controller { unstarted, start, reconcile, policy, sources: sources.starts })
    }

    fn check(&self) -> Result<(), StartError> {
        StartError::check_required_name(&self.state.name)?;
        check_max_concurrent(self.state.max_concurrent)?;
        StartError::check_threads("own_threads", self.start.own_threads.unwrap_or(1), 1)?;
        let times = [
            ("reconcile_timeout", self.state.timeout),
            ("resync", self.state.resync),
            ("sync_timeout", Some(self.start.sync_timeout)),
            ("quiet", self.start.debounce.map(|(quiet, _)| quiet)),
        ];
        for (field, time) in times {
            time.map_or(Ok(()), |time| StartError::check_time(field, time))?;
        }
        if let Some((quiet, max_wait)) = self.start.debounce
            && max_wait < quiet
        {
            return Err(StartError::setting("max_wait", &max_wait, "no shorter than quiet"));
        }
        check_rate(self.state.rate)?;
        if self.state.resync.is_some() && !self.sources.knows_keys {
            return Err(StartError::named("controller", &self.state.name, "has a resync, but no watch"));
        }
        Ok(())
    }
}

impl<K: Key> fmt::Debug for ControllerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerBuilder")
            .field("name", &self.state.name)
            .field("max_concurrent_reconciles", &self.state.max_concurrent)
            .field("reconcile_timeout", &self.state.timeout)
            .field("sources", &self.sources)
            .finish_non_exhaustive()
    }
}
