//! The settings of a controller.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::job::{Checked, ControllerJob, ErrorHook, RunFailure, RunRecorder, Validate};
use super::rate::{check_max_concurrent, check_rate};
use super::source::Sources;
use super::state::{ControllerState, NewGate, StateSettings};
use super::{Controller, Unstarted};
use crate::base::backoff::Exponential;
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::thread::ThreadOptions;
use crate::queue::{Key, WorkQueue};
use crate::run::context::Context;
use crate::run::error::BoxError;
use crate::run::gate::{Gate, GateHost};
use crate::run::policy::RetryPolicy;
use crate::run::reconciler::Reconciler;
use crate::run::runner::boxed;
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
#[must_use = "settings do nothing until the controller is built"]
pub struct ControllerBuilder<K: Key, R, P = Exponential> {
    name: String,
    reconciler: R,
    policy: P,
    clock: Clock,
    max_concurrent: usize,
    timeout: Option<Duration>,
    min_interval: Duration,
    debounce: Option<(Duration, Duration)>,
    resync: Option<Duration>,
    rate: Option<(f64, u32)>,
    sync_timeout: Duration,
    unready_after: Option<Duration>,
    sources: Sources<K>,
    valid: Option<Validate<K>>,
    on_error: Option<ErrorHook<K>>,
    max_failed_keys: usize,
    gates: Vec<NewGate<K>>,
    own_threads: Option<usize>,
    grace: Duration,
    options: Option<ThreadOptions>,
}

impl<K: Key + Sync + fmt::Debug, R> ControllerBuilder<K, R> {
    pub(super) fn new(name: String, reconciler: R) -> Self {
        Self {
            name,
            reconciler,
            policy: Exponential::default(),
            clock: Clock::system(),
            max_concurrent: 1,
            timeout: None,
            min_interval: Duration::ZERO,
            debounce: None,
            resync: None,
            rate: None,
            sync_timeout: Duration::from_secs(120),
            unready_after: None,
            sources: Sources::new(),
            valid: None,
            on_error: None,
            max_failed_keys: 10_000,
            gates: Vec::new(),
            own_threads: None,
            grace: Duration::from_secs(30),
            options: None,
        }
    }
}

// `build` has the bounds of `R` and `P`. Here they would turn a mistake in a closure into "no method named".
impl<K: Key + Sync + fmt::Debug, R, P> ControllerBuilder<K, R, P> {
    /// Sets the number of keys that may run at once. Default: 1.
    #[doc(alias = "concurrency")]
    pub fn max_concurrent_reconciles(mut self, runs: usize) -> Self {
        self.max_concurrent = runs;
        self
    }

    /// Sets the time limit of a run. After that time, its context is cancelled. Default: no limit.
    ///
    /// A run that ends promptly counts as [timed out](crate::run::WorkersMetrics::timeouts). A run that is still active
    /// 100 ms later is an overrun: it is reported and keeps its key, and a spare thread takes its place (see
    /// [`WorkerPool`](crate::WorkerPool)).
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the retry policy. Default: [`Exponential::default`]. A change runs a failed key early, but only after the
    /// policy's [floor](RetryPolicy::floor).
    pub fn retry<Q: RetryPolicy<K>>(self, policy: Q) -> ControllerBuilder<K, R, Q> {
        ControllerBuilder {
            name: self.name,
            reconciler: self.reconciler,
            policy,
            clock: self.clock,
            max_concurrent: self.max_concurrent,
            timeout: self.timeout,
            min_interval: self.min_interval,
            debounce: self.debounce,
            resync: self.resync,
            rate: self.rate,
            sync_timeout: self.sync_timeout,
            unready_after: self.unready_after,
            sources: self.sources,
            valid: self.valid,
            on_error: self.on_error,
            max_failed_keys: self.max_failed_keys,
            gates: self.gates,
            own_threads: self.own_threads,
            grace: self.grace,
            options: self.options,
        }
    }

    /// Sets the shortest time from the end of a key's run to the start of its next run. Default: zero.
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.min_interval = interval;
        self
    }

    /// Delays changes from watches until their key has been `quiet` for this long, but at most for `max_wait` after the
    /// first change. In backoff, the run also waits for the [floor](RetryPolicy::floor). Default: no delay.
    pub fn debounce(mut self, quiet: Duration, max_wait: Duration) -> Self {
        self.debounce = Some((quiet, max_wait));
        self
    }

    /// Every `interval`, runs all keys that the watches know, at low priority. Default: never.
    ///
    /// A resync calls the mappings of the watches on the control thread of the pool. Mappings must be quick: a slow one
    /// delays the syncs and resyncs of all controllers of the pool, and a warning says so. Give a controller with slow
    /// mappings [its own threads](Self::own_threads). The first resync is one interval after the start. Keys that are
    /// queued, running, in backoff or debounced stay as they are.
    pub fn resync(mut self, interval: Duration) -> Self {
        self.resync = Some(interval);
        self
    }

    /// Limits the rate of runs over all keys: `burst` at once, and `per_second` in the long run.
    ///
    /// A run that starts late because all threads were busy does not delay later runs. One more than `burst` may then
    /// start at once. Default: no limit.
    pub fn rate_limit(mut self, per_second: f64, burst: u32) -> Self {
        self.rate = Some((per_second, burst));
        self
    }

    /// Sets the time limit for the initial listings. The controller fails if they are not complete by then. Default:
    /// two minutes.
    pub fn sync_timeout(mut self, timeout: Duration) -> Self {
        self.sync_timeout = timeout;
        self
    }

    /// Sets the time that a source may fail before [`Manager::ready`](crate::Manager::ready) reports the controller.
    /// Default: the [manager's bound](crate::manager::ManagerBuilder::unready_after).
    pub fn unready_after(mut self, bound: Duration) -> Self {
        self.unready_after = Some(bound);
        self
    }

    /// Adds a poller: calls `list` every `period`, and enqueues each key that is absent
    /// ([`enqueue_if_absent`](crate::Enqueue::enqueue_if_absent)).
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

    /// Adds a watch: enqueues the keys that `keys` returns for each event.
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
        self.valid = Some(Box::new(move |key| valid(key).map_err(Into::into)));
        self
    }

    /// Calls `hook` for every error and panic of a run, after the retry was decided.
    ///
    /// The hook runs on the thread of the run, without a lock. A panic of the hook is logged.
    pub fn on_error(mut self, hook: impl Fn(&RunFailure<'_, K>) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Box::new(hook));
        self
    }

    /// Adds a gate, which decides whether a key may run now. `new` creates it when the controller is built.
    ///
    /// Gates are asked in the order in which they were added, after the suspended keys, and before a gate that a watch
    /// brings.
    pub fn gate<G: Gate>(mut self, new: impl FnOnce(&GateHost<K>) -> Arc<G> + Send + 'static) -> Self {
        self.gates.push(Box::new(move |host| new(host)));
        self
    }

    /// Sets how many parked keys, and how many failing keys, keep their errors. The latest failures are kept.
    ///
    /// Other failing keys are only counted. Other parked keys are forgotten, so that they take no memory. An error
    /// takes at most 1,024 bytes. Default: 10,000 of each.
    pub fn max_failed_keys(mut self, keys: usize) -> Self {
        self.max_failed_keys = keys;
        self
    }

    /// Runs the keys on this number of dedicated threads instead of the shared pool.
    pub fn own_threads(mut self, threads: usize) -> Self {
        self.own_threads = Some(threads);
        self
    }

    /// Sets the clock of the controller and its sources. The pool must use the same clock. Default: the system clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets how long active runs may continue after the running controller is dropped. After that, they are aborted.
    /// Default: 30 s.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the options of the controller's threads, including the threads of its sources and of
    /// [`own_threads`](Self::own_threads).
    ///
    /// A [`Poller`] or [`Subscriber`] with its own options keeps them. Default: the platform's options; in a manager,
    /// the [manager's](crate::manager::ManagerBuilder::thread_options).
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Builds the controller.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] for an empty or invalid name, zero runs or threads, a timeout or interval of zero, a
    /// `max_wait` shorter than `quiet`, a rate that is not positive, or an invalid source. A resync without a watch is
    /// an error too, because only watches know the keys.
    pub fn build(mut self) -> Result<Controller<K>, StartError>
    where
        R: Reconciler<K> + 'static,
        P: RetryPolicy<K> + 'static,
    {
        self.check()?;
        if let Some(error) = self.sources.bad.take() {
            return Err(error);
        }
        let Self { reconciler, policy, valid, on_error, .. } = self;
        let queue = WorkQueue::builder()
            .name(self.name.clone())
            .clock(self.clock.clone())
            .floor(policy.floor())
            .min_interval(self.min_interval)
            .thread_options(self.options.clone().unwrap_or_default())
            .timing(true);
        let state = ControllerState::new(StateSettings {
            name: self.name,
            queue,
            clock: self.clock,
            timeout: self.timeout,
            max_concurrent: self.max_concurrent,
            resync: self.resync,
            rate: self.rate,
            max_failed_keys: self.max_failed_keys,
            unready_after: self.unready_after,
            gates: self.gates,
        });
        Ok(Controller {
            state: Unstarted::new(state),
            job: Box::new(move |state| {
                let recorder = RunRecorder::new(state, on_error);
                let reconcile = boxed(Checked { reconciler, valid });
                Arc::new(ControllerJob::new(recorder, reconcile, Box::new(policy)))
            }),
            sources: self.sources.starts,
            debounce: self.debounce,
            sync_timeout: self.sync_timeout,
            own_threads: self.own_threads,
            grace: self.grace,
            options: self.options,
        })
    }

    fn check(&self) -> Result<(), StartError> {
        StartError::check_required_name(&self.name)?;
        check_max_concurrent(self.max_concurrent)?;
        StartError::check_threads("own_threads", self.own_threads.unwrap_or(1), 1)?;
        let times = [
            ("reconcile_timeout", self.timeout),
            ("resync", self.resync),
            ("sync_timeout", Some(self.sync_timeout)),
            ("quiet", self.debounce.map(|(quiet, _)| quiet)),
        ];
        for (field, time) in times {
            time.map_or(Ok(()), |time| StartError::check_time(field, time))?;
        }
        if let Some((quiet, max_wait)) = self.debounce
            && max_wait < quiet
        {
            return Err(StartError::setting("max_wait", &max_wait, "no shorter than quiet"));
        }
        check_rate(self.rate)?;
        if self.resync.is_some() && !self.sources.knows_keys {
            return Err(StartError::named("controller", &self.name, "has a resync, but no watch"));
        }
        Ok(())
    }
}

impl<K: Key, R, P> fmt::Debug for ControllerBuilder<K, R, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerBuilder")
            .field("name", &self.name)
            .field("max_concurrent_reconciles", &self.max_concurrent)
            .field("reconcile_timeout", &self.timeout)
            .field("sources", &self.sources)
            .finish_non_exhaustive()
    }
}
