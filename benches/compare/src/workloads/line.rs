//! W1, W1w, W2, W3 and the part of W6 with ready keys: one thread, no delays.

use std::hash::BuildHasher;
use std::hint::black_box;

use anyhow::Result;
use homeostat::queue::EnqueueMethod;
use homeostat::{Enqueue, WorkQueue};

use crate::keys::{BenchKey, keys};
use crate::meter::{Figures, Spent, Stopwatch, resident};
use crate::peers::naive::Naive;
use crate::peers::{Feed, Take, kube};

/// The number of keys in a cycle.
const CYCLE: usize = 1_000;
const MISSING: &str = "a key that was enqueued is in line";

/// W1: enqueue, dequeue and done for one key after the other.
pub(super) fn round_trips<K: BenchKey, I: Feed<K>, O: Take<K>>((feed, take): (I, O), ops: usize) -> Figures {
    let keys = keys::<K>(CYCLE);
    let trips = |ops| {
        for key in keys.iter().cycle().take(ops) {
            feed.put(key.clone());
            let taken = take.try_take().expect(MISSING);
            black_box(&taken);
            take.done(taken);
        }
    };
    trips(ops / 20);
    let watch = Stopwatch::start();
    trips(ops);
    watch.stop().per(ops)
}

pub(super) async fn kube_round_trips<K: BenchKey>(ops: usize) -> Figures {
    let keys = keys::<K>(CYCLE);
    let mut line = kube::Line::new();
    let watch = Stopwatch::start();
    for key in keys.iter().cycle().take(ops) {
        line.enqueue(key.clone());
        let taken = line.take().await;
        line.done(black_box(&taken));
    }
    watch.stop().per(ops)
}

/// W1w: an enqueue, then the end of one key and the start of the next. One key is always ready, and another in
/// process.
pub(super) fn homeostat_cycle<K: BenchKey>(ops: usize) -> Figures {
    let queue = WorkQueue::new();
    queue.enqueue(K::nth(u64::MAX));
    let mut claim = Some(queue.try_dequeue().expect(MISSING));
    cycle(ops, |key: &K| {
        queue.enqueue(key.clone());
        black_box(&claim);
        claim = claim.take().and_then(|claim| claim.done_and_next().ok());
        assert!(claim.is_some(), "{MISSING}");
    })
}

pub(super) fn naive_cycle<K: BenchKey, S: BuildHasher + Default>(ops: usize) -> Figures {
    let queue = Naive::<K, S>::new();
    queue.enqueue(K::nth(u64::MAX));
    let mut taken = Some(queue.try_get().expect(MISSING));
    cycle(ops, |key: &K| {
        queue.enqueue(key.clone());
        black_box(&taken);
        taken = taken.take().and_then(|taken| {
            queue.done(taken);
            queue.try_get()
        });
        assert!(taken.is_some(), "{MISSING}");
    })
}

fn cycle<K: BenchKey>(ops: usize, mut turn: impl FnMut(&K)) -> Figures {
    let keys = keys::<K>(CYCLE);
    keys.iter().cycle().take(ops / 20).for_each(&mut turn);
    let watch = Stopwatch::start();
    keys.iter().cycle().skip(ops / 20 % CYCLE).take(ops).for_each(turn);
    watch.stop().per(ops)
}

/// The worker's cycle for keys that are already ready. The cost of workers is measured relative to this.
pub(super) fn homeostat_drain<K: BenchKey>(count: usize) -> Figures {
    let queue = WorkQueue::new();
    for key in keys::<K>(count) {
        queue.enqueue(key);
    }
    let watch = Stopwatch::start();
    let mut served = 0;
    let mut claim = queue.try_dequeue();
    while let Ok(taken) = claim {
        served += 1;
        black_box(&taken);
        claim = taken.done_and_next();
    }
    let spent = watch.stop();
    assert_eq!(served, count);
    spent.per(count)
}

pub(super) fn naive_drain<K: BenchKey, S: BuildHasher + Default>(count: usize) -> Figures {
    let queue = Naive::<K, S>::new();
    for key in keys::<K>(count) {
        queue.enqueue(key);
    }
    let watch = Stopwatch::start();
    let mut served = 0;
    while let Some(taken) = queue.try_get() {
        served += 1;
        black_box(&taken);
        queue.done(taken);
    }
    let spent = watch.stop();
    assert_eq!(served, count);
    spent.per(count)
}

/// W2: enqueues all keys, then dequeues all. New queues grow during this. The other queue has already grown.
pub(super) fn in_then_out<K: BenchKey, I: Feed<K>, O: Take<K>>(
    new: impl Fn() -> (I, O),
    count: usize,
    total: usize,
) -> Figures {
    let keys = keys::<K>(count);
    let passes = (total / count).max(1);
    let pass = |(feed, take): &(I, O)| {
        let watch = Stopwatch::start();
        for key in &keys {
            feed.put(key.clone());
        }
        for _ in &keys {
            let taken = take.try_take().expect(MISSING);
            black_box(&taken);
            take.done(taken);
        }
        watch.stop()
    };
    let (mut cold, mut warm) = (Spent::default(), Spent::default());
    let mut queue = new();
    for round in 0..passes {
        if round > 0 {
            queue = new();
        }
        cold += pass(&queue);
    }
    for _ in 0..passes {
        warm += pass(&queue);
    }
    let mut figures = cold.per(passes * count);
    figures.extend(warm.named("warm_cpu_ns", "warm_wall_ns", passes * count));
    figures
}

pub(super) async fn kube_in_then_out<K: BenchKey>(count: usize, total: usize) -> Figures {
    let keys = keys::<K>(count);
    let passes = (total / count).max(1);
    let (mut cold, mut warm) = (Spent::default(), Spent::default());
    let mut line = kube::Line::new();
    for round in 0..2 * passes {
        if (1..passes).contains(&round) {
            line = kube::Line::new();
        }
        let watch = Stopwatch::start();
        for key in &keys {
            line.enqueue(key.clone());
        }
        for _ in &keys {
            let taken = line.take().await;
            line.done(black_box(&taken));
        }
        let spent = watch.stop();
        *if round < passes { &mut cold } else { &mut warm } += spent;
    }
    let mut figures = cold.per(passes * count);
    figures.extend(warm.named("warm_cpu_ns", "warm_wall_ns", passes * count));
    figures
}

/// W3: enqueues keys that are already ready.
pub(super) fn duplicates<K: BenchKey, I: Feed<K>, O: Take<K>>((feed, _take): (I, O), ops: usize) -> Figures {
    let keys = keys::<K>(CYCLE);
    repeat(&keys, ops, |key| feed.put(key.clone()))
}

pub(super) fn homeostat_duplicates_by_ref(ops: usize) -> Figures {
    let keys = keys::<String>(CYCLE);
    let queue = WorkQueue::<String>::new();
    repeat(&keys, ops, |key| {
        black_box(queue.request_ref(key.as_str(), EnqueueMethod::Enqueue.into()));
    })
}

pub(super) fn naive_duplicates_by_ref(ops: usize) -> Figures {
    let keys = keys::<String>(CYCLE);
    let queue = Naive::<String, super::Fold>::new();
    repeat(&keys, ops, |key| {
        black_box(queue.enqueue_ref(key.as_str()));
    })
}

fn repeat<K>(keys: &[K], ops: usize, enqueue: impl Fn(&K)) -> Figures {
    keys.iter().for_each(&enqueue);
    let watch = Stopwatch::start();
    keys.iter().cycle().take(ops).for_each(&enqueue);
    watch.stop().per(ops)
}

/// The scheduler empties its channel when it is polled, which happens here after every hundred requests.
pub(super) async fn kube_duplicates<K: BenchKey>(ops: usize) -> Figures {
    let keys = keys::<K>(CYCLE);
    let mut line = kube::Line::new();
    let delay = std::time::Duration::from_secs(3600);
    for key in &keys {
        line.enqueue_after(key.clone(), delay);
    }
    line.settle();
    let watch = Stopwatch::start();
    for (number, key) in keys.iter().cycle().take(ops).enumerate() {
        line.enqueue_after(key.clone(), delay);
        if number % 100 == 99 {
            line.settle();
        }
    }
    line.settle();
    watch.stop().per(ops)
}

/// W6: the peak growth of the process while keys are moved into the queue.
pub(super) fn memory<K: BenchKey, I: Feed<K>, O: Take<K>>((feed, take): (I, O), count: usize) -> Result<Figures> {
    let (before, _) = resident()?;
    for number in 0..count as u64 {
        feed.put(K::nth(number));
    }
    let (_, peak) = resident()?;
    drop(black_box(take));
    Ok([("bytes".to_owned(), (peak - before) / count as f64)].into())
}
