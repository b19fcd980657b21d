//! The control task of a controller: waits for the initial listings, then resyncs. The control thread of the pool runs
//! it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::source_list::{AcceptedChanges, Syncing};
use super::state::ControllerState;
use crate::base::end::EndPart;
use crate::base::task::{Next, Task};
use crate::base::text::OneLine;
use crate::base::thread::panic_message;
use crate::base::time::{Nanos, Rounded};
use crate::queue::{EnqueueMethod, Key};
use crate::watch::source::{SourceHandle, SourceStatus};

/// A resync that takes longer is reported: it delays the other controllers of its pool.
const SLOW_RESYNC: Duration = Duration::from_secs(1);

/// The reason why a controller stopped by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The control thread panicked, in code of a listed key or in the logger.
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
                write!(f, "controller {controller}: its thread panicked: {message}")
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

/// The control task of one controller.
pub(super) struct ControlTask<K: Key> {
    pub(super) state: Arc<ControllerState<K>>,
    pub(super) sync_timeout: Duration,
    /// The deadline of the initial listings.
    pub(super) sync_until: Nanos,
    /// The time of the last resync, or of the start.
    pub(super) resynced: Nanos,
    /// The changes that the sources had accepted after the last resync of selected keys.
    pub(super) selected: AcceptedChanges,
    pub(super) synced: bool,
    /// Dropped last: the controller may end then.
    pub(super) _part: EndPart,
}

impl<K: Key> ControlTask<K> {
    /// Lets keys run once all listings are complete. Returns whether the task continues.
    fn sync(&mut self, now: Nanos) -> bool {
        let controller = self.state.name.as_str();
        match self.state.sources.syncing() {
            Syncing::Synced => {
                self.synced = true;
                log::info!(controller; "{controller}: all sources are synced");
                self.state.set_conditions(|conditions| conditions.synced = true);
                self.state.waiters.settle(None);
            }
            Syncing::Ended(source_name) => {
                // Checked after the sources: a manager closes all controllers before it stops the first watch.
                if !self.state.is_stopped() {
                    let controller = controller.to_owned();
                    self.state.fail(ControllerError::SourceEnded { controller, source_name }.into());
                }
                return false;
            }
            Syncing::Missing(missing) if now >= self.sync_until => {
                let sources = missing.iter().map(SourceHandle::status).collect();
                let controller = controller.to_owned();
                let error = ControllerError::SyncTimeout { controller, sources, timeout: self.sync_timeout };
                self.state.fail(error.into());
                return false;
            }
            Syncing::Missing(_) => {}
        }
        true
    }

    fn control(&mut self, now: Nanos) -> Next {
        if self.state.is_stopped() {
            return Next::Finished;
        }
        if !self.synced {
            if !self.sync(now) {
                return Next::Finished;
            }
            if !self.synced {
                return Next::At(self.sync_until);
            }
        }
        let interval = *self.state.resync.lock();
        let is_due = interval.is_some_and(|interval| now >= self.resynced.after(interval));
        let is_wanted = self.state.takes_resync();
        if is_wanted {
            self.state.sources.for_each(|source| source.trigger());
            self.state.gates.resync_begins(self.selected.are_enqueued());
        }
        if is_wanted || is_due {
            let controller = self.state.name.as_str();
            let keys = if is_due { "all keys" } else { "the keys that its gates select" };
            log::debug!(controller, keys; "{controller}: resync of {keys}");
            let method = if is_due { EnqueueMethod::EnqueueResync } else { EnqueueMethod::EnqueueSelected };
            self.state.sources.for_each(|source| source.resync(method));
            let took = self.state.clock.nanos().since(now);
            if took > SLOW_RESYNC {
                let took = Rounded(took);
                log::warn!(
                    controller, after:% = took;
                    "{controller}: the mappings of a resync took {took}; meanwhile no controller of the pool was synced"
                );
            }
        }
        if is_wanted {
            self.selected = self.state.sources.accepted();
        }
        if is_due {
            self.resynced = now;
        }
        Next::At(interval.map_or(Nanos::NEVER, |interval| self.resynced.after(interval)))
    }
}

impl<K: Key> Task for ControlTask<K> {
    /// Runs one step. A panic fails the controller.
    fn step(&mut self, now: Nanos) -> Next {
        catch_unwind(AssertUnwindSafe(|| self.control(now))).unwrap_or_else(|panic| {
            let (controller, message) = (self.state.name.clone(), panic_message(&*panic).to_owned());
            self.state.fail(ControllerError::Panicked { controller, message }.into());
            Next::Finished
        })
    }
}
