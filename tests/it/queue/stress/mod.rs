//! Real threads: a checker sees the start and the end of every run, and the outcome of every request.
//!
//! A number of requests bounds each test, not a time. Each round has its own queue and checks it at the end.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod checker;
#[cfg(target_os = "linux")]
mod idle;
mod timer;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use homeostat::queue::{DequeueError, DroppedRun};
use homeostat::{Claim, EnqueueOutcome, Exponential, Shutdown, WorkQueue};

use self::checker::{Answers, Checker, Random};

const THREADS: u32 = 8;
const MICROSECOND: Duration = Duration::from_micros(1);

type Queue = WorkQueue<u32>;

fn queue() -> Queue {
    WorkQueue::builder().name("stress").backoff(Exponential::new(20 * MICROSECOND, 500 * MICROSECOND)).build()
}

/// The behaviour of consumers.
#[derive(Clone, Copy)]
struct Consumers {
    /// The number of runs in a thousand that panic with their claim.
    panics: u32,
    /// Whether every other consumer has a tiny timeout, and one never waits.
    impatient: bool,
}

const PATIENT: Consumers = Consumers { panics: 0, impatient: false };

/// The payload of an intended panic.
struct Planned;

/// Takes the next key as this consumer does. Returns `None` once the queue is over.
fn take(queue: &Queue, number: u32, consumers: Consumers, random: &mut Random) -> Option<Claim<u32>> {
    loop {
        if !consumers.impatient || number.is_multiple_of(2) {
            return queue.dequeue().ok();
        }
        if number == 1 {
            match queue.try_dequeue() {
                Ok(claim) => return Some(claim),
                Err(DequeueError::Closed) => return None,
                Err(_) => thread::yield_now(),
            }
        } else {
            match queue.dequeue_timeout(random.below(100) * MICROSECOND) {
                Ok(claim) => return Some(claim),
                Err(DequeueError::Closed) => return None,
                Err(_) => {}
            }
        }
    }
}

/// Does one run. Returns the next claim if the ending takes one.
fn run(
    checker: &Checker<'_>,
    queue: &Queue,
    claim: Claim<u32>,
    panics: u32,
    random: &mut Random,
) -> Option<Claim<u32>> {
    let key = *claim;
    let running = checker.start(queue, key);
    // Other threads run in between, even on one processor.
    for _ in 0..random.below(if checker::is_exact(key) { 8 } else { 4 }) {
        thread::yield_now();
    }
    if checker::is_exact(key) {
        // Only its requests decide when such a key runs.
        drop(running);
        return claim.done_and_next().ok();
    }
    if random.below(1000) < panics {
        drop(running);
        // Without the message of a panic.
        resume_unwind(Box::new(Planned));
    }
    let delay = random.below(300) * MICROSECOND;
    match random.below(10) {
        0 => {
            drop(running);
            claim.requeue_after(delay);
        }
        1 => {
            drop(running);
            claim.retry();
        }
        2 => {
            drop(running);
            claim.retry_after(delay);
        }
        3 => {
            running.end_with_cool_down(queue, delay);
            claim.cool_down(delay);
        }
        4 => {
            drop(running);
            drop(claim);
        }
        5..8 => {
            drop(running);
            return claim.done_and_next().ok();
        }
        _ => {
            drop(running);
            claim.done();
        }
    }
    None
}

fn consume(checker: &Checker<'_>, queue: &Queue, number: u32, consumers: Consumers) {
    let mut random = Random::new(1000 + number);
    while let Some(claim) = take(queue, number, consumers, &mut random) {
        let mut next = Some(claim);
        while let Some(claim) = next {
            let run = || run(checker, queue, claim, consumers.panics, &mut random);
            next = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
                if panic.is::<Planned>() {
                    return None;
                }
                // A check has failed: all threads end, and with them the test.
                checker.closing();
                queue.shutdown(Shutdown::Discard);
                resume_unwind(panic)
            });
        }
    }
    assert!(checker.is_closing(), "an open queue has ended a consumer");
}

/// Runs one round: 8 producers with `requests` each, and 8 consumers. The queue is shut down in `mode` after all
/// requests, or after `until` of them.
fn round(answers: &Answers, seed: u32, requests: usize, consumers: Consumers, mode: Shutdown, until: Option<usize>) {
    let (checker, queue) = (Checker::new(answers), queue());
    let count = AtomicUsize::new(0);
    let close = || {
        checker.closing();
        queue.shutdown(mode);
    };
    thread::scope(|scope| {
        let (checker, queue, count, close) = (&checker, &queue, &count, &close);
        for number in 0..THREADS {
            scope.spawn(move || consume(checker, queue, number, consumers));
        }
        let producers = (0..THREADS).map(|number| {
            scope.spawn(move || {
                let mut random = Random::new(seed * THREADS + number);
                for _ in 0..requests {
                    if checker.request(queue, number, &mut random) == Some(EnqueueOutcome::Closed) {
                        break;
                    }
                    if random.below(4) == 0 {
                        thread::yield_now();
                    }
                    if Some(count.fetch_add(1, SeqCst) + 1) == until {
                        close();
                    }
                }
            })
        });
        let producers = producers.collect::<Vec<_>>().into_iter().map(ScopedJoinHandle::join).collect::<Vec<_>>();
        close();
        let report = queue.drain(Duration::MAX);
        for producer in producers {
            producer.unwrap();
        }
        assert!(report.is_drained(), "{report}");
        assert!(checker.all_ended(), "a run continues after the drain");
        for (key, wake) in &report.dropped {
            let dropped_in = match wake {
                DroppedRun::Requeue | DroppedRun::Retry => Shutdown::RunDelayedNow,
                DroppedRun::Delayed | DroppedRun::PendingRerun => Shutdown::ServeReady,
                _ => Shutdown::Discard,
            };
            assert!(mode >= dropped_in, "{mode:?} has dropped {key}: {wake:?}");
        }
    });
    let report = queue.drain(Duration::ZERO);
    assert!(report.is_drained() && queue.is_empty());
    assert_eq!((queue.metrics().processing, queue.metrics().delayed), (0, 0));
    checker.settle(mode, report.dropped.into_iter().map(|(key, _)| key));
}

#[test]
fn every_request_is_followed_by_a_run_and_no_key_runs_twice_at_once() {
    let answers = Answers::default();
    for seed in 1..=8 {
        round(&answers, seed, 20_000, PATIENT, Shutdown::RunDelayedNow, None);
    }
    answers.assert_all();
}

#[test]
fn no_request_is_lost_if_runs_panic() {
    let answers = Answers::default();
    for seed in 11..=14 {
        round(&answers, seed, 10_000, Consumers { panics: 50, ..PATIENT }, Shutdown::RunDelayedNow, None);
    }
    answers.assert_all();
}

#[test]
fn no_request_is_lost_if_consumers_time_out() {
    let answers = Answers::default();
    for seed in 21..=24 {
        round(&answers, seed, 10_000, Consumers { panics: 10, impatient: true }, Shutdown::RunDelayedNow, None);
    }
    answers.assert_all();
}

#[test]
fn every_request_admitted_around_a_shutdown_is_run_or_reported() {
    let answers = Answers::default();
    let modes = [Shutdown::RunDelayedNow, Shutdown::ServeReady, Shutdown::Discard];
    for (seed, mode) in (31..43).zip(modes.into_iter().cycle()) {
        let consumers = Consumers { panics: 10, impatient: u32::is_multiple_of(seed, 2) };
        round(&answers, seed, 8000, consumers, mode, Some(40_000));
    }
    answers.assert_all();
}
