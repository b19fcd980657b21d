//! The running parts of a controller: its sources, its control task, its resyncs, and its end.
//!
//! The control task runs on the timer thread of the pool. It waits for the initial listings, requests resyncs, and
//! handles a failure aside. Chores run user code: a resync calls mappings, and keys that the timer has forgotten are
//! dropped. Therefore a thread of the pool does the chores, before it takes keys of the controller.
//!
//! # Invariants
//!
//! - One thread at a time does chores. A request during a resync leads to another resync.
//! - While a chore is wanted, a thread that serves the controller ends its turn after a run. A busy controller is
//!   therefore resynced, and resyncs that follow each other at once leave time for runs.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::handle::ControllerHandle;
use super::sources::{SourceStart, Syncing, Target};
use super::state::{
    CHORES_ACTIVE, ControllerState, DROP_KEYS, LOG_SYNCED, RESYNC_ALL, RESYNC_SELECTED, RunConditions, Started,
    control_thread,
};
use crate::base::end::EndHook;
use crate::base::error::{BoxError, EndError, StartError};
use crate::base::running::{Runnable, Running, RunningPhase, RunningStatus};
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::task::{Next, Task};
use crate::base::text::OneLine;
use crate::base::thread::{Joiner, panic_message};
use crate::base::time::{Nanos, Rounded};
use crate::base::wait::Latch;
use crate::queue::{EnqueueMethod, Key};
use crate::run::pool::WorkerPool;
use crate::watch::source::{SourceHandle, SourceStatus};

/// The parts that end with a controller: sources, control task, timer task, runs and its own pool.
pub(super) struct ControllerBody<K: Key> {
    pub(super) state: Arc<ControllerState<K>>,
    pub(super) started: Arc<Started>,
    /// Joins the control task, until it has been joined.
    pub(super) control: Option<Joiner>,
    pub(super) own_pool: Option<Running<WorkerPool>>,
}

impl<K: Key> ControllerBody<K> {
    /// Joins the threads that have ended. Returns the names of the others.
    fn join_ended(&mut self) -> Vec<String> {
        self.state.sources.join_ended();
        if self.state.end.is_empty() {
            self.control.take().into_iter().for_each(Joiner::join);
        }
        self.threads()
    }

    /// Returns the names of the threads that have not ended.
    fn threads(&self) -> Vec<String> {
        let mut threads = self.state.sources.threads();
        threads.extend(self.control_thread());
        threads.extend(self.started.membership.slots().iter().map(|slot| slot.name.clone()));
        threads
    }

    /// Returns the name of the control task, unless it has ended.
    fn control_thread(&self) -> Option<String> {
        (!self.state.end.is_empty()).then(|| control_thread(&self.state.name))
    }

    /// Returns whether anything has not ended, without counting the caller's own run, mapping or listing.
    fn runs_elsewhere(&self) -> bool {
        self.state.sources.run_elsewhere()
            || (!self.control.as_ref().is_some_and(Joiner::is_current) && !self.state.end.is_empty())
            || self.started.membership.slots().iter().any(|slot| !slot.is_current())
    }

    /// Gives up the pool and the timer of a stopped controller. If the caller is in a run, the membership ends after
    /// that run.
    fn leave_pool(&mut self) {
        // Set first: a run that ends later sees it.
        self.state.joined.store(true, SeqCst);
        self.started.membership.end();
        self.state.queue.shared.join_timer();
        if let Some(pool) = self.own_pool.take() {
            drop(pool.shutdown(Duration::ZERO));
        }
    }
}

impl<K: Key> Runnable for ControllerBody<K> {
    fn close(&self) {
        self.state.close();
        self.state.sources.close();
    }

    fn stop(&self) {
        self.state.stop();
    }

    fn abort(&self) {
        self.state.abort();
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), EndError> {
        let state = Arc::clone(&self.state);
        let deadline = state.clock.nanos().after(timeout);
        loop {
            let threads = self.join_ended();
            if threads.is_empty() {
                break;
            }
            if state.clock.reached(deadline) {
                return Err(EndError::of_threads(threads));
            }
            state.end.wait_for_notice(deadline);
        }
        if state.is_stopped() {
            self.leave_pool();
        }
        Ok(())
    }

    fn join(&mut self) -> Result<(), EndError> {
        while self.runs_elsewhere() {
            self.state.end.wait_for_notice(Nanos::NEVER);
        }
        // Only the caller's own parts may remain. They cannot be stopped while they wait.
        self.stop();
        self.state.sources.join();
        self.control.take().into_iter().for_each(Joiner::join);
        let own = self.started.membership.slots().into_iter().filter(|slot| slot.is_current());
        let own: Vec<_> = own.map(|slot| slot.name.clone()).chain(self.control_thread()).collect();
        self.leave_pool();
        EndError::unless_well(None, own)
    }

    fn detach(&mut self) {
        self.state.sources.detach();
        self.own_pool.take().into_iter().for_each(Running::detach);
    }

    fn status(&self) -> RunningStatus {
        RunningStatus::new(self.state.name.as_str(), self.state.is_stopped(), self.threads())
    }

    fn on_end(&self, hook: EndHook) {
        self.state.end.add_hook(&hook, || self.status().phase == RunningPhase::Ended);
    }

    fn failure(&self) -> Option<Arc<BoxError>> {
        self.state.end.failure()
    }

    fn kind(&self) -> &'static str {
        "controller"
    }
}

impl<K: Key> ControllerState<K> {
    /// Starts a source and adds it to the controller.
    pub(super) fn start_source(
        self: &Arc<Self>,
        started: &Started,
        start: SourceStart<K>,
    ) -> Result<SourceHandle, StartError> {
        let name = self.name.as_str();
        let thread_name = format!("{name}-source-{}", self.sources.next_number());
        let Started { debounce, options, control, .. } = started;
        let (queue, gates) = (&self.queue, &self.gates);
        let target =
            Target { queue, gates, controller: name, thread_name, debounce: *debounce, options, timer: control };
        let (source, handle) = start(&target)?;
        let control = control.clone();
        handle.synced().on_set(Box::new(move |_| control.set()));
        let waiters = Arc::clone(&self.waiters);
        source.source.progress().on_change(Box::new(move || waiters.settle(None)));
        let ended = Latch::new(self.clock.clone());
        let (settled, end) = (Arc::clone(&ended), Arc::clone(&self.end));
        source.running.on_end(Arc::new(move || {
            settled.set(true);
            end.notify();
        }));
        self.sources.add(source, handle, ended, || self.is_stopped()).map_err(|refused| {
            refused.running.abort();
            drop(refused);
            StartError::named("controller", name, "has been stopped")
        })
    }
}

impl<K: Key + Sync + fmt::Debug> ControllerHandle<K> {
    /// Adds sources to the running controller. Returns their handles.
    ///
    /// Once the controller is synced, keys run during the initial listing of a new source.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if the controller does not run, or if a source has an invalid setting or cannot be
    /// started. Sources that started before the failed one stay.
    ///
    /// ```
    /// use homeostat::{Action, BoxError, Context, Controller, Sources, Watch, WorkerPool};
    /// use std::time::Duration;
    ///
    /// let pool = WorkerPool::builder().start()?;
    /// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    /// let vms = Controller::builder("vm", reconcile).build()?.start(&pool)?;
    /// vms.wait_synced(Duration::from_secs(10))?;
    ///
    /// let disks = Watch::<&str, &str>::builder().name("disks").push(); // a disk names its VM
    /// let mut sources = Sources::new();
    /// sources.watch(disks.watch(), |event| event.value().copied());
    /// vms.add_sources(sources)?;
    /// disks.set("disk-1", "vm-1");
    /// vms.wait(&"vm-1", Duration::from_secs(10))?;
    /// assert!(vms.remove_source("disks", Duration::from_secs(10))?);
    /// # Ok::<_, BoxError>(())
    /// ```
    pub fn add_sources(&self, mut sources: super::Sources<K>) -> Result<Vec<SourceHandle>, StartError> {
        if let Some(error) = sources.bad.take() {
            return Err(error);
        }
        let started = self.state.started.get();
        let started =
            started.ok_or_else(|| StartError::named("controller", &self.state.name, "has not been started"))?;
        sources.starts.into_iter().map(|start| self.state.start_source(started, start)).collect()
    }

    /// Stops a source and removes it from the controller. Returns whether a source has this name.
    ///
    /// Blocks until the source has ended. After `grace` the source is aborted, and this returns without waiting for it.
    /// Its keys stay in the queue. Its name is free at once.
    ///
    /// # Errors
    ///
    /// Returns [`EndError`] with the threads that have not ended. The controller waits for them at its own end.
    pub fn remove_source(&self, name: &str, grace: Duration) -> Result<bool, EndError> {
        let state = &*self.state;
        let Some(ended) = state.sources.remove(name) else { return Ok(false) };
        // The removed source may have been the last one without an initial listing.
        state.wake_control();
        if !ended.wait_until(state.clock.nanos().after(grace)) {
            let threads = state.sources.abort_removed(&ended);
            if !threads.is_empty() {
                return Err(EndError::of_threads(threads));
            }
        }
        state.sources.join_ended();
        // Waits for a key no longer include the changes that the source had accepted.
        state.waiters.settle(None);
        Ok(true)
    }
}

/// The reason why a controller stopped by itself.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerError {
    /// Initial listings were not complete after the timeout.
    SyncTimeout {
        /// The name of the controller.
        controller: String,
        /// The sources without a complete listing, and their status at that time.
        sources: Vec<SourceStatus>,
        /// The timeout.
        timeout: Duration,
    },
    /// A source ended before its initial listing was complete, because its watch was stopped.
    SourceEnded {
        /// The name of the controller.
        controller: String,
        /// The name of the source.
        source_name: String,
    },
    /// A resync panicked, in code of a listed key or in the logger.
    Panicked {
        /// The name of the controller.
        controller: String,
        /// The panic message.
        message: String,
    },
}

impl fmt::Display for ControllerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SyncTimeout { controller, sources, timeout } => {
                let from: Vec<_> = sources.iter().map(missing).collect();
                let (controller, from) = (OneLine(controller), from.join(", "));
                write!(f, "controller {controller}: no initial listing after {} from {from}", Rounded(*timeout))
            }
            Self::SourceEnded { controller, source_name } => {
                let (controller, source) = (OneLine(controller), OneLine(source_name));
                write!(f, "controller {controller}: {source} ended before its first listing completed")
            }
            Self::Panicked { controller, message } => {
                let (controller, message) = (OneLine(controller), OneLine(message));
                write!(f, "controller {controller}: its resync panicked: {message}")
            }
        }
    }
}

/// Formats a source without a listing, with its failure if known.
fn missing(source: &SourceStatus) -> String {
    let name = OneLine(&source.name);
    source.fault().map_or_else(|| name.to_string(), |fault| format!("{name} ({fault})"))
}

impl std::error::Error for ControllerError {}

crate::base::chain::debug_with_causes!(ControllerError);

/// The control task of one controller.
pub(super) struct ControlTask<K: Key> {
    pub(super) state: Arc<ControllerState<K>>,
    pub(super) sync_timeout: Duration,
    /// The deadline of the initial listings.
    pub(super) sync_until: Nanos,
    /// The time of the last resync, or of the start.
    pub(super) resynced: Nanos,
}

impl<K: Key> Task for ControlTask<K> {
    fn step(&mut self, now: Nanos) -> Next {
        let state = &self.state;
        let RunConditions { synced, stopped, .. } = state.conditions();
        if stopped {
            return Next::Finished;
        }
        if !synced {
            let controller = state.name.clone();
            let error = match state.sources.syncing() {
                Syncing::Synced => None,
                Syncing::Ended(source_name) => Some(ControllerError::SourceEnded { controller, source_name }),
                Syncing::Missing(missing) if now >= self.sync_until => {
                    let sources = missing.iter().map(SourceHandle::status).collect();
                    Some(ControllerError::SyncTimeout { controller, sources, timeout: self.sync_timeout })
                }
                Syncing::Missing(_) => return Next::At(self.sync_until),
            };
            if let Some(error) = error {
                // Checked after the sources: a manager closes all controllers before it stops the first watch.
                if let Some(started) = state.started.get().filter(|_| !state.is_stopped()) {
                    state.close();
                    let (failing, part) = (Arc::clone(state), state.take_part());
                    let fail = move || failing.fail(error.into());
                    let thread = control_thread(&state.name);
                    started.control.call_aside(state.clock.is_held(), &thread, fail, Box::new(part));
                }
                return Next::Finished;
            }
            state.set_conditions(|conditions| conditions.synced = true);
            state.request_chore(LOG_SYNCED);
            state.waiters.settle(None);
        }
        let interval = *state.resync.lock();
        if interval.is_some_and(|interval| now >= self.resynced.after(interval)) {
            self.resynced = now;
            state.request_chore(RESYNC_ALL);
        }
        Next::At(interval.map_or(Nanos::NEVER, |interval| self.resynced.after(interval)))
    }
}

impl<K: Key> ControllerState<K> {
    /// Does the wanted chores, once. A panic of a resync fails the controller.
    pub(super) fn do_chores(&self) {
        let begin = |flags| (1..CHORES_ACTIVE).contains(&flags).then_some(CHORES_ACTIVE);
        if let Ok(flags) = self.chores.fetch_update(SeqCst, SeqCst, begin) {
            if flags & LOG_SYNCED != 0 {
                let controller = self.name.as_str();
                log::info!(controller; "{controller}: all sources are synced");
            }
            if flags & DROP_KEYS != 0 {
                self.drop_forgotten();
            }
            if flags & (RESYNC_ALL | RESYNC_SELECTED) != 0
                && let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.resync(flags)))
            {
                let (controller, message) = (self.name.clone(), panic_message(&*panic).to_owned());
                self.fail(ControllerError::Panicked { controller, message }.into());
            }
            self.chores.fetch_and(!CHORES_ACTIVE, SeqCst);
        }
    }

    fn resync(&self, flags: u8) {
        let is_selective = flags & RESYNC_SELECTED != 0;
        if is_selective {
            self.sources.for_each(|source| source.trigger());
            let is_last_done = self.selected.lock().are_enqueued();
            self.gates.iter().for_each(|gate| gate.resync_begins(is_last_done));
        }
        let (keys, method) = match flags & RESYNC_ALL {
            0 => ("the keys that its gates select", EnqueueMethod::EnqueueSelected),
            _ => ("all keys", EnqueueMethod::EnqueueResync),
        };
        let controller = self.name.as_str();
        log::debug!(controller, keys; "{controller}: resync of {keys}");
        self.sources.for_each(|source| source.resync(method));
        if is_selective {
            let accepted = self.sources.accepted();
            // Dropped without the lock: it may be the last owner of a removed source.
            let _last = std::mem::replace(&mut *self.selected.lock(), accepted);
        }
    }
}
