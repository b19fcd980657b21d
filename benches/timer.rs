//! The cost of setting, cancelling and expiring delays. The clock is held, so nothing waits.

use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use homeostat::{Enqueue, ManualClock, WorkQueue};

fn held_queue() -> (ManualClock, WorkQueue<u64>) {
    let clock = ManualClock::new();
    let queue = WorkQueue::builder().clock(clock.clock()).build();
    (clock, queue)
}

/// Delays `count` keys, spread over one second.
fn delay_all(queue: &WorkQueue<u64>, count: u64) {
    for key in 0..count {
        queue.enqueue_after(key, Duration::from_nanos(1 + key * 1_000_000_000 / count));
    }
}

fn set(c: &mut Criterion) {
    let mut group = c.benchmark_group("timer/set");
    for count in [1_000, 100_000] {
        group.throughput(Throughput::Elements(count));
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter_batched_ref(held_queue, |(_, queue)| delay_all(queue, count), BatchSize::LargeInput);
        });
    }
}

fn cancel(c: &mut Criterion) {
    let mut group = c.benchmark_group("timer/cancel");
    for count in [1_000, 100_000] {
        group.throughput(Throughput::Elements(count));
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter_batched_ref(
                || {
                    let (clock, queue) = held_queue();
                    delay_all(&queue, count);
                    (clock, queue)
                },
                |(_, queue)| {
                    for key in 0..count {
                        queue.cancel(&key);
                    }
                },
                BatchSize::LargeInput,
            );
        });
    }
}

/// Moves keys from the wheel to the ready level, including cascades.
fn expire(c: &mut Criterion) {
    let mut group = c.benchmark_group("timer/expire");
    for count in [1_000, 100_000] {
        group.throughput(Throughput::Elements(count));
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter_batched_ref(
                || {
                    let (clock, queue) = held_queue();
                    delay_all(&queue, count);
                    (clock, queue)
                },
                |(clock, _)| clock.advance(Duration::from_secs(2)),
                BatchSize::LargeInput,
            );
        });
    }
}

fn reschedule(c: &mut Criterion) {
    let mut group = c.benchmark_group("timer/reschedule");
    let (_clock, queue) = held_queue();
    let mut round = 0;
    group.bench_function("one key", |b| {
        b.iter(|| {
            round += 1;
            queue.reschedule(7, Duration::from_millis(1 + round % 10_000));
        });
    });
}

criterion_group!(benches, set, cancel, expire, reschedule);
criterion_main!(benches);
