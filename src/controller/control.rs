//! The control task of a controller, and its resyncs.
//!
//! The task runs on the timer thread of the pool. It waits for the initial listings, and requests resyncs. A resync
//! calls mappings, which are user code. Therefore a thread of the pool runs it, before it takes keys of the controller.
//!
//! # Invariants
//!
//! - One thread at a time resyncs. A request during a resync leads to another resync.
//! - While a resync is wanted, a thread that serves the controller ends its turn after a run. A busy controller is
//!   therefore resynced, and resyncs that follow each other at once leave time for runs.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::sources::Syncing;
use super::state::{ControllerState, RESYNC_ACTIVE, RESYNC_ALL, RESYNC_SELECTED, RunConditions};
use crate::base::chain::debug_with_causes;
use crate::base::end::EndPart;
use crate::base::sync::atomic::Ordering::SeqCst;
use crate::base::task::{Next, Task};
use crate::base::text::OneLine;
use crate::base::thread::panic_message;
use crate::base::time::{Nanos, Rounded};
use crate::queue::{EnqueueMethod, Key};
use crate::watch::source::{SourceHandle, SourceStatus};

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

debug_with_causes!(ControllerError);

/// The control task of one controller.
pub(super) struct ControlTask<K: Key> {
    pub(super) state: Arc<ControllerState<K>>,
    pub(super) sync_timeout: Duration,
    /// The deadline of the initial listings.
    pub(super) sync_until: Nanos,
    /// The time of the last resync, or of the start.
    pub(super) resynced: Nanos,
    /// Dropped last: the controller may end then.
    pub(super) _part: EndPart,
}

impl<K: Key> Task for ControlTask<K> {
    fn step(&mut self, now: Nanos) -> Next {
        let state = &*self.state;
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
                if !state.is_stopped() {
                    state.fail(error.into());
                }
                return Next::Finished;
            }
            let controller = state.name.as_str();
            log::info!(controller; "{controller}: all sources are synced");
            state.set_conditions(|conditions| conditions.synced = true);
            state.waiters.settle(None);
        }
        let interval = *state.resync.lock();
        if interval.is_some_and(|interval| now >= self.resynced.after(interval)) {
            self.resynced = now;
            state.request_resync(RESYNC_ALL);
        }
        Next::At(interval.map_or(Nanos::NEVER, |interval| self.resynced.after(interval)))
    }
}

impl<K: Key> ControllerState<K> {
    /// Runs the wanted resyncs, once. A panic fails the controller.
    pub(super) fn resync(&self) {
        let begin = |flags| (1..RESYNC_ACTIVE).contains(&flags).then_some(RESYNC_ACTIVE);
        if let Ok(flags) = self.resyncs.fetch_update(SeqCst, SeqCst, begin) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run_resync(flags))) {
                let (controller, message) = (self.name.clone(), panic_message(&*panic).to_owned());
                self.fail(ControllerError::Panicked { controller, message }.into());
            }
            self.resyncs.fetch_and(!RESYNC_ACTIVE, SeqCst);
        }
    }

    fn run_resync(&self, flags: u8) {
        let is_selective = flags & RESYNC_SELECTED != 0;
        if is_selective {
            self.sources.for_each(|source| source.trigger());
            let is_last_done = self.selected.lock().are_enqueued();
            self.gates.resync_begins(is_last_done);
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
