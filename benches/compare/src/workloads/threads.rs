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

/// W4: `sides` producers for 10,000 keys, and as many blocking consumers.
///
/// Without pace, each producer cycles through all keys from a different start, as fast as it can. A queue that removes
/// duplicates returns fewer keys than it receives, so both are counted. With pace, each producer cycles through its
/// own part of the keys. It waits for the consumers while a key could still be ready, so each enqueue leads to a
/// dequeue.
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
    // Only the producers and this thread may hold the other end, because a channel closes with its last sender.
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
    // While the system suspends a consumer, its key can be enqueued again more than once.
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

/// Slows the producers down by the consumers' counts, each in its own cache line.
struct Pace {
    served: Box<[Served]>,
    /// The largest number of a producer's unfinished keys. It is smaller than its cycle by more than twice
    /// [`Pace::EVERY`].
    room: u64,
}

#[derive(Default)]
#[repr(align(128))]
struct Served(AtomicU64);

impl Pace {
    /// The number of keys between two checks by a producer.
    const EVERY: usize = 256;

    /// Blocks until this producer is at most `room` keys ahead of its part of all served keys. This holds for every
    /// producer, so none has more than `room + 2 * EVERY` unfinished keys.
    fn wait(&self, enqueued: u64, producers: u64) {
        while enqueued * producers > self.served.iter().map(|count| count.0.load(Relaxed)).sum::<u64>() + self.room {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

/// W7: the time from the start of an enqueue until a consumer's blocking call returns.
pub(super) fn wake<I: Feed<u64>, O: Take<u64>>(feed: I, take: O, wakes: usize) -> Figures {
    /// Long enough for any consumer to stop spinning and sleep.
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
