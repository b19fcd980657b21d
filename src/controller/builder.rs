//! The settings of a controller.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::job::{Checked, ControllerJob, ErrorHook, RunFailure, RunRecorder, Validate};
use super::source::Sources;
use super::state::{ControllerState, StateSettings};
use super::{Controller, Unstarted};
use crate::base::backoff::Exponential;
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::thread::ThreadOptions;
use crate::queue::{Key, WorkQueue};
use crate::run::context::Context;
use crate::run::error::BoxError;
use crate::run::policy::RetryPolicy;
use crate::run::reconciler::Reconciler;
use crate::watch::poller::Poller;
use crate::watch::{Event, Subscriber, Watch};

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
            own_threads: None,
            grace: Duration::from_secs(30),
            options: None,
        }
    }
}

// The bounds of `R` and `P` stand at `build`: in these impls they would turn a mistake in a closure into "no method named".
impl<K: Key + Sync + fmt::Debug, R, P> ControllerBuilder<K, R, P> {
    /// How many keys are run at once. Default: 1.
    #[doc(alias = "concurrency")]
    pub fn max_concurrent_reconciles(mut self, runs: usize) -> Self {
        self.max_concurrent = runs;
        self
    }

    /// How long a run may take. Its context is cancelled then. A run that ends promptly has [timed
    /// out](crate::run::WorkersMetrics::timeouts). One that is still under way 100 ms after its deadline is an overrun: it is reported while
    /// it runs, keeps its key, and has its thread replaced (see [`WorkerPool`](crate::WorkerPool)). Default: as long as it likes.
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// What follows an error. Default: [`Exponential::default`]. Its [floor](RetryPolicy::floor) is the least backoff that a
    /// change leaves of a longer one.
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
            own_threads: self.own_threads,
            grace: self.grace,
            options: self.options,
        }
    }

    /// The least time between the end of a key's run and the start of its next one. Default: zero.
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.min_interval = interval;
        self
    }

    /// A change that a watch tells is acted upon once its key has been `quiet` for so long, but no later than `max_wait` after the
    /// first one, also while the key waits for a requeue or backs off (then not before the [floor](RetryPolicy::floor)).
    /// Default: at once.
    pub fn debounce(mut self, quiet: Duration, max_wait: Duration) -> Self {
        self.debounce = Some((quiet, max_wait));
        self
    }

    /// Every `interval` all keys that its watches know run again, at low priority, also those that wait for a requeue. Keys that
    /// are in line or in process already, that back off, or whose change is debounced stay as they are. The first time one
    /// interval after the start. Default: never.
    pub fn resync(mut self, interval: Duration) -> Self {
        self.resync = Some(interval);
        self
    }

    /// Takes at most `burst` keys at once, and `per_second` in the long run, over all keys. It is applied as keys are taken, so
    /// keys in line have no time of their own that a thousand others could push away. A key that is taken later than its rate allows,
    /// because all threads were at work, does not put off the keys after it; so one more than `burst` may be taken at once then.
    /// Default: no limit.
    pub fn rate_limit(mut self, per_second: f64, burst: u32) -> Self {
        self.rate = Some((per_second, burst));
        self
    }

    /// How long to wait for the initial listings: a controller whose listings are not in by then stops with an error. Default:
    /// two minutes.
    pub fn sync_timeout(mut self, timeout: Duration) -> Self {
        self.sync_timeout = timeout;
        self
    }

    /// How long a source may fail before [`Manager::ready`](crate::Manager::ready) says that this controller is not ready. Default:
    /// as [the manager's](crate::manager::ManagerBuilder::unready_after).
    pub fn unready_after(mut self, bound: Duration) -> Self {
        self.unready_after = Some(bound);
        self
    }

    /// Polls: calls `list` every `period`, and puts what it lists in line, if nothing is known of it
    /// ([`enqueue_if_absent`](crate::Enqueue::enqueue_if_absent)).
    pub fn poll<I, E>(mut self, period: Duration, list: impl FnMut(&Context) -> Result<I, E> + Send + 'static) -> Self
    where
        I: IntoIterator<Item = K> + 'static,
        E: Into<BoxError> + 'static,
    {
        self.sources.poll(period, list);
        self
    }

    /// The same with a poller that has settings of its own. Its [name](Poller::name) is that of the source in status, errors, logs
    /// and metrics. If another source has the name, a number is added (`poller-2`). Its threads are named after the controller.
    pub fn poller<F, I, E>(mut self, poller: Poller<F>) -> Self
    where
        F: FnMut(&Context) -> Result<I, E> + Send + 'static,
        I: IntoIterator<Item = K> + 'static,
        E: Into<BoxError> + 'static,
    {
        self.sources.poller(poller);
        self
    }

    /// Watches: puts the keys that `keys` finds in an event in line.
    pub fn watch<J, T, I>(mut self, watch: &Watch<J, T>, keys: impl FnMut(&Event<J, T>) -> I + Send + 'static) -> Self
    where
        J: Key + Sync,
        T: Send + Sync + 'static,
        I: IntoIterator<Item = K> + 'static,
    {
        self.sources.watch(watch, keys);
        self
    }

    /// Watches with a subscriber of one's own: other mappings, predicates, verbs and lanes. `subscriber` is given the queue that it
    /// is to feed. Its [name](Subscriber::name) is that of the source in status, errors, logs and metrics, by default that of the
    /// watch. If another source has the name, a number is added (`watch-2`). Its thread is named after the controller.
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

    /// These sources too.
    pub fn sources(mut self, sources: Sources<K>) -> Self {
        self.sources.append(sources);
        self
    }

    /// Looks at each key before the reconciler is called with it. One that is refused is parked with the error.
    pub fn validate<E: Into<BoxError>>(mut self, valid: impl Fn(&K) -> Result<(), E> + Send + Sync + 'static) -> Self {
        self.valid = Some(Box::new(move |key| valid(key).map_err(Into::into)));
        self
    }

    /// Sees every error and panic of a run, after what follows it has been decided; on the thread of the run, outside any lock.
    /// A panic of it is logged.
    pub fn on_error(mut self, hook: impl Fn(&RunFailure<'_, K>) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Box::new(hook));
        self
    }

    /// How many parked keys are kept with their errors, and how many failing ones: those that failed last. The others are counted.
    /// An error takes at most 1,024 bytes. Default: 10,000 of each.
    pub fn max_failed_keys(mut self, keys: usize) -> Self {
        self.max_failed_keys = keys;
        self
    }

    /// Runs its keys on so many threads of its own instead of the shared pool's.
    pub fn own_threads(mut self, threads: usize) -> Self {
        self.own_threads = Some(threads);
        self
    }

    /// The clock that it goes by, with all of its sources; its pool has to go by the same. Default: the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// How long runs under way may go on when the running controller is dropped before they are aborted. Default: 30 s.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How its threads are made: those of its sources, of its queue's timer and of [`own_threads`](Self::own_threads) among
    /// them. A [`Poller`] or a [`Subscriber`] with thread options of its own keeps them. Default: as the platform does; in a
    /// manager, as [the manager's](crate::manager::ManagerBuilder::thread_options).
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// The controller.
    ///
    /// # Errors
    ///
    /// If a setting makes no sense: no name, no runs or threads at all, a timeout or an interval of zero, a `max_wait` shorter than
    /// `quiet`, a rate that is not positive, or a resync without a watch, which alone knows the keys.
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
        });
        Ok(Controller {
            state: Unstarted::new(state),
            job: Box::new(move |state| {
                let recorder = RunRecorder::new(state, on_error);
                Arc::new(ControllerJob::new(recorder, Checked { reconciler, valid }, policy))
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
        let longer = |field, duration: Option<Duration>| match duration {
            Some(Duration::ZERO) => Err(StartError::setting(field, &Duration::ZERO, "longer than zero")),
            _ => Ok(()),
        };
        if self.name.is_empty() {
            return Err(StartError::named("name", &self.name, "is empty"));
        }
        StartError::check_name(&self.name)?;
        if self.max_concurrent == 0 {
            return Err(StartError::setting("max_concurrent_reconciles", &0, "at least 1"));
        }
        if self.own_threads == Some(0) {
            return Err(StartError::setting("own_threads", &0, "at least 1"));
        }
        longer("reconcile_timeout", self.timeout)?;
        longer("resync", self.resync)?;
        longer("sync_timeout", Some(self.sync_timeout))?;
        if let Some((quiet, max_wait)) = self.debounce {
            longer("quiet", Some(quiet))?;
            if max_wait < quiet {
                return Err(StartError::setting("max_wait", &max_wait, "no shorter than quiet"));
            }
        }
        check_rate(self.rate)?;
        if self.resync.is_some() && !self.sources.knows_keys {
            return Err(StartError::setting(
                "resync",
                &self.resync.unwrap_or_default(),
                "of a controller with a watch",
            ));
        }
        Ok(())
    }
}

pub(super) fn check_rate(rate: Option<(f64, u32)>) -> Result<(), StartError> {
    match rate {
        Some((per_second, _)) if !(per_second > 0.0 && per_second.is_finite()) => {
            Err(StartError::setting("per_second", &per_second, "positive and finite"))
        }
        Some((_, 0)) => Err(StartError::setting("burst", &0, "at least 1")),
        _ => Ok(()),
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
