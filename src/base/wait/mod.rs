//! Blocking waits: a condition variable that counts its waiting threads.
//!
//! # Vocabulary and counters
//!
//! A waiting thread is *asleep* until another thread decides to wake it. Then it is *woken*, although it may not run for a while.
//! Both counts are protected by the mutex of the condition:
//!
//! - begin of a wait: `asleep += 1`.
//! - decision to wake a thread: `asleep -= 1, woken += 1`, and one notification after the lock is released.
//! - end of a wait, for any reason: `woken -= 1` if it is above zero, otherwise `asleep -= 1`.
//!
//! Thus `asleep + woken` is the number of threads inside the wait. At least `woken` notifications are on their way or have
//! reached a thread. No notification is lost if a thread times out at that moment, because a thread that leaves checks the
//! condition again. Notifications are sent only if `asleep > 0`.
//!
//! On a held clock, the same counts show when the tested threads have fallen asleep.

#[cfg(all(test, loom))]
mod models;

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::{Clock, Wake};
use crate::base::sync::{Condvar, Mutex, MutexGuard};
use crate::base::thread::shielded;
use crate::base::time::Nanos;

/// The counts of one condition, protected by the mutex of the condition.
#[derive(Debug, Default)]
pub(crate) struct WaiterCounts {
    asleep: usize,
    woken: usize,
}

impl WaiterCounts {
    pub(crate) fn asleep(&self) -> usize {
        self.asleep
    }

    /// Decides to wake up to `most` threads. After releasing the lock, the caller sends that many notifications.
    #[inline]
    pub(crate) fn mark_woken(&mut self, most: usize, clock: &Clock) -> usize {
        let count = most.min(self.asleep);
        if count > 0 {
            self.asleep -= count;
            self.woken += count;
            clock.count_out(count);
        }
        count
    }
}

/// The condition variable of one [`WaiterCounts`].
#[derive(Debug)]
pub(crate) struct Waiters(Condvar);

impl Waiters {
    pub(crate) fn new() -> Self {
        Self(Condvar::new())
    }

    /// Sends the notifications that [`WaiterCounts::mark_woken`] returned.
    pub(crate) fn notify(&self, count: usize) {
        for _ in 0..count {
            self.0.notify_one();
        }
    }

    /// Blocks until woken or until `deadline`. The caller must then check its condition and the clock again.
    ///
    /// A held clock calls the waker from `timeout` at `deadline`. It must wake these threads.
    pub(crate) fn wait<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        sleepers: impl Fn(&mut T) -> &mut WaiterCounts,
        clock: &Clock,
        deadline: Nanos,
        timeout: impl FnOnce() -> Arc<dyn Wake>,
    ) {
        let Some(nap) = clock.fall_asleep(deadline, timeout) else {
            return;
        };
        sleepers(guard).asleep += 1;
        clock.sleep(&self.0, guard, deadline);
        let counts = sleepers(guard);
        if counts.woken > 0 {
            counts.woken -= 1;
        } else {
            counts.asleep -= 1;
            clock.count_out(1);
        }
        clock.wake_up(nap);
    }
}

/// An event for one waiting thread. It stays set until that thread has seen it.
#[derive(Debug)]
pub(crate) struct AutoResetEvent {
    state: Mutex<EventState>,
    waiters: Waiters,
    clock: Clock,
}

#[derive(Debug, Default)]
struct EventState {
    set: bool,
    sleepers: WaiterCounts,
}

impl AutoResetEvent {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(EventState::default()), waiters: Waiters::new(), clock })
    }

    pub(crate) fn set(&self) {
        let count = {
            let mut state = self.state.lock();
            state.set = true;
            state.sleepers.mark_woken(usize::MAX, &self.clock)
        };
        self.waiters.notify(count);
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    #[cfg(feature = "testing")]
    pub(crate) fn is_set(&self) -> bool {
        self.state.lock().set
    }

    pub(crate) fn clear(&self) {
        self.state.lock().set = false;
    }

    /// Blocks until the event is set or `deadline` has passed, and clears it. Returns whether it was set.
    pub(crate) fn wait_until(self: &Arc<Self>, deadline: Nanos) -> bool {
        let mut state = self.state.lock();
        loop {
            if std::mem::take(&mut state.set) {
                return true;
            }
            if self.clock.reached(deadline) {
                return false;
            }
            self.waiters.wait(
                &mut state,
                |state| &mut state.sleepers,
                &self.clock,
                deadline,
                || Arc::clone(self) as Arc<dyn Wake>,
            );
        }
    }
}

impl Wake for AutoResetEvent {
    fn wake(&self) {
        let count = self.state.lock().sleepers.mark_woken(usize::MAX, &self.clock);
        self.waiters.notify(count);
    }
}

/// A one-time event with an outcome, true or false. Any number of threads may wait for it.
pub(crate) struct Latch {
    state: Mutex<LatchState>,
    waiters: Waiters,
    clock: Clock,
}

#[derive(Default)]
struct LatchState {
    /// The outcome, once it is set.
    known: Option<bool>,
    sleepers: WaiterCounts,
    /// Callbacks for the outcome. Empty once it is set.
    calls: Vec<LatchCallback>,
}

/// The name of the callbacks in log lines.
const CALL: &str = "a callback of a latch";

/// Called with the outcome.
pub(crate) type LatchCallback = Box<dyn FnOnce(bool) + Send>;

impl Latch {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(LatchState::default()), waiters: Waiters::new(), clock })
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sets the outcome. Only the first call counts. Call it without a lock, because it runs the callbacks.
    pub(crate) fn set(&self, truth: bool) {
        let (truth, calls, count) = {
            let mut state = self.state.lock();
            let truth = *state.known.get_or_insert(truth);
            (truth, std::mem::take(&mut state.calls), state.sleepers.mark_woken(usize::MAX, &self.clock))
        };
        self.waiters.notify(count);
        for call in calls {
            shielded(CALL, || call(truth));
        }
    }

    /// Calls `call` once with the outcome: on the thread that sets the latch, or at once if it is already set. No lock is held
    /// during the call. A panic of `call` is logged. If the latch is never set, `call` is dropped with it.
    pub(crate) fn on_set(&self, call: LatchCallback) {
        let truth = {
            let mut state = self.state.lock();
            let Some(truth) = state.known else {
                state.calls.push(call);
                return;
            };
            truth
        };
        shielded(CALL, || call(truth));
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state.lock().known == Some(true)
    }

    /// Returns whether the outcome is false.
    pub(crate) fn is_given_up(&self) -> bool {
        self.state.lock().known == Some(false)
    }

    /// Blocks until the latch is set or `deadline` has passed. Returns whether the outcome is true.
    pub(crate) fn wait_until(self: &Arc<Self>, deadline: Nanos) -> bool {
        let mut state = self.state.lock();
        while state.known.is_none() && !self.clock.reached(deadline) {
            self.waiters.wait(
                &mut state,
                |state| &mut state.sleepers,
                &self.clock,
                deadline,
                || Arc::clone(self) as Arc<dyn Wake>,
            );
        }
        state.known == Some(true)
    }

    /// Like [`wait_until`](Self::wait_until), for at most `timeout` from now.
    pub(crate) fn wait_for(self: &Arc<Self>, timeout: Duration) -> bool {
        self.wait_until(self.clock.nanos().after(timeout))
    }
}

impl Wake for Latch {
    fn wake(&self) {
        let count = self.state.lock().sleepers.mark_woken(usize::MAX, &self.clock);
        self.waiters.notify(count);
    }
}

/// Called each time a source has delivered keys to its queue.
pub(crate) type Progress = Box<dyn Fn() + Send + Sync>;

/// Returns whether a source has delivered everything that it had accepted when this was created.
pub(crate) type HandedOver = Box<dyn Fn() -> bool + Send>;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn latch() -> (Arc<Latch>, mpsc::Sender<bool>, mpsc::Receiver<bool>) {
        let (said, heard) = mpsc::channel();
        (Latch::new(Clock::system()), said, heard)
    }

    fn say(said: &mpsc::Sender<bool>) -> LatchCallback {
        let said = said.clone();
        Box::new(move |truth| {
            let _ = said.send(truth);
        })
    }

    #[test]
    fn callbacks_run_once_at_the_set_and_immediately_afterwards() {
        for truth in [true, false] {
            let (latch, said, heard) = latch();
            latch.on_set(say(&said));
            latch.on_set(say(&said));
            assert!(heard.try_recv().is_err());
            latch.set(truth);
            assert_eq!(heard.try_iter().collect::<Vec<_>>(), [truth; 2]);
            latch.set(!truth);
            assert!(heard.try_recv().is_err());
            latch.on_set(say(&said));
            assert_eq!(heard.try_iter().collect::<Vec<_>>(), [truth], "what has been said first stands");
        }
    }

    #[test]
    fn a_callback_may_use_its_latch() {
        let (latch, said, heard) = latch();
        let (own, say) = (Arc::clone(&latch), say(&said));
        latch.on_set(Box::new(move |_| {
            own.set(false);
            assert!(own.is_open());
            own.on_set(say);
        }));
        latch.set(true);
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [true]);
    }

    #[test]
    fn a_panicking_callback_affects_no_other_code() {
        let (latch, said, heard) = latch();
        latch.on_set(Box::new(|_| panic!("out of luck")));
        latch.on_set(say(&said));
        latch.set(true);
        latch.on_set(Box::new(|_| panic!("out of luck again")));
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [true]);
    }
}
