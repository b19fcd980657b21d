//! Systems that refuse threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, SystemTime};

use homeostat::base::{ManualClock, ThreadOptions};
use homeostat::rt::{Joiner, Nanos, Next, Scheduler, Task};

/// Returns options with which the system refuses each thread, and the names of the started threads. The names end once
/// the options are dropped.
pub(crate) fn no_threads() -> (ThreadOptions, Receiver<String>) {
    let (report, started) = channel();
    let options = ThreadOptions::new().on_start(move |name| {
        let _ = report.send(name.to_owned());
    });
    // No system has the memory for this stack.
    (options.stack_size(usize::MAX / 2), started)
}

/// A system that refuses the first threads, and then starts one for each task. Time does not pass.
pub(crate) struct Refusals {
    /// The number of threads that it still refuses.
    left: AtomicUsize,
    started: AtomicUsize,
}

impl Refusals {
    /// Creates a system that refuses this many threads.
    pub(crate) fn new(times: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(times), started: AtomicUsize::new(0) })
    }

    /// Returns a clock of the system.
    pub(crate) fn clock(self: &Arc<Self>) -> ManualClock {
        ManualClock::simulated(SystemTime::UNIX_EPOCH, Some(Arc::clone(self) as Arc<dyn Scheduler>))
    }

    /// Returns the number of threads that it still refuses.
    pub(crate) fn left(&self) -> usize {
        self.left.load(SeqCst)
    }

    /// Returns the number of threads that it has started.
    pub(crate) fn started(&self) -> usize {
        self.started.load(SeqCst)
    }
}

fn pause() {
    thread::park_timeout(Duration::from_millis(1));
}

impl Scheduler for Refusals {
    fn enter(self: Arc<Self>, clock: &ManualClock, name: String, mut task: Box<dyn Task>) -> io::Result<Joiner> {
        if self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "the test refuses it"));
        }
        self.started.fetch_add(1, SeqCst);
        let clock = clock.clone();
        ThreadOptions::new().spawn(name, move || {
            let mut next = Nanos::ZERO;
            loop {
                let now = clock.nanos();
                if task.due(next) > now {
                    pause();
                    continue;
                }
                match task.take_turn(now, 0, &|_| ()) {
                    Next::At(time) => next = time,
                    Next::Finished => return,
                }
            }
        })
    }

    fn pass(&self, _: &ManualClock) {
        pause();
    }

    fn draw(&self) -> u64 {
        0
    }

    fn seed(&self) -> u64 {
        0
    }
}
