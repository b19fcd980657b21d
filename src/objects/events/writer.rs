//! The thread of a recorder, which stores its events, so that nobody who records one waits for the client.

use std::io;
use std::sync::Arc;

use super::Inner;
use crate::base::stage;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::base::thread::{Joiner, ThreadOptions};
use crate::base::time::Nanos;
use crate::base::wait::{AutoResetEvent, Next, Stepping, Task};

/// The thread of a recorder. It is started for the first event.
pub(super) struct Writer {
    signal: Arc<AutoResetEvent>,
    stopping: Arc<AtomicBool>,
    joiner: Mutex<Option<Joiner>>,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub(super) fn start(inner: &Arc<Inner>) -> io::Result<Self> {
        let (signal, stopping) = (AutoResetEvent::new(inner.clock.clone()), Arc::new(AtomicBool::new(false)));
        let body = Stepping::new(Body { inner: Arc::clone(inner), stopping: Arc::clone(&stopping) }, &signal);
        let name = format!("events-{}", inner.component);
        let joiner = stage::start(&ThreadOptions::new(), &inner.clock, name, body)?;
        Ok(Self { signal, stopping, joiner: Mutex::new(Some(joiner)) })
    }

    /// There is something to be stored.
    pub(super) fn wake(&self) {
        self.signal.set();
    }

    /// Has the thread store once more what is left, and waits until it has ended.
    pub(super) fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.signal.set();
        let joiner = self.joiner.lock().take();
        joiner.into_iter().for_each(Joiner::join);
    }
}

struct Body {
    inner: Arc<Inner>,
    stopping: Arc<AtomicBool>,
}

impl Task for Body {
    fn step(&mut self, _now: Nanos) -> Next {
        // Read first: what was recorded before the stop is stored.
        let stopping = self.stopping.load(SeqCst);
        self.inner.store_all();
        if stopping { Next::Finished } else { Next::At(Nanos::NEVER) }
    }
}
