//! What turns a queue's wheel: a thread by the system's clock, an alarm by a held one.

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::Key;
use super::records::BATCH;
use super::shared::{Locked, Shared};
use crate::base::clock::Wake;
use crate::base::task_thread::TaskThread;
use crate::base::thread::{Joiner, shielded};
use crate::base::time::{Nanos, Rounded};
use crate::base::wait::{Next, Task, run};

/// The timer thread, which starts with the first delay.
pub(super) enum TimerThread {
    None,
    Starting,
    /// The system gave no thread. The queue asks again at this time, or at its first use after it, as long as delays stand.
    Refused(Nanos),
    Running(Joiner),
}

/// Between a refusal and the next attempt: this long at first, then twice as long each time,
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// up to this long.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What is to be done once the lock is released, so that the wheel is turned in time.
#[derive(Clone, Copy)]
pub(super) enum Rearm {
    Leave,
    Start,
    /// The timer thread sleeps for too long.
    Wake,
    /// A held clock has passed the time meanwhile.
    TurnNow,
}

impl<K: Key> Shared<K> {
    /// Puts what is due in line; returns when to call again.
    pub(crate) fn turn_wheel(self: &Arc<Self>) -> Nanos {
        let mut gone = Vec::new();
        let next = self.hold(|hold| {
            let now = self.now();
            let (records, effects, _) = hold.parts();
            let next = records.expire(now, BATCH, &mut gone, effects);
            let locked = &mut *hold.guard;
            locked.turn_at = next;
            let clock = &self.config.clock;
            if next == Nanos::NEVER {
                clock.clear_alarm(&mut locked.alarm);
            } else if clock.is_held() {
                clock.set_alarm(&mut locked.alarm, next, Arc::new(Advanced(Arc::clone(self))));
            }
            next
        });
        for key in gone {
            shielded("the drop of a key", || drop(key));
        }
        next
    }

    /// Puts all that is due in line.
    pub(super) fn turn_up(self: &Arc<Self>) {
        while self.turn_wheel() <= self.now() {}
    }

    /// The timer must look at the wheel at `at`, which is sooner than it meant to.
    pub(super) fn rearm(self: &Arc<Self>, locked: &mut Locked<K>, at: Nanos) -> Rearm {
        let clock = &self.config.clock;
        if clock.is_held() {
            let wake = Arc::new(Advanced(Arc::clone(self)));
            return if clock.set_alarm(&mut locked.alarm, at, wake) { Rearm::TurnNow } else { Rearm::Leave };
        }
        if let TimerThread::None = locked.timer {
            locked.timer = TimerThread::Starting;
            return Rearm::Start;
        }
        // After a refusal, `retry_timer` decides.
        if let TimerThread::Refused(_) = locked.timer { Rearm::Leave } else { Rearm::Wake }
    }

    /// Wakes the timer thread, which then turns the wheel and sleeps until the next delay ends.
    pub(super) fn wake_timer(&self) {
        match self.shared_timer.get() {
            Some(waker) => waker.set(),
            None => self.timer.set(),
        }
    }

    /// Has `thread` turn the wheel until the queue is shut down. Does nothing on a held clock, where advancing the clock turns
    /// the wheel, and if the queue has a timer thread already.
    ///
    /// # Errors
    ///
    /// If `thread` has been stopped.
    #[allow(dead_code, reason = "for the controllers of a manager, which do not share a timer yet")]
    pub(crate) fn use_timer(self: &Arc<Self>, thread: &TaskThread) -> io::Result<()> {
        if self.config.clock.is_held() {
            return Ok(());
        }
        // Held throughout: from the moment that the task is there, every earlier deadline wakes its thread.
        let mut locked = self.locked.lock();
        if let TimerThread::None | TimerThread::Refused(_) = locked.timer {
            let waker = thread.waker();
            let name = format!("{}-timer", self.config.name);
            locked.timer = TimerThread::Running(thread.add(&waker, &name, TurnWheel(Arc::clone(self)))?);
            let _ = self.shared_timer.set(waker);
            locked.restless = locked.records.mode().is_some();
        }
        Ok(())
    }

    /// Whether it is time to ask again for a timer thread. The caller then calls [`start_timer`](Self::start_timer) without the lock.
    pub(super) fn retry_timer(&self, locked: &mut Locked<K>) -> bool {
        let retry = self.config.clock.reached(locked.retry_timer_at());
        if retry {
            locked.timer = TimerThread::Starting;
        }
        retry
    }

    /// Asks again for a timer thread that the system has refused, if it is time. Returns when to call this again; [`Nanos::NEVER`]
    /// until the system refuses one.
    pub(crate) fn keep_timer(self: &Arc<Self>) -> Nanos {
        let mut locked = self.locked.lock();
        if self.retry_timer(&mut locked) {
            drop(locked);
            self.start_timer();
            locked = self.locked.lock();
        }
        locked.retry_timer_at()
    }

    /// Starts the timer thread. The hold that asked for it has marked it as starting, so only one thread comes here.
    pub(super) fn start_timer(self: &Arc<Self>) {
        let task = TurnWheel(Arc::clone(self));
        let signal = Arc::clone(&self.timer);
        let name = format!("{}-timer", self.config.name);
        let timer = match self.thread_options().spawn(name, move || run(task, &signal)) {
            Ok(timer) => timer,
            Err(error) => {
                let queue = self.config.name.as_str();
                let (pause, consumers) = {
                    let mut locked = self.locked.lock();
                    let pause = LONGEST_PAUSE.min(FIRST_PAUSE.saturating_mul(1 << locked.refusals.min(16)));
                    locked.refusals += 1;
                    locked.timer = TimerThread::Refused(self.now().after(pause));
                    locked.turn_at = Nanos::NEVER;
                    locked.restless = true;
                    // They sleep no longer than until the next attempt from now on.
                    (pause, locked.consumers.rouse(usize::MAX, &self.config.clock))
                };
                self.consumers.ring(consumers);
                let backoff = Rounded(pause);
                log::error!(queue, error:%, backoff:%; "{queue}: cannot start the timer's thread, delays do not end, trying again in {backoff}: {error}");
                if let Some(hook) = &self.config.on_refusal {
                    hook();
                }
                return;
            }
        };
        let mut locked = self.locked.lock();
        locked.refusals = 0;
        locked.restless = locked.records.mode().is_some();
        if locked.handles > 0 {
            locked.timer = TimerThread::Running(timer);
        } else {
            // The last handle went meanwhile and had nothing to join.
            drop(locked);
            timer.join();
        }
    }
}

impl<K> Locked<K> {
    /// When to ask again for the timer thread that the system has refused; [`Nanos::NEVER`] if no delay stands, or none was refused.
    pub(super) fn retry_timer_at(&self) -> Nanos {
        match self.timer {
            TimerThread::Refused(again) if self.records.next_turn() < Nanos::NEVER => again,
            _ => Nanos::NEVER,
        }
    }
}

/// The timer thread's body.
struct TurnWheel<K: Key>(Arc<Shared<K>>);

impl<K: Key> Task for TurnWheel<K> {
    fn step(&mut self, _now: Nanos) -> Next {
        if self.0.locked.lock().records.mode().is_some() {
            return Next::Finished;
        }
        Next::At(self.0.turn_wheel())
    }
}

/// The time has come, on a held clock, for which a queue's wheel waits.
struct Advanced<K: Key>(Arc<Shared<K>>);

impl<K: Key> Wake for Advanced<K> {
    fn wake(&self) {
        self.0.turn_up();
    }
}
