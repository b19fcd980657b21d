//! Turning a queue's timer wheel: on a timer thread by the system clock, or by the advance of a held clock.
//!
//! A queue starts its own timer thread with its first delay, unless it uses a [`TaskThread`] together with other
//! queues.
//!
//! # Invariants
//!
//! - The timer turns the wheel no later than the time that the queue has noted. A request that sets an earlier time
//!   wakes the timer after it has released the lock.
//! - If the system refuses the timer thread, each later locked section and each sleeping consumer tries again while
//!   delays are pending.

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::Key;
use super::request::BATCH;
use super::shared::{Locked, QueueShared, TimerAction, TimerThread};
use crate::base::task::{Next, Task};
use crate::base::task_thread::TaskThread;
use crate::base::thread::shielded;
use crate::base::time::{Nanos, Rounded};

/// The pause after the first refusal of a thread. It doubles with each further refusal.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause between two attempts to start a thread.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl<K: Key> QueueShared<K> {
    /// Makes due keys ready, at most [`BATCH`] of them. Returns when to call this again.
    pub(crate) fn turn_wheel(self: &Arc<Self>) -> Nanos {
        let mut gone = Vec::new();
        let next = self.with_lock(|section| {
            let now = self.now();
            let (records, effects, _) = section.parts();
            let next = records.expire(now, BATCH, &mut gone, effects);
            let locked = &mut **section.guard;
            locked.turn_at = next;
            let clock = &self.config.clock;
            if next == Nanos::NEVER {
                clock.clear_alarm(&mut locked.alarm);
            } else if clock.is_held() {
                let queue = Arc::clone(self);
                clock.set_alarm(&mut locked.alarm, next, move || queue.turn_up());
            }
            next
        });
        // After the lock. A key that panics when it drops must not end the timer.
        match &self.hooks.on_forgotten {
            Some(hook) if !gone.is_empty() => hook(gone),
            _ => shielded("the drop of a key", || drop(gone)),
        }
        next
    }

    /// Makes all due keys ready.
    pub(super) fn turn_up(self: &Arc<Self>) {
        while self.turn_wheel() <= self.now() {}
    }

    /// Arms the timer for `at`, which is sooner than before. Returns the action that follows once the lock is released.
    pub(super) fn rearm(self: &Arc<Self>, locked: &mut Locked<K>, at: Nanos) -> TimerAction {
        let clock = &self.config.clock;
        if clock.is_held() {
            let queue = Arc::clone(self);
            return if clock.set_alarm(&mut locked.alarm, at, move || queue.turn_up()) {
                TimerAction::TurnNow
            } else {
                TimerAction::None
            };
        }
        match locked.timer {
            TimerThread::None => TimerAction::StartThread,
            // `retry_timer` decides when to ask for a thread again.
            TimerThread::Refused(_) => TimerAction::None,
            TimerThread::Running(_) => TimerAction::Wake,
        }
    }

    /// Wakes the timer thread, which then turns the wheel and sleeps until the next delay ends.
    pub(super) fn wake_timer(&self) {
        if let Some(timer) = self.timer.get() {
            timer.set();
        }
    }

    /// Turns the wheel on `thread` until the queue is shut down. Does nothing on a held clock, after a shutdown, or if
    /// the queue has a timer thread already.
    ///
    /// # Errors
    ///
    /// If `thread` has been stopped, or if the system refuses it.
    pub(crate) fn use_timer(self: &Arc<Self>, thread: &TaskThread) -> io::Result<()> {
        self.add_timer(&mut self.locked.lock(), thread)
    }

    /// Locked throughout: once the task has been added, every earlier deadline wakes its thread.
    fn add_timer(self: &Arc<Self>, locked: &mut Locked<K>, thread: &TaskThread) -> io::Result<()> {
        let is_needed = !self.config.clock.is_held() && locked.records.mode().is_none();
        if let (true, TimerThread::None | TimerThread::Refused(_)) = (is_needed, &locked.timer) {
            let waker = thread.waker();
            locked.timer = TimerThread::Running(waker.add(&self.timer_name(), TurnWheel(Arc::clone(self)))?);
            let _ = self.timer.set(waker);
            (locked.refusals, locked.restless) = (0, false);
        }
        Ok(())
    }

    fn timer_name(&self) -> String {
        format!("{}-timer", self.config.name)
    }

    /// Blocks until the queue's timer has ended. The queue must be shut down.
    pub(crate) fn join_timer(&self) {
        let timer = mem::replace(&mut self.locked.lock().timer, TimerThread::None);
        if let TimerThread::Running(timer) = timer {
            timer.join();
        }
    }

    /// Returns whether to try again to start a refused timer thread. If so, the caller calls
    /// [`start_timer`](Self::start_timer) without the lock.
    pub(super) fn retry_timer(&self, locked: &Locked<K>) -> bool {
        self.config.clock.reached(locked.retry_timer_at())
    }

    /// Starts the queue's own timer thread, unless another thread has started it or was refused meanwhile.
    pub(super) fn start_timer(self: &Arc<Self>) {
        // Stopped at the end of this function, so it ends with its only task.
        let thread = TaskThread::new(self.timer_name(), self.config.threads.clone(), self.config.clock.clone());
        let (error, pause, consumers) = {
            let mut locked = self.locked.lock();
            if matches!(locked.timer, TimerThread::Refused(_)) && !self.retry_timer(&locked) {
                return;
            }
            let Err(error) = self.add_timer(&mut locked, &thread) else { return };
            let pause = LONGEST_PAUSE.min(FIRST_PAUSE.saturating_mul(1 << locked.refusals.min(16)));
            locked.refusals += 1;
            locked.timer = TimerThread::Refused(self.now().after(pause));
            locked.turn_at = Nanos::NEVER;
            locked.restless = true;
            // From now on consumers sleep no longer than until the next attempt.
            (error, pause, locked.consumers.mark_woken(usize::MAX, &self.config.clock))
        };
        self.consumers.notify(consumers);
        let (queue, backoff) = (self.config.name.as_str(), Rounded(pause));
        log::error!(queue, error:%, backoff:%; "{queue}: cannot start the timer thread, so delayed keys do not run; next attempt in {backoff}: {error}");
    }
}

impl<K> Locked<K> {
    /// Returns the time of the next attempt to start a refused timer thread; [`Nanos::NEVER`] without a delay or a
    /// refusal.
    pub(super) fn retry_timer_at(&self) -> Nanos {
        match self.timer {
            TimerThread::Refused(again) if self.records.next_turn() < Nanos::NEVER => again,
            _ => Nanos::NEVER,
        }
    }
}

/// The task of a timer thread.
struct TurnWheel<K: Key>(Arc<QueueShared<K>>);

impl<K: Key> Task for TurnWheel<K> {
    fn step(&mut self, _now: Nanos) -> Next {
        if self.0.locked.lock().records.mode().is_some() {
            return Next::Finished;
        }
        Next::At(self.0.turn_wheel())
    }
}
