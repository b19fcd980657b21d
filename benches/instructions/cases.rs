//! The counted cases: the queue's hot path, with the same keys and hashes in every run.

#![expect(clippy::expect_used, reason = "a case ends where its premise fails")]

use std::convert::Infallible;
use std::hint::black_box;
use std::mem::forget;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::FixedState;
use homeostat::queue::{EnqueueMethod, WorkQueueBuilder};
use homeostat::{Action, Context, Enqueue, Key, ManualClock, Shutdown, WorkQueue, Workers};

use crate::keys::BenchKey;

/// The number of operations in a round: one for each key.
pub(crate) const KEYS: usize = 1_000;
/// The largest number of rounds of a case.
pub(crate) const MOST_ROUNDS: usize = 8;

const MISSING: &str = "a key that was enqueued is in line";

/// A counted case.
pub(crate) struct Case {
    what: &'static str,
    key: &'static str,
    /// Sets up, warms up, and runs this many rounds. Set-up and warm-up always cost the same.
    pub(crate) run: fn(usize),
}

impl Case {
    const fn of<K: BenchKey>(what: &'static str, run: fn(usize)) -> Self {
        Self { what, key: K::NAME, run }
    }

    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.what, self.key)
    }
}

pub(crate) const CASES: [Case; 9] = [
    Case::of::<u64>("cycle", cycle::<u64>),
    Case::of::<Arc<str>>("cycle", cycle::<Arc<str>>),
    Case::of::<String>("cycle", cycle::<String>),
    Case::of::<u64>("worker-cycle", worker_cycle),
    Case::of::<u64>("duplicate", duplicate),
    Case::of::<String>("duplicate-by-ref", duplicate_by_ref),
    Case::of::<u64>("delay-and-cancel", delay_and_cancel),
    Case::of::<u64>("batch", batch),
    Case::of::<u64>("batch-and-reconcile", batch_and_reconcile),
];

/// The default hasher's algorithm with a fixed seed, so that the same keys collide in every run.
fn builder<K: Key>() -> WorkQueueBuilder<K, FixedState> {
    WorkQueue::builder().hasher(FixedState::with_seed(7))
}

/// The first round warms up.
fn repeat(rounds: usize, mut round: impl FnMut()) {
    (0..=rounds).for_each(|_| round());
}

/// Enqueue, dequeue, done, with one key at a time in the queue.
fn cycle<K: BenchKey>(rounds: usize) {
    let (queue, keys) = (builder().build(), K::distinct(KEYS));
    repeat(rounds, || {
        for key in &keys {
            queue.enqueue(key.clone());
            queue.try_dequeue().expect(MISSING).done();
        }
    });
}

/// Enqueue, then done and the next dequeue under one lock. One key is always in process.
fn worker_cycle(rounds: usize) {
    let (queue, keys) = (builder().build(), u64::distinct(KEYS));
    queue.enqueue(u64::MAX);
    let mut claim = queue.try_dequeue().ok();
    repeat(rounds, || {
        for key in &keys {
            queue.enqueue(*key);
            claim = claim.take().and_then(|claim| claim.done_and_next().ok());
            assert!(claim.is_some(), "{MISSING}");
        }
    });
    // A dropped claim would back off for a random time.
    claim.expect(MISSING).done();
}

/// Enqueues a key that is already ready.
fn duplicate(rounds: usize) {
    let (queue, keys) = (builder().build(), u64::distinct(KEYS));
    repeat(rounds, || {
        for key in &keys {
            black_box(queue.enqueue(*key));
        }
    });
}

/// The same by reference.
fn duplicate_by_ref(rounds: usize) {
    let (queue, keys) = (builder::<String>().build(), String::distinct(KEYS));
    repeat(rounds, || {
        for key in &keys {
            black_box(queue.request_ref(key.as_str(), EnqueueMethod::Enqueue.into()));
        }
    });
}

/// Sets and cancels a delay while another key's delay ends earlier, so that no alarm moves.
fn delay_and_cancel(rounds: usize) {
    // Whole seconds: with fractions, the count would depend on the start of the clock.
    const STEP: Duration = Duration::from_secs(1);
    let clock = ManualClock::new();
    let (queue, keys) = (builder().clock(clock.clock()).build(), u64::distinct(KEYS));
    queue.enqueue_after(u64::MAX, STEP);
    repeat(rounds, || {
        for (key, steps) in keys.iter().zip(2..) {
            queue.enqueue_after(*key, STEP * steps);
            queue.cancel(key);
        }
    });
}

/// New keys, a thousand at a time, in a queue that has held as many before.
fn batch(rounds: usize) {
    let queue = builder().build();
    grow(&queue);
    fill(&queue, rounds);
    // Dropping the queue would cost time for each key.
    forget(queue);
}

/// New keys, then one worker runs each with an empty reconciler.
fn batch_and_reconcile(rounds: usize) {
    let clock = ManualClock::new();
    let queue = builder().clock(clock.clock()).build();
    grow(&queue);
    fill(&queue, rounds);
    queue.shutdown(Shutdown::ServeReady);
    let reconcile = |_cx: &Context, key: &u64| -> Result<Action, Infallible> {
        black_box(key);
        Ok(Action::await_change())
    };
    Workers::new(reconcile).threads(1).start(&queue).expect("a thread is there").join().expect("no worker panics");
    assert!(queue.is_empty());
}

/// Reserves room for the keys of the largest number of rounds.
fn grow(queue: &WorkQueue<u64, FixedState>) {
    fill(queue, MOST_ROUNDS);
    while let Ok(claim) = queue.try_dequeue() {
        claim.done();
    }
}

fn fill(queue: &WorkQueue<u64, FixedState>, rounds: usize) {
    for round in 0..rounds {
        let keys = round * KEYS..(round + 1) * KEYS;
        black_box(queue.request_all(&mut keys.map(u64::number), EnqueueMethod::EnqueueIfAbsent.into()));
    }
}
