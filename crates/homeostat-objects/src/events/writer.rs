//! The thread of a recorder. It stores the events, so that the threads that record them do not wait for the client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::record::PassFailures;
use super::storing::RecorderCore;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};
use homeostat::base::Exponential;
use homeostat::rt::{AutoResetEvent, Joiner, Nanos, Next, Task, spawn};

/// The delay before the first retry, and the longest one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// The thread of a recorder, started for the first event.
pub(super) struct EventWriter {
    signal: Arc<AutoResetEvent>,
    stopping: Arc<AtomicBool>,
    joiner: Mutex<Option<Joiner>>,
}

impl EventWriter {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If the system cannot create a thread.
    pub(super) fn start(core: &Arc<RecorderCore>) -> io::Result<Self> {
        let (signal, stopping) = (AutoResetEvent::new(core.clock.clone()), Arc::new(AtomicBool::new(false)));
        let backoff = Exponential::new(FIRST_RETRY, LAST_RETRY);
        let retry = Retry { backoff, failures: 0, due: Nanos::ZERO, pass: PassFailures::default() };
        let task = StoreEvents { core: Arc::clone(core), stopping: Arc::clone(&stopping), retry };
        // The name of a thread must not contain a NUL character.
        let name = format!("events-{}", core.component.replace('\0', "-"));
        let joiner = spawn(&core.threads, &core.clock, name, task, &signal)?;
        Ok(Self { signal, stopping, joiner: Mutex::new(Some(joiner)) })
    }

    /// Makes the thread store the waiting events.
    pub(super) fn wake(&self) {
        self.signal.set();
    }

    /// Makes the thread store the waiting events and end. Blocks until it has ended.
    pub(super) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.signal.set();
        let joiner = self.joiner.lock().take();
        joiner.into_iter().for_each(Joiner::join);
    }
}

/// The task of the thread.
struct StoreEvents {
    core: Arc<RecorderCore>,
    stopping: Arc<AtomicBool>,
    retry: Retry,
}

/// The delay after calls that did not reach the client.
struct Retry {
    backoff: Exponential,
    failures: u32,
    /// The time of the next full pass.
    due: Nanos,
    /// The failures since the last full pass. Until the next one, only events of other namespaces are stored.
    pass: PassFailures,
}

impl Task for StoreEvents {
    fn step(&mut self, now: Nanos) -> Next {
        let Retry { backoff, failures, due, pass } = &mut self.retry;
        // Read the flag first, so that all events recorded before the stop are stored.
        let stopping = self.stopping.load(SeqCst);
        let is_due = now >= *due || stopping;
        if is_due {
            *pass = PassFailures::default();
        } else if pass.is_unreachable() {
            return Next::At(*due);
        }
        let reached = self.core.store_all(pass);
        if stopping {
            return Next::Finished;
        }
        if reached {
            *failures = 0;
            return Next::At(Nanos::NEVER);
        }
        if is_due {
            *failures = failures.saturating_add(1);
            *due = self.core.clock.nanos().after(backoff.delay(*failures));
        }
        Next::At(*due)
    }
}
