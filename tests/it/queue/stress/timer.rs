//! The timer thread under many delays, by the system clock.

use std::thread;
use std::time::{Duration, Instant};

use homeostat::{Enqueue, EnqueueOutcome, Priority, WorkQueue};

use super::checker::Random;

const DELAYS: usize = 20_000;
const SPREAD: Duration = Duration::from_millis(200);
/// The tick of the timer by the system clock. Keys that are due in one tick, or within their slack, come in any order.
const TICK: Duration = Duration::from_nanos(1 << 17);
const LANES: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

#[test]
fn many_delays_each_fire_once_not_early_and_in_due_order_per_level() {
    let queue = WorkQueue::builder().timer_slack(1, Duration::ZERO).build();
    many_delays(&queue, |_delay| TICK);
}

#[test]
fn many_delays_with_slack_fire_once_in_due_order_and_never_early() {
    many_delays(&WorkQueue::new(), |delay| TICK.max(delay / 256));
}

fn many_delays(queue: &WorkQueue<usize>, slack: fn(Duration) -> Duration) {
    let clock = queue.clock().clone();
    let starts = thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            let mut starts: Vec<(usize, Instant)> = Vec::with_capacity(DELAYS);
            while starts.len() < DELAYS {
                let claim = queue.dequeue().unwrap();
                starts.push((*claim, clock.now()));
                claim.done();
            }
            starts
        });
        let mut random = Random::new(7);
        // Each request is made between the two times, so its due time lies between them plus the delay. The slack comes
        // on top.
        let requested: Vec<(Instant, Instant)> = (0..DELAYS)
            .map(|key| {
                let delay = SPREAD * (1 + random.below(1000)) / 1000;
                let before = clock.now();
                assert_eq!(queue.at(LANES[key % 3]).enqueue_after(key, delay), EnqueueOutcome::Scheduled);
                (before + delay, clock.now() + delay + slack(delay))
            })
            .collect();
        let starts = consumer.join().unwrap();
        starts.into_iter().map(|(key, start)| (key, start, requested[key])).collect::<Vec<_>>()
    });

    let mut seen = vec![false; DELAYS];
    let mut latest = [None; 3];
    for (key, start, (earliest_due, latest_turn)) in starts {
        assert!(!std::mem::replace(&mut seen[key], true), "key {key} fired twice");
        assert!(start >= earliest_due, "key {key} came {:?} early", earliest_due - start);
        let before = &mut latest[key % 3];
        assert!(*before <= Some(latest_turn), "key {key} came after one that was due later");
        *before = (*before).max(Some(earliest_due));
    }
    assert!(seen.into_iter().all(|seen| seen));
    assert!(queue.is_empty());
    assert_eq!((queue.metrics().delayed, queue.metrics().processing), (0, 0));
}
