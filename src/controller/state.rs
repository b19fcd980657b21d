//! The state that a controller's threads and handles share.
//!
//! # Invariants
//!
//! - No key runs before the run conditions hold: synced, leading, not suspended. Once `stop` has returned, no key is
//!   taken.
//! - The queue alone knows whether a suspended key needs a run: a key that was taken is deferred for ever, with its
//!   failures and reasons, and released when it is resumed.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::failed_keys::FailedKeys;
use super::observers::{RunObserver, RunObservers};
use super::rate::RateLimiter;
use super::sources::{AcceptedChanges, SourceList};
use super::waiters::{KeyWaiters, WaitError};
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::end::{End, EndPart};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::SeqCst};
use crate::base::task_thread::TaskWaker;
use crate::base::thread::{ThreadOptions, shielded};
use crate::base::time::Nanos;
use crate::queue::{FastState, Key, KeyState, QueueHooks, Shutdown, WorkQueue, WorkQueueBuilder};
use crate::run::error::{BoxError, Chain};
use crate::run::fence::Fence;
use crate::run::gate::{Gate, Gates, ResyncForGates, TakenKey};
use crate::run::metrics::RunCounters;
use crate::run::pool::Membership;

/// The conditions under which a controller takes keys. All must hold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunConditions {
    /// Whether the initial listings are complete.
    pub(super) synced: bool,
    /// Whether this process leads.
    pub(super) leading: bool,
    /// The time since which the whole controller is suspended.
    pub(super) suspended: Option<Instant>,
    /// Whether the controller has been stopped.
    pub(super) stopped: bool,
}

impl RunConditions {
    fn hold(self) -> bool {
        self.synced && self.leading && self.suspended.is_none() && !self.stopped
    }
}

/// The flag of a wanted resync of all keys.
pub(super) const RESYNC_ALL: u8 = 1;
/// The flag of a wanted resync of the keys that the gates select.
pub(super) const RESYNC_SELECTED: u8 = 2;
/// The flag of forgotten keys that are to be dropped.
pub(super) const DROP_KEYS: u8 = 4;
/// The flag of the log line about the initial listings.
pub(super) const LOG_SYNCED: u8 = 8;
/// The flag of chores that a thread does now.
pub(super) const CHORES_ACTIVE: u8 = 16;

/// Creates a gate for its controller.
pub(super) type NewGate<K> = Box<dyn FnOnce(&WorkQueue<K>, &ResyncForGates) -> Arc<dyn Gate> + Send>;

/// The settings that the state keeps.
pub(super) struct StateSettings<K: Key> {
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) timeout: Option<Duration>,
    pub(super) max_concurrent: usize,
    pub(super) resync: Option<Duration>,
    pub(super) rate: Option<(f64, u32)>,
    pub(super) max_failed_keys: usize,
    /// The time that a source may fail before the controller is not ready. `None` for the manager's bound.
    pub(super) unready_after: Option<Duration>,
    pub(super) gates: Vec<NewGate<K>>,
    pub(super) observers: Vec<RunObserver>,
}

/// The state of a controller, from its build on.
pub(super) struct ControllerState<K: Key> {
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) queue: WorkQueue<K>,
    pub(super) abort: CancellationToken,
    pub(super) failed: FailedKeys<K>,
    pub(super) suspended: SuspendedKeys<K>,
    pub(super) observers: RunObservers,
    /// The gates of the settings and of the watches.
    pub(super) gates: Gates,
    /// The flags of wanted and active chores: they run user code, or log.
    pub(super) chores: AtomicU8,
    /// The keys that the timer has forgotten, until they are dropped.
    pub(super) forgotten: Mutex<Vec<K>>,
    /// The changes that the sources had accepted after the last resync of selected keys.
    pub(super) selected: Mutex<AcceptedChanges>,
    pub(super) waiters: Arc<KeyWaiters<K>>,
    pub(super) timeout: Option<Duration>,
    pub(super) unready_after: Option<Duration>,
    conditions: Mutex<RunConditions>,
    /// Whether all conditions hold, so that keys may be taken.
    takes_keys: AtomicBool,
    pub(super) rate: RateLimiter,
    pub(super) max_concurrent: Mutex<usize>,
    pub(super) resync: Mutex<Option<Duration>>,
    pub(super) sources: SourceList,
    /// The counters of all runners.
    pub(super) counters: Mutex<Vec<Arc<RunCounters>>>,
    /// The number of overruns.
    pub(super) overruns: AtomicU64,
    /// The end of the controller. Notified when any part has ended, and when the controller has failed.
    pub(super) end: Arc<End>,
    pub(super) started: OnceLock<Arc<Started>>,
    /// Whether the controller has been joined. A run that joins its own controller may still be active.
    pub(super) joined: AtomicBool,
    /// The term, once this process has been elected.
    pub(super) term: OnceLock<Fence>,
}

/// The parts of a controller that exist from its start on.
pub(super) struct Started {
    /// The controller's own part in its end. Dropped at the stop, or once a failure has been handled.
    pub(super) part: Mutex<Option<EndPart>>,
    pub(super) membership: Membership,
    /// Triggers a step of the control task. Its thread also runs the watchdogs of the sources.
    pub(super) control: TaskWaker,
    /// The debounce of subscriptions.
    pub(super) debounce: Option<(Duration, Duration)>,
    /// The options for sources without thread options.
    pub(super) options: ThreadOptions,
}

/// Returns the name of the control task of a controller.
pub(super) fn control_thread(controller: &str) -> String {
    format!("{controller}-control-0")
}

impl<K: Key + Sync + fmt::Debug> ControllerState<K> {
    pub(super) fn new(settings: StateSettings<K>, queue: WorkQueueBuilder<K>) -> Arc<Self> {
        let StateSettings { name, clock, timeout, max_concurrent, resync, .. } = settings;
        Arc::new_cyclic(|state: &Weak<Self>| {
            let [ready, cancelled, forgotten, moved, resynced] = std::array::from_fn(|_| Weak::clone(state));
            let hooks = QueueHooks {
                on_ready: Some(Box::new(move || {
                    if let Some(state) = ready.upgrade()
                        && let Some(started) = state.started.get()
                    {
                        started.membership.offer();
                    }
                })),
                on_cancel: Some(Box::new(move |key: &K| {
                    if let Some(state) = cancelled.upgrade() {
                        state.cancelled(key);
                    }
                })),
                on_forgotten: Some(Box::new(move |keys| {
                    if let Some(state) = forgotten.upgrade() {
                        state.forgotten.lock().extend(keys);
                        state.request_chore(DROP_KEYS);
                    }
                })),
                selects: Some(Box::new(move |key: &K| {
                    moved.upgrade().is_none_or(|state| state.gates.iter().all(|gate| gate.selects(&state.taken(key))))
                })),
            };
            let queue = queue.hooks(hooks).build();
            let resync_for_gates: ResyncForGates = Arc::new(move || {
                if let Some(state) = resynced.upgrade() {
                    state.request_chore(RESYNC_SELECTED);
                }
            });
            let gates = settings.gates.into_iter().map(|new| new(&queue, &resync_for_gates)).collect();
            Self {
                name,
                gates: Gates::new(clock.clone(), gates),
                chores: AtomicU8::new(0),
                forgotten: Mutex::default(),
                selected: Mutex::default(),
                queue,
                abort: CancellationToken::new(),
                failed: FailedKeys::new(clock.clone(), settings.max_failed_keys),
                suspended: SuspendedKeys::new(clock.clone()),
                observers: RunObservers::new(settings.observers),
                waiters: KeyWaiters::new(clock.clone()),
                timeout,
                unready_after: settings.unready_after,
                conditions: Mutex::new(RunConditions::default()),
                takes_keys: AtomicBool::new(false),
                rate: RateLimiter::new(clock.clone(), settings.rate),
                max_concurrent: Mutex::new(max_concurrent),
                resync: Mutex::new(resync),
                sources: SourceList::default(),
                counters: Mutex::new(Vec::new()),
                overruns: AtomicU64::new(0),
                end: End::new(clock.clone()),
                clock,
                started: OnceLock::new(),
                joined: AtomicBool::new(false),
                term: OnceLock::new(),
            }
        })
    }

    /// Returns a key of this controller for its gates.
    pub(super) fn taken<'a>(&'a self, key: &'a K) -> TakenKey<'a, K> {
        TakenKey { controller: &self.name, key, queue: &self.queue }
    }
}

impl<K: Key> ControllerState<K> {
    /// Lets a thread of the pool do a chore soon. While the controller takes no keys, the chore waits.
    pub(super) fn request_chore(&self, flag: u8) {
        self.chores.fetch_or(flag, SeqCst);
        self.started.get().into_iter().for_each(|started| started.membership.release());
    }

    /// Returns whether a thread of the pool has a chore to do.
    #[inline]
    pub(super) fn wants_chores(&self) -> bool {
        (1..CHORES_ACTIVE).contains(&self.chores.load(SeqCst))
    }

    /// Leaves the pool after a run that has joined its own controller. Any other joiner does that itself.
    pub(super) fn end_membership(&self) {
        if self.joined.load(SeqCst)
            && let Some(started) = self.started.get()
        {
            started.membership.end();
        }
    }

    pub(super) fn conditions(&self) -> RunConditions {
        *self.conditions.lock()
    }

    /// Changes the run conditions, and opens or closes the controller in the pool. After this returns, no key is taken
    /// while the conditions do not hold.
    pub(super) fn set_conditions(&self, change: impl FnOnce(&mut RunConditions)) {
        let mut conditions = self.conditions.lock();
        change(&mut conditions);
        let hold = conditions.hold();
        self.takes_keys.store(hold, SeqCst);
        if !hold {
            // Takes the queue's lock: a thread checks `takes_keys` under it before it takes a key.
            let _ = self.queue.len();
        }
        if let Some(started) = self.started.get() {
            // Under the lock, so that the pool sees the last change last.
            if hold {
                started.membership.open();
            } else {
                started.membership.close();
            }
        }
    }

    pub(super) fn takes_keys(&self) -> bool {
        self.takes_keys.load(SeqCst)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.conditions().stopped
    }

    /// Stops taking keys. After this returns, no key is taken. Drops nothing and runs no user code.
    pub(super) fn close(&self) {
        self.set_conditions(|conditions| conditions.stopped = true);
    }

    /// Stops taking keys, and drops the queued keys. Active runs continue.
    pub(super) fn stop(&self) {
        self.drop_keys();
        self.waiters.close(WaitError::Stopped);
        drop(self.take_part());
    }

    /// Takes the controller's own part in its end, once. Its drop calls the hooks.
    pub(super) fn take_part(&self) -> Option<EndPart> {
        self.started.get()?.part.lock().take()
    }

    /// Stops without ending the waits of other threads. The caller ends them.
    fn drop_keys(&self) {
        // A manager has closed the controller before.
        if !self.is_stopped() {
            self.close();
        }
        self.waiters.freeze();
        self.sources.for_each(|source| source.end(false));
        self.queue.shutdown(Shutdown::Discard);
        self.queue.shared.forget_dropped();
        self.drop_forgotten();
        self.wake_control();
    }

    /// Drops the keys that the timer has forgotten.
    pub(super) fn drop_forgotten(&self) {
        let keys = std::mem::take(&mut *self.forgotten.lock());
        shielded("the drop of a key", || drop(keys));
    }

    /// Triggers a step of the control task, if the controller has been started.
    pub(super) fn wake_control(&self) {
        self.started.get().into_iter().for_each(|started| started.control.set());
    }

    pub(super) fn abort(&self) {
        // Taken first: a cancelled run may end at once.
        let part = self.end.part();
        self.stop();
        self.sources.for_each(|source| source.end(true));
        if let (Some(callbacks), Some(started)) = (self.abort.begin_cancel(), self.started.get()) {
            let here = self.clock.scheduler().is_some();
            started.control.call_aside(here, &control_thread(&self.name), callbacks, Box::new(part));
        }
    }

    /// Stops the controller with an error.
    pub(super) fn fail(&self, error: BoxError) {
        // Dropped last: the controller may end then.
        let _part = self.take_part();
        let error = Arc::new(error);
        // Order: a thread that sees the failure finds the controller stopped, and the hooks find the failure.
        self.drop_keys();
        self.end.fail(Arc::clone(&error));
        self.waiters.close(WaitError::Failed);
        self.end.notify();
        let (controller, shown) = (self.name.as_str(), Chain(&**error));
        log::error!(controller, error:% = shown; "{controller}: the controller has failed: {shown}");
    }

    /// Returns the time at which the next key or chore may run; zero for now. From now on a queued key waits for its
    /// token.
    pub(super) fn next_token(&self) -> Nanos {
        if self.wants_chores() { Nanos::ZERO } else { self.rate.next(|| self.queue.shared.has_ready()) }
    }

    /// Forgets the failure of a key after its scheduled run was cancelled, unless the key was requested since.
    fn cancelled(&self, key: &K) {
        // Unless the key was requested since.
        self.failed.forget_if(key, |parked| !parked && self.queue.state(key) == KeyState::Idle);
        self.waiters.settle(Some(key));
    }
}

/// The suspended keys of one controller: the gate that the user opens and closes.
pub(super) struct SuspendedKeys<K> {
    clock: Clock,
    /// The times of the suspensions.
    pub(super) keys: Mutex<HashMap<K, Instant, FastState>>,
    /// The number of keys. While it is zero, runs take no lock here.
    count: AtomicUsize,
}

impl<K: Key> SuspendedKeys<K> {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, keys: Mutex::new(HashMap::default()), count: AtomicUsize::new(0) }
    }

    pub(super) fn suspend(&self, key: K) {
        // A key may not drop under the lock: its code may call this controller.
        let _second;
        let mut keys = self.keys.lock();
        let is_known = keys.contains_key(&key);
        if is_known {
            _second = key;
        } else {
            keys.insert(key, self.clock.now());
            self.count.store(keys.len(), SeqCst);
        }
    }

    /// Resumes a key. If it was suspended, calls `release` first. If that panics, the key stays suspended.
    pub(super) fn resume(&self, key: &K, release: impl FnOnce()) {
        // Under the lock: a claim that finds the key suspended sees the release, or has deferred the key before.
        let mut keys = self.keys.lock();
        if keys.contains_key(key) {
            release();
        }
        let found = keys.remove_entry(key);
        self.count.store(keys.len(), SeqCst);
        drop(keys);
        drop(found);
    }

    /// Returns whether a key is suspended.
    #[inline]
    pub(super) fn has(&self, key: &K) -> bool {
        self.count.load(SeqCst) != 0 && self.keys.lock().contains_key(key)
    }

    /// Returns the keys, with the times of their suspensions.
    pub(super) fn list(&self) -> Vec<(K, Instant)> {
        let mut keys: Vec<_> = self.keys.lock().iter().map(|(key, since)| (key.clone(), *since)).collect();
        self.clock.arrange(&mut keys, |(key, _)| key);
        keys
    }
}
