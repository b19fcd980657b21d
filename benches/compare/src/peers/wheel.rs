//! `hierarchical_hash_wheel_timer`: a timer-wheel crate with recent releases and a real-time timer.
//!
//! Its thread fires into a channel, which the consumer reads. It does not remove duplicates.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::Sender;
use hierarchical_hash_wheel_timer::thread_timer::{TimerRef, TimerWithThread};
use hierarchical_hash_wheel_timer::{OneshotState, PeriodicState, Timer as _, TimerReturn};

use super::{Delays, consume, join};

/// The channel for due keys. It is static, so that an entry is no larger than its key.
static FIRED: OnceLock<Sender<u64>> = OnceLock::new();

#[derive(Debug)]
struct Entry(u64);

impl OneshotState for Entry {
    type Id = u64;

    fn id(&self) -> &u64 {
        &self.0
    }

    fn trigger(self) {
        if let Some(fired) = FIRED.get() {
            // This fails only after the consumer has ended.
            let _ = fired.send(self.0);
        }
    }
}

/// There are no periodic entries.
#[derive(Debug)]
enum Never {}

impl PeriodicState for Never {
    type Id = u64;

    fn id(&self) -> &u64 {
        match *self {}
    }

    fn trigger(self) -> TimerReturn<Self> {
        match self {}
    }
}

pub(crate) struct Timer {
    timer: RefCell<TimerRef<u64, Entry, Never>>,
    core: TimerWithThread<u64, Entry, Never>,
    consumer: JoinHandle<()>,
}

impl Delays for Timer {
    fn start(fire: impl FnMut(u64) -> bool + Send + 'static) -> Self {
        let (fired, seen) = crossbeam_channel::unbounded();
        assert!(FIRED.set(fired).is_ok(), "one timer of this kind in a process");
        let consumer = thread::spawn(move || consume(&seen, |key: &u64| *key, fire));
        let core = TimerWithThread::new().expect("the system gives a thread");
        Self { timer: RefCell::new(core.timer_ref()), core, consumer }
    }

    fn set(&self, key: u64, delay: Duration) {
        self.timer.borrow_mut().schedule_once(delay, Entry(key));
    }

    fn join(self) {
        join(self.consumer);
        self.core.shutdown().expect("the timer thread ends");
    }
}
