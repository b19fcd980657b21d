//! W4 and W7: several threads on one queue.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::keys::keys;
use crate::meter::{Figures, Stopwatch, percentile};
use crate::peers::{Feed, Take, join};

/// W4: `sides` producers over 10,000 keys, and as many consumers that block.
///
/// Unpaced, each producer cycles over all keys from a start of its own, as fast as it can. A queue that dedups then gives
/// out fewer keys than came in, so what came in and what came out are both counted. Paced, each producer cycles over a
/// part of the keys and lets the consumers catch up before a key could still be in line: each enqueue is a dequeue.
pub(super) fn contend<I: Feed<u64>, O: Take<u64>>(
    feed: I,
    take: O,
    sides: usize,
    enqueues: usize,
    paced: bool,
) -> Figures {
    let keys: Arc<[u64]> = keys(10_000).into();
    let pace = Arc::new(Pace { served: (0..sides).map(|_| Served::default()).collect(), room: 8_000 / sides as u64 });
    let start = Arc::new(Barrier::new(2 * sides + 1));
    let consumers: Vec<_> = (0..sides)
        .map(|side| {
            let (take, start, pace) = (take.clone(), Arc::clone(&start), Arc::clone(&pace));
            thread::spawn(move || {
                start.wait();
                let mut served = 0_usize;
                while let Some(taken) = take.take() {
                    black_box(&taken);
                    take.done(taken);
                    served += 1;
                    pace.served[side].0.store(served as u64, Relaxed);
                }
                served
            })
        })
        .collect();
    // Only the producers and this thread may hold the other end: a channel closes with its last sender.
    drop(take);
    let producers: Vec<_> = (0..sides)
        .map(|side| {
            let (feed, start, keys) = (feed.clone(), Arc::clone(&start), Arc::clone(&keys));
            let pace = Arc::clone(&pace);
            thread::spawn(move || {
                let first = side * keys.len() / sides;
                let part = &keys[first..first + keys.len() / sides];
                let count = enqueues / sides;
                start.wait();
                if paced {
                    for (number, key) in part.iter().cycle().take(count).enumerate() {
                        if number % Pace::EVERY == 0 {
                            pace.wait(number as u64, sides as u64);
                        }
                        feed.put(*key);
                    }
                } else {
                    for key in keys.iter().cycle().skip(first).take(count) {
                        feed.put(*key);
                    }
                }
            })
        })
        .collect();
    let watch = Stopwatch::start();
    start.wait();
    producers.into_iter().for_each(join);
    feed.close();
    let served: Vec<usize> = consumers.into_iter().map(join).collect();
    let spent = watch.stop();

    let dequeues: usize = served.iter().sum();
    // A key in the hands of a consumer that the system has put aside can be enqueued again more than once.
    assert!(!paced || dequeues * 100 >= enqueues * 99, "{dequeues} of {enqueues} keys came out");
    let pairs = (enqueues + dequeues) as f64 / 2.0;
    let least = served.into_iter().min().unwrap_or_default();
    let cpu = spent.cpu.as_nanos() as f64;
    [
        ("cpu_ns", cpu / pairs),
        ("mops", pairs / spent.wall.as_micros() as f64),
        ("cpu_ns_per_dequeue", cpu / dequeues as f64),
        ("dequeues_per_enqueue", dequeues as f64 / enqueues as f64),
        ("least_share", least as f64 / dequeues as f64),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Holds producers back by counts that the consumers keep, each in a cache line of its own.
struct Pace {
    served: Box<[Served]>,
    /// How many keys of each producer may be under way: fewer than it cycles over, by more than twice [`Pace::EVERY`].
    room: u64,
}

#[derive(Default)]
#[repr(align(128))]
struct Served(AtomicU64);

impl Pace {
    /// How often a producer looks.
    const EVERY: usize = 256;

    /// Returns once this producer, which has enqueued so many keys, is no more than `room` ahead of its share of those
    /// served. As that holds for every producer, none has more than `room + 2 * EVERY` keys that are not yet done.
    fn wait(&self, enqueued: u64, producers: u64) {
        while enqueued * producers > self.served.iter().map(|count| count.0.load(Relaxed)).sum::<u64>() + self.room {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

/// W7: a consumer that sleeps in its blocking call, and how long after the enqueue began it is out of it.
pub(super) fn wake<I: Feed<u64>, O: Take<u64>>(feed: I, take: O, wakes: usize) -> Figures {
    /// Long enough for any consumer to have given up spinning and gone to sleep.
    const PAUSE: Duration = Duration::from_micros(300);
    let origin = Instant::now();
    let nanos = move || origin.elapsed().as_nanos() as u64;
    let (rung, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let consumer = thread::spawn({
        let (rung, answered) = (Arc::clone(&rung), Arc::clone(&answered));
        move || {
            let mut late = Vec::with_capacity(wakes);
            while let Some(taken) = take.take() {
                late.push((nanos() - rung.load(SeqCst)) as f64 / 1e3);
                take.done(taken);
                answered.fetch_add(1, SeqCst);
            }
            late
        }
    });
    let watch = Stopwatch::start();
    for number in 0..wakes as u64 {
        thread::sleep(PAUSE);
        while answered.load(SeqCst) < number {
            thread::sleep(PAUSE);
        }
        rung.store(nanos(), SeqCst);
        feed.put(number);
    }
    feed.close();
    let mut late = join(consumer);
    let spent = watch.stop();
    assert_eq!(late.len(), wakes);
    late.sort_by(f64::total_cmp);
    let mut figures = spent.named("cpu_ns", "cycle_ns", wakes);
    figures.insert("p50_us".to_owned(), percentile(&late, 0.5));
    figures.insert("p99_us".to_owned(), percentile(&late, 0.99));
    figures
}
