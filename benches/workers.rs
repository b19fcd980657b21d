//! The cost of an empty run, from dequeue to the end of its claim.

#![expect(clippy::expect_used, reason = "a bench ends where its premise fails")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use homeostat::queue::EnqueueMethod;
use homeostat::{Action, Context, Enqueue, Shutdown, WorkQueue, Workers};

const KEYS: u64 = 50_000;

fn empty_reconcile(c: &mut Criterion) {
    let mut group = c.benchmark_group("workers/empty");
    group.throughput(Throughput::Elements(KEYS));
    group.sample_size(20);
    for threads in [1, 2, 4] {
        group.bench_function(BenchmarkId::from_parameter(threads), |b| {
            b.iter_batched(
                || {
                    let queue = WorkQueue::new();
                    queue.request_all(&mut (0..KEYS), EnqueueMethod::Enqueue.into());
                    queue.shutdown(Shutdown::ServeReady);
                    queue
                },
                |queue| {
                    let runs = Arc::new(AtomicU64::new(0));
                    let counted = Arc::clone(&runs);
                    let reconcile = move |_cx: &Context, _key: &u64| -> Result<Action, Infallible> {
                        counted.fetch_add(1, Ordering::Relaxed);
                        Ok(Action::await_change())
                    };
                    let workers = Workers::new(reconcile).threads(threads).start(&queue).expect("threads are there");
                    workers.join().expect("no worker panics");
                    assert_eq!(runs.load(Ordering::Relaxed), KEYS);
                },
                BatchSize::LargeInput,
            );
        });
    }
}

criterion_group!(benches, empty_reconcile);
criterion_main!(benches);
