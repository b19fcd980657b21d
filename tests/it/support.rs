//! Helpers for tests.

use std::fmt::Debug;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use homeostat_test_support::system::in_a_process_of_its_own;

use crate::until::until;
use crossbeam_channel::Receiver;
use homeostat::queue::WorkQueueBuilder;
use homeostat::rt::{AutoResetEvent, Nanos, Next, Task, ThreadGroup, ThreadGroupKind};
use homeostat::{Claim, Clock, Component, Exponential, Key, ManualClock, Running, Shutdown, ThreadOptions, WorkQueue};
use parking_lot::Mutex;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A builder of a queue on a held clock. The backoff is 1 s, 2 s, 4 s, … without jitter.
pub(crate) fn held_builder<K: Key>() -> (ManualClock, WorkQueueBuilder<K>) {
    let clock = ManualClock::new();
    let backoff = Exponential::new(SECOND, 1000 * SECOND).jitter(0.0);
    let builder = WorkQueue::builder().clock(clock.clock()).backoff(backoff);
    (clock, builder)
}

/// A queue on a held clock.
pub(crate) fn held<K: Key>() -> (ManualClock, WorkQueue<K>) {
    let (clock, builder) = held_builder();
    (clock, builder.build())
}

/// Takes the next key, which must be ready.
#[track_caller]
pub(crate) fn take<K: Key + Debug>(queue: &WorkQueue<K>) -> Claim<K> {
    match queue.try_dequeue() {
        Ok(claim) => claim,
        Err(error) => panic!("{error}: {queue:?}"),
    }
}

/// Takes and finishes keys until none is ready, and returns them in order.
pub(crate) fn serve<K: Key>(queue: &WorkQueue<K>) -> Vec<K> {
    let claims = std::iter::from_fn(|| queue.try_dequeue().ok());
    claims
        .map(|claim| {
            let key = claim.key().clone();
            claim.done();
            key
        })
        .collect()
}

/// The counts of ready, delayed and processing keys.
pub(crate) fn counts<K: Key>(queue: &WorkQueue<K>) -> [usize; 3] {
    [queue.len(), queue.metrics().delayed, queue.metrics().processing]
}

/// Shuts a queue down on drop, so that waiting threads end when a test fails.
pub(crate) struct Close<'a, K: Key>(pub(crate) &'a WorkQueue<K>);

impl<K: Key> Drop for Close<'_, K> {
    fn drop(&mut self) {
        self.0.shutdown(Shutdown::Discard);
    }
}

/// Returns the threads of this process with `part` in their names. The system shows the role and the number first and
/// keeps 15 characters, so give the threads of a test names that no other test uses.
pub(crate) fn threads(part: &str) -> Vec<String> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { panic!("this system has no list of threads") };
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).filter(|name| name.contains(part)).collect()
}

/// Waits until no thread has `part` in its name. A thread sets its name itself, so it must have begun.
pub(crate) fn until_threads_end(part: &str) {
    until("the threads have ended", || threads(part).is_empty());
}

/// Returns a component that calls `on_stop` on the thread that stops it, and ends once `ended` is closed.
pub(crate) fn with_stop_hook(name: &str, on_stop: impl FnOnce() + Send + 'static, ended: Receiver<()>) -> Component {
    let group = ThreadGroup::new(ThreadGroupKind::Component, name.to_owned(), Clock::system(), 1);
    let (event, hook) = (AutoResetEvent::new(Clock::system()), Mutex::new(Some(on_stop)));
    let task = Ends(Arc::clone(&group), ended);
    let on_stop = move || {
        let hook = hook.lock().take();
        if let Some(hook) = hook {
            hook();
        }
    };
    let handle = group.start_one(&ThreadOptions::new(), task, event, None, on_stop);
    let Ok(handle) = handle else { panic!("the system refuses a thread") };
    Component::running(name, Running::new((), handle, Duration::MAX))
}

/// The task of a component that ends once it is stopped and the channel is closed.
struct Ends(Arc<ThreadGroup>, Receiver<()>);

impl Task for Ends {
    fn step(&mut self, _now: Nanos) -> Next {
        if !self.0.is_stopping() {
            return Next::At(Nanos::NEVER);
        }
        let _ = self.1.recv();
        Next::Finished
    }
}
