//! Blocking waits: a condition variable that counts its waiting threads.
//!
//! # Vocabulary and counters
//!
//! A waiting thread is *asleep* until another thread decides to wake it. Then it is *woken*, although it may not run
//! for a while. Both counts are protected by the mutex of the condition:
//!
//! - begin of a wait: `asleep += 1`.
//! - decision to wake a thread: `asleep -= 1, woken += 1`, and one notification after the lock is released.
//! - end of a wait, for any reason: `woken -= 1` if it is above zero, otherwise `asleep -= 1`.
//!
//! Thus `asleep + woken` is the number of threads inside the wait. At least `woken` notifications are on their way or
//! have reached a thread. No notification is lost if a thread times out at that moment, because a thread that leaves
//! checks the condition again. Notifications are sent only if `asleep > 0`.
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
        timeout: impl FnOnce() -> Wake,
    ) {
        let Some(mut nap) = clock.fall_asleep(deadline, timeout) else {
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
        clock.clear_alarm(&mut nap.0);
    }
}

/// A value behind a lock. Threads wait until it has changed.
///
/// Waits follow its clock: on a held clock, they end when a test advances it; in a simulation, other tasks run
/// meanwhile.
///
/// # Examples
///
/// ```
/// use homeostat::Clock;
/// use homeostat::rt::{Monitor, Nanos};
///
/// let answers = Monitor::of(Clock::system(), Vec::new());
/// std::thread::scope(|scope| {
///     scope.spawn(|| answers.change(|answers| answers.push("pong")));
///     assert_eq!(answers.wait_for_some(Nanos::NEVER, Vec::pop), Some("pong"));
/// });
/// ```
#[derive(Debug)]
pub struct Monitor<S> {
    state: Mutex<MonitorState<S>>,
    waiters: Waiters,
    clock: Clock,
}

#[derive(Debug)]
struct MonitorState<S> {
    value: S,
    sleepers: WaiterCounts,
}

impl<S: Send + 'static> Monitor<S> {
    /// Creates a monitor of `value`. Waits for it use `clock`.
    pub fn of(clock: Clock, value: S) -> Arc<Self> {
        let state = Mutex::new(MonitorState { value, sleepers: WaiterCounts::default() });
        Arc::new(Self { state, waiters: Waiters::new(), clock })
    }

    /// Returns the clock of its waits.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Calls `access` under the lock. Wakes no thread.
    pub fn with<R>(&self, access: impl FnOnce(&mut S) -> R) -> R {
        access(&mut self.state.lock().value)
    }

    /// Calls `change` under the lock, then wakes all waiting threads.
    pub fn change<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        let (result, count) = {
            let mut state = self.state.lock();
            let result = change(&mut state.value);
            (result, state.sleepers.mark_woken(usize::MAX, &self.clock))
        };
        self.waiters.notify(count);
        result
    }

    /// Blocks until `check` returns a value, and returns that value. Returns `None` once `deadline` has passed.
    ///
    /// Each [`change`](Self::change) wakes it. Calls `check` under the lock, first at once.
    pub fn wait_for_some<R>(
        self: &Arc<Self>,
        deadline: Nanos,
        mut check: impl FnMut(&mut S) -> Option<R>,
    ) -> Option<R> {
        let mut state = self.state.lock();
        loop {
            if let Some(found) = check(&mut state.value) {
                return Some(found);
            }
            if self.clock.reached(deadline) {
                return None;
            }
            let waker = || -> Wake {
                let monitor = Arc::clone(self);
                Box::new(move || monitor.change(|_| ()))
            };
            self.waiters.wait(&mut state, |state| &mut state.sleepers, &self.clock, deadline, waker);
        }
    }
}

/// An event for one waiting thread. It stays set until that thread has seen it.
///
/// # Examples
///
/// ```
/// use homeostat::rt::{AutoResetEvent, Nanos};
/// use homeostat::Clock;
///
/// let event = AutoResetEvent::new(Clock::system());
/// event.set();
/// assert!(event.wait_until(Nanos::NEVER));
/// assert!(!event.wait_until(Nanos::ZERO), "the first wait has cleared it");
/// ```
pub type AutoResetEvent = Monitor<bool>;

impl AutoResetEvent {
    /// Creates an event that is not set.
    #[must_use]
    pub fn new(clock: Clock) -> Arc<Self> {
        Self::of(clock, false)
    }

    /// Sets the event, and wakes the thread that waits for it.
    pub fn set(&self) {
        self.change(|set| *set = true);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.with(|set| *set)
    }

    pub(crate) fn clear(&self) {
        self.with(|set| *set = false);
    }

    /// Blocks until the event is set or `deadline` has passed, and clears it. Returns whether it was set.
    pub fn wait_until(self: &Arc<Self>, deadline: Nanos) -> bool {
        self.wait_for_some(deadline, |set| std::mem::take(set).then_some(())).is_some()
    }
}

/// A one-time event with an outcome, true or false. Any number of threads may wait for it.
pub(crate) type Latch = Monitor<LatchState>;

#[derive(Default)]
pub(crate) struct LatchState {
    /// The outcome, once it is set.
    known: Option<bool>,
    /// Callbacks for the outcome. Empty once it is set.
    calls: Vec<LatchCallback>,
}

/// The name of the callbacks in log lines.
const CALL: &str = "a callback of a latch";

/// Called with the outcome.
pub(crate) type LatchCallback = Box<dyn FnOnce(bool) + Send>;

impl Latch {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Self::of(clock, LatchState::default())
    }

    /// Sets the outcome. Only the first call counts. Call it without a lock, because it runs the callbacks.
    pub(crate) fn set(&self, truth: bool) {
        let (truth, calls) = self.change(|state| (*state.known.get_or_insert(truth), std::mem::take(&mut state.calls)));
        for call in calls {
            shielded(CALL, || call(truth));
        }
    }

    /// Calls `call` once with the outcome: on the thread that sets the latch, or at once if it is already set. No lock
    /// is held during the call. A panic of `call` is logged. If the latch is never set, `call` is dropped with it.
    pub(crate) fn on_set(&self, call: LatchCallback) {
        let mut call = Some(call);
        let known = self.with(|state| {
            if state.known.is_none() {
                state.calls.extend(call.take());
            }
            state.known
        });
        if let (Some(truth), Some(call)) = (known, call) {
            shielded(CALL, || call(truth));
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.with(|state| state.known == Some(true))
    }

    /// Returns whether the outcome is false.
    pub(crate) fn is_given_up(&self) -> bool {
        self.with(|state| state.known == Some(false))
    }

    /// Blocks until the latch is set or `deadline` has passed. Returns whether the outcome is true.
    pub(crate) fn wait_until(self: &Arc<Self>, deadline: Nanos) -> bool {
        self.wait_for_some(deadline, |state| state.known) == Some(true)
    }

    /// Like [`wait_until`](Self::wait_until), for at most `timeout` from now.
    pub(crate) fn wait_for(self: &Arc<Self>, timeout: Duration) -> bool {
        self.wait_until(self.clock.nanos().after(timeout))
    }
}

/// Called each time a source has delivered keys to its queue.
pub(crate) type Progress = Box<dyn Fn() + Send + Sync>;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn latch() -> (Arc<Latch>, mpsc::Sender<bool>, mpsc::Receiver<bool>) {
        let (report, reported) = mpsc::channel();
        (Latch::new(Clock::system()), report, reported)
    }

    fn say(report: &mpsc::Sender<bool>) -> LatchCallback {
        let report = report.clone();
        Box::new(move |truth| {
            let _ = report.send(truth);
        })
    }

    #[test]
    fn callbacks_run_once_at_the_set_and_immediately_afterwards() {
        for truth in [true, false] {
            let (latch, report, reported) = latch();
            latch.on_set(say(&report));
            latch.on_set(say(&report));
            assert!(reported.try_recv().is_err());
            latch.set(truth);
            assert_eq!(reported.try_iter().collect::<Vec<_>>(), [truth; 2]);
            latch.set(!truth);
            assert!(reported.try_recv().is_err());
            latch.on_set(say(&report));
            assert_eq!(reported.try_iter().collect::<Vec<_>>(), [truth], "what has been said first stands");
        }
    }

    #[test]
    fn a_callback_may_use_its_latch() {
        let (latch, report, reported) = latch();
        let (own, say) = (Arc::clone(&latch), say(&report));
        latch.on_set(Box::new(move |_| {
            own.set(false);
            assert!(own.is_open());
            own.on_set(say);
        }));
        latch.set(true);
        assert_eq!(reported.try_iter().collect::<Vec<_>>(), [true]);
    }

    #[test]
    fn a_panicking_callback_affects_no_other_code() {
        let (latch, report, reported) = latch();
        latch.on_set(Box::new(|_| panic!("out of luck")));
        latch.on_set(say(&report));
        latch.set(true);
        latch.on_set(Box::new(|_| panic!("out of luck again")));
        assert_eq!(reported.try_iter().collect::<Vec<_>>(), [true]);
    }
}
