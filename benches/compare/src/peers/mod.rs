//! The queues behind the few operations of the workloads. All calls are dispatched statically and inlined, so the
//! wrappers cost nothing.

pub(crate) mod delay_queue;
pub(crate) mod kube;
pub(crate) mod naive;
pub(crate) mod wheel;

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use homeostat::{Claim, Enqueue, Key, Shutdown, WorkQueue};

use self::naive::Naive;

/// The producer's end of a queue.
pub(crate) trait Feed<K>: Clone + Send + Sync + 'static {
    fn put(&self, key: K);

    /// Closes the queue. Consumers end once all ready keys are served.
    fn close(self);
}

/// The consumer's end of a queue.
pub(crate) trait Take<K>: Clone + Send + Sync + 'static {
    type Taken: Send;

    fn try_take(&self) -> Option<Self::Taken>;

    /// Blocks until a key is ready. `None` once the queue is closed and empty.
    fn take(&self) -> Option<Self::Taken>;

    fn done(&self, taken: Self::Taken);
}

impl<K: Key, S: BuildHasher + Clone + Send + Sync + 'static> Feed<K> for WorkQueue<K, S> {
    #[inline(always)]
    fn put(&self, key: K) {
        self.enqueue(key);
    }

    fn close(self) {
        self.shutdown(Shutdown::ServeReady);
    }
}

impl<K: Key, S: BuildHasher + Clone + Send + Sync + 'static> Take<K> for WorkQueue<K, S> {
    type Taken = Claim<K>;

    #[inline(always)]
    fn try_take(&self) -> Option<Claim<K>> {
        self.try_dequeue().ok()
    }

    #[inline(always)]
    fn take(&self) -> Option<Claim<K>> {
        self.dequeue().ok()
    }

    #[inline(always)]
    fn done(&self, taken: Claim<K>) {
        taken.done();
    }
}

impl<K, S> Feed<K> for Arc<Naive<K, S>>
where
    K: Clone + Eq + Hash + Send + 'static,
    S: BuildHasher + Default + Send + 'static,
{
    #[inline(always)]
    fn put(&self, key: K) {
        self.enqueue(key);
    }

    fn close(self) {
        Naive::close(&self);
    }
}

impl<K, S> Take<K> for Arc<Naive<K, S>>
where
    K: Clone + Eq + Hash + Send + 'static,
    S: BuildHasher + Default + Send + 'static,
{
    type Taken = K;

    #[inline(always)]
    fn try_take(&self) -> Option<K> {
        self.try_get()
    }

    #[inline(always)]
    fn take(&self) -> Option<K> {
        self.get()
    }

    #[inline(always)]
    fn done(&self, taken: K) {
        Naive::done(self, taken);
    }
}

impl<K: Send + 'static> Feed<K> for crossbeam_channel::Sender<K> {
    #[inline(always)]
    fn put(&self, key: K) {
        // This fails only without receivers, and no workload drops them earlier.
        let _ = self.send(key);
    }

    /// The channel closes when all senders are dropped.
    fn close(self) {}
}

impl<K: Send + 'static> Take<K> for crossbeam_channel::Receiver<K> {
    type Taken = K;

    #[inline(always)]
    fn try_take(&self) -> Option<K> {
        self.try_recv().ok()
    }

    #[inline(always)]
    fn take(&self) -> Option<K> {
        self.recv().ok()
    }

    #[inline(always)]
    fn done(&self, _taken: K) {}
}

/// A timer with one consumer thread, which receives keys once they are due.
///
/// The consumer calls `fire` for each key, and ends when it returns `false`.
pub(crate) trait Delays: Sized {
    fn start(fire: impl FnMut(u64) -> bool + Send + 'static) -> Self;

    fn set(&self, key: u64, delay: Duration);

    /// Calls `setting`, which calls [`set`](Self::set) many times.
    fn while_setting(&self, setting: impl FnOnce(&Self)) {
        setting(self);
    }

    /// Waits for the consumer to end.
    fn join(self);
}

/// Takes keys until `fire` returns `false`.
fn consume<K: Copy, T: Take<K>>(from: &T, key: impl Fn(&T::Taken) -> K, mut fire: impl FnMut(K) -> bool) {
    while let Some(taken) = from.take() {
        let go_on = fire(key(&taken));
        from.done(taken);
        if !go_on {
            return;
        }
    }
}

pub(crate) fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

pub(crate) struct HomeostatDelays {
    queue: WorkQueue<u64>,
    consumer: JoinHandle<()>,
}

impl Delays for HomeostatDelays {
    fn start(fire: impl FnMut(u64) -> bool + Send + 'static) -> Self {
        let queue = WorkQueue::new();
        let consumer = thread::spawn({
            let queue = queue.clone();
            move || consume(&queue, |claim: &Claim<u64>| **claim, fire)
        });
        Self { queue, consumer }
    }

    fn set(&self, key: u64, delay: Duration) {
        self.queue.enqueue_after(key, delay);
    }

    fn join(self) {
        join(self.consumer);
    }
}

pub(crate) struct NaiveDelays {
    delays: naive::Delays<u64, foldhash::fast::RandomState>,
    consumer: JoinHandle<()>,
}

impl Delays for NaiveDelays {
    fn start(fire: impl FnMut(u64) -> bool + Send + 'static) -> Self {
        let queue = Arc::new(Naive::new());
        let delays = naive::Delays::new(Arc::clone(&queue));
        let consumer = thread::spawn(move || consume(&queue, |key: &u64| *key, fire));
        Self { delays, consumer }
    }

    fn set(&self, key: u64, delay: Duration) {
        self.delays.enqueue_after(key, delay);
    }

    fn join(self) {
        join(self.consumer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Every peer fires every key exactly once and not early, even a key that is set twice.
    fn fires<D: Delays>() {
        let start = Instant::now();
        let (fired, seen) = crossbeam_channel::unbounded();
        let delays = D::start(move |key| {
            let _ = fired.send((key, Instant::now()));
            key != 3
        });
        delays.while_setting(|delays| {
            delays.set(3, Duration::from_millis(120));
            delays.set(1, Duration::from_millis(20));
            delays.set(2, Duration::from_millis(70));
        });
        delays.join();
        let seen: Vec<_> = seen.iter().collect();
        assert_eq!(seen.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [1, 2, 3]);
        for ((_, at), delay) in seen.iter().zip([20, 70, 120]) {
            assert!(*at - start >= Duration::from_millis(delay), "early: {:?}", *at - start);
        }
    }

    #[test]
    fn every_peer_keeps_delays() {
        fires::<HomeostatDelays>();
        fires::<NaiveDelays>();
        fires::<delay_queue::Timer>();
        fires::<kube::Timer>();
        fires::<wheel::Timer>();
    }
}
