//! The cost of a key from enqueue to done, on one thread and on several.

#![expect(clippy::expect_used, reason = "a bench ends where its premise fails")]

mod keys;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use homeostat::queue::EnqueueMethod;
use homeostat::{Enqueue, Shutdown, WorkQueue};

use self::keys::BenchKey;

/// The number of keys in a cycle.
const KEYS: usize = 1_000;

/// Enqueue, dequeue, done, with one key at a time in the queue.
fn cycle<K: BenchKey>(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue/cycle");
    group.throughput(Throughput::Elements(KEYS as u64));
    let keys = K::distinct(KEYS);
    for timing in [false, true] {
        let queue = WorkQueue::builder().timing(timing).build();
        let name = if timing { "timing-on" } else { "timing-off" };
        group.bench_function(BenchmarkId::new(K::NAME, name), |b| {
            b.iter(|| {
                for key in &keys {
                    queue.enqueue(key.clone());
                    queue.try_dequeue().expect("it was just enqueued").done();
                }
            });
        });
    }
}

/// The worker's cycle: done and the next dequeue under one lock.
fn worker_cycle<K: BenchKey>(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue/worker-cycle");
    group.throughput(Throughput::Elements(KEYS as u64));
    let keys = K::distinct(KEYS);
    let queue = WorkQueue::new();
    group.bench_function(K::NAME, |b| {
        b.iter(|| {
            queue.enqueue(keys[0].clone());
            let mut claim = queue.try_dequeue().expect("it was just enqueued");
            for key in &keys[1..] {
                queue.enqueue(key.clone());
                claim = claim.done_and_next().expect("one is in line");
            }
            claim.done();
        });
    });
}

/// Enqueues all keys, then dequeues all.
fn fill_and_drain<K: BenchKey>(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue/fill-and-drain");
    for count in [1_000, 10_000, 100_000, 1_000_000] {
        let keys = K::distinct(count);
        group.throughput(Throughput::Elements(count as u64));
        if count == 1_000_000 {
            group.sample_size(10);
        }
        group.bench_function(BenchmarkId::new(K::NAME, count), |b| {
            b.iter_batched(
                || keys.clone(),
                |keys| {
                    let queue = WorkQueue::new();
                    for key in keys {
                        queue.enqueue(key);
                    }
                    while let Ok(claim) = queue.try_dequeue() {
                        claim.done();
                    }
                },
                BatchSize::LargeInput,
            );
        });
    }
}

/// Enqueues a key that is already ready.
fn duplicate<K: BenchKey>(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue/duplicate");
    group.throughput(Throughput::Elements(KEYS as u64));
    let keys = K::distinct(KEYS);
    let queue = WorkQueue::new();
    for key in &keys {
        queue.enqueue(key.clone());
    }
    group.bench_function(K::NAME, |b| {
        b.iter(|| {
            for key in &keys {
                black_box(queue.enqueue(key.clone()));
            }
        });
    });
}

/// The same by reference, without an allocation.
fn duplicate_by_ref(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue/duplicate-by-ref");
    group.throughput(Throughput::Elements(KEYS as u64));
    let keys = String::distinct(KEYS);
    let queue = WorkQueue::<String>::new();
    for key in &keys {
        queue.enqueue(key.clone());
    }
    group.bench_function("string", |b| {
        b.iter(|| {
            for key in &keys {
                black_box(queue.request_ref(key.as_str(), EnqueueMethod::Enqueue.into()));
            }
        });
    });
}

/// Enqueues the keys of one poll in one call. Compare with single calls in `queue/fill-and-drain`.
fn batch(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue/batch");
    group.throughput(Throughput::Elements(KEYS as u64));
    let queue = WorkQueue::new();
    group.bench_function("u64", |b| {
        b.iter(|| {
            queue.request_all(&mut (0..KEYS as u64), EnqueueMethod::EnqueueIfAbsent.into());
            while let Ok(claim) = queue.try_dequeue() {
                claim.done();
            }
        });
    });
}

/// Producers and consumers on separate threads.
fn threads(c: &mut Criterion) {
    const OPERATIONS: u64 = 20_000;
    let mut group = c.benchmark_group("queue/threads");
    group.sample_size(20);
    for pairs in [1, 2, 4] {
        group.throughput(Throughput::Elements(OPERATIONS * pairs));
        group.bench_function(BenchmarkId::from_parameter(format!("{pairs}+{pairs}")), |b| {
            b.iter(|| {
                let queue = WorkQueue::<u64>::new();
                std::thread::scope(|scope| {
                    for _ in 0..pairs {
                        scope.spawn(|| {
                            while let Ok(claim) = queue.dequeue() {
                                claim.done();
                            }
                        });
                    }
                    let producers = (0..pairs).map(|producer| {
                        let queue = &queue;
                        scope.spawn(move || {
                            for key in 0..OPERATIONS {
                                queue.enqueue((key * pairs + producer) % 10_000);
                            }
                        })
                    });
                    for producer in producers.collect::<Vec<_>>() {
                        producer.join().expect("a producer does not panic");
                    }
                    queue.shutdown(Shutdown::ServeReady);
                });
            });
        });
    }
}

/// Wakes a blocked consumer, which answers.
fn wake(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue/wake");
    let there = WorkQueue::<u64>::new();
    let back = WorkQueue::<u64>::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while let Ok(claim) = there.dequeue() {
                back.enqueue(*claim);
                claim.done();
            }
        });
        group.bench_function("round-trip", |b| {
            b.iter(|| {
                there.enqueue(1_u64);
                back.dequeue_timeout(Duration::from_secs(10)).expect("the other side answers").done();
            });
        });
        there.shutdown(Shutdown::Discard);
    });
}

fn all(c: &mut Criterion) {
    cycle::<u64>(c);
    cycle::<Arc<str>>(c);
    cycle::<String>(c);
    worker_cycle::<u64>(c);
    worker_cycle::<Arc<str>>(c);
    worker_cycle::<String>(c);
    fill_and_drain::<u64>(c);
    fill_and_drain::<Arc<str>>(c);
    fill_and_drain::<String>(c);
    duplicate::<u64>(c);
    duplicate::<Arc<str>>(c);
    duplicate::<String>(c);
    duplicate_by_ref(c);
    batch(c);
    threads(c);
    wake(c);
}

criterion_group!(benches, all);
criterion_main!(benches);
