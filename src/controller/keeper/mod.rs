//! The one thread that a controller has of its own: it waits for the initial listings, resyncs, and asks again for a timer thread that
//! the system has refused.

#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::core::Common;
use crate::base::group::ThreadGroup;
use crate::base::text::OneLine;
use crate::base::thread::{panic_message, shielded};
use crate::base::time::{Nanos, Rounded};
use crate::base::wait::{Next, Task};
use crate::queue::Key;
use crate::watch::source::{SourceHandle, SourceStatus};

/// Why a controller has stopped by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerError {
    /// Initial listings were not in after the timeout.
    SyncTimeout {
        /// The name of the controller.
        controller: String,
        /// The sources whose listings were missing, and how they were doing then.
        sources: Vec<SourceStatus>,
        /// The timeout.
        timeout: Duration,
    },
    /// A source has ended before its initial listing was in: its watch was stopped.
    SourceEnded {
        /// The name of the controller.
        controller: String,
        /// The name of the source, as its user has named it.
        source_name: String,
    },
    /// Its own thread has panicked: in the code of a key that was listed, or in the logger.
    Panicked {
        /// The name of the controller.
        controller: String,
        /// What the panic said.
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
                write!(f, "controller {controller}: {source} has ended before its initial listing was in")
            }
            Self::Panicked { controller, message } => {
                let (controller, message) = (OneLine(controller), OneLine(message));
                write!(f, "controller {controller}: its thread panicked: {message}")
            }
        }
    }
}

/// A source whose listing is missing, and why, if that is known.
fn missing(source: &SourceStatus) -> String {
    let name = OneLine(&source.name);
    source.trouble().map_or_else(|| name.to_string(), |trouble| format!("{name} ({trouble})"))
}

impl std::error::Error for ControllerError {}

/// The thread's body.
pub(super) struct ControllerThread<K: Key> {
    pub(super) crew: Arc<ThreadGroup>,
    pub(super) common: Arc<Common<K>>,
    /// The sources whose initial listings are not in.
    pub(super) missing: Vec<SourceHandle>,
    pub(super) sync_timeout: Duration,
    /// When it stops waiting for them.
    pub(super) sync_until: Nanos,
    /// The last resync, or the start.
    pub(super) resynced: Nanos,
    pub(super) synced: bool,
}

impl<K: Key> ControllerThread<K> {
    /// Opens the door once all listings are in. Returns whether it goes on.
    fn sync(&mut self, now: Nanos) -> bool {
        let controller = self.common.name.as_str();
        if let Some(ended) = self.missing.iter().find(|source| source.synced().is_given_up()) {
            // Asked after the look: a manager closes all controllers before it stops the first watch.
            if self.common.is_stopped() {
                return false;
            }
            let (controller, source_name) = (controller.to_owned(), ended.name().to_owned());
            let error = ControllerError::SourceEnded { controller, source_name };
            self.common.fail(error.into());
            return false;
        }
        self.missing.retain(|source| !source.synced().is_open());
        if self.missing.is_empty() {
            self.synced = true;
            log::info!(controller; "{controller}: all sources are synced");
            self.common.set_doors(|doors| doors.synced = true);
            self.common.book.settle();
        } else if now >= self.sync_until {
            let sources = self.missing.iter().map(SourceHandle::status).collect();
            let controller = controller.to_owned();
            let error = ControllerError::SyncTimeout { controller, sources, timeout: self.sync_timeout };
            self.common.fail(error.into());
            return false;
        }
        true
    }

    fn keep(&mut self, now: Nanos) -> Next {
        if self.crew.is_stopping() || self.common.is_stopped() {
            return Next::Finished;
        }
        // The pool's threads do not wait in the queue, so nobody else asks again for the timer of a quiet queue.
        let timer_at = self.common.queue.shared.keep_timer();
        if !self.synced {
            if !self.sync(now) {
                return Next::Finished;
            }
            if !self.synced {
                return Next::At(self.sync_until.min(timer_at));
            }
        }
        let Some(interval) = *self.common.resync.lock() else {
            return Next::At(timer_at);
        };
        if now >= self.resynced.after(interval) {
            self.resynced = now;
            let controller = self.common.name.as_str();
            log::debug!(controller; "{controller}: resync");
            for source in &*self.common.sources.lock() {
                source.resync();
            }
        }
        Next::At(self.resynced.after(interval).min(timer_at))
    }
}

impl<K: Key> Task for ControllerThread<K> {
    /// A controller whose keeper dies has failed.
    fn step(&mut self, now: Nanos) -> Next {
        catch_unwind(AssertUnwindSafe(|| self.keep(now))).unwrap_or_else(|panic| {
            let (controller, message) = (self.common.name.clone(), panic_message(&*panic).to_owned());
            shielded("the drop of a panic", || drop(panic));
            self.common.fail(ControllerError::Panicked { controller, message }.into());
            Next::Finished
        })
    }
}
