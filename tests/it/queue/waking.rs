//! Sleeping and waking. The notifier counts a sleeper out, so the count of sleepers is exact as soon as the waking call
//! returns.

use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use homeostat::Priority::High;
use homeostat::queue::{DequeueError, EnqueueMethod};
use homeostat::{Claim, Enqueue, Shutdown};

use super::letters::{Bench, Is, secs};
use crate::until::until;

/// Starts this many consumers and waits until all are asleep. Each takes one key and keeps its claim.
fn asleep<'scope>(
    bench: &'scope Bench,
    threads: &'scope Scope<'scope, '_>,
    count: usize,
) -> Vec<ScopedJoinHandle<'scope, Option<Claim<char>>>> {
    let consumers = (0..count).map(|_| threads.spawn(|| bench.queue.dequeue().ok())).collect();
    bench.clock.wait_for_sleepers(count);
    consumers
}

/// Closes the queue, so that sleeping consumers return, and returns the keys that the consumers got.
fn finish(bench: &Bench, consumers: Vec<ScopedJoinHandle<'_, Option<Claim<char>>>>) -> String {
    let served = || consumers.iter().filter(|consumer| consumer.is_finished()).count();
    until("each consumer is served or sleeps", || served() + bench.clock.sleepers() >= consumers.len());
    bench.queue.shutdown(Shutdown::Discard);
    let claims: Vec<_> = consumers.into_iter().filter_map(|consumer| consumer.join().unwrap()).collect();
    let mut keys: Vec<char> = claims.iter().map(|claim| **claim).collect();
    keys.sort_unstable();
    keys.into_iter().collect()
}

#[test]
fn each_key_wakes_one_consumer() {
    let bench = Bench::new();
    thread::scope(|threads| {
        let _watch = bench.watch();
        let consumers = asleep(&bench, threads, 3);
        bench.queue.enqueue('a');
        assert_eq!(bench.clock.sleepers(), 2);
        bench.queue.enqueue_if_absent('a');
        bench.queue.enqueue_after('d', secs(9));
        bench.queue.cancel(&'d');
        assert_eq!(bench.clock.sleepers(), 2, "no further key has become ready");
        bench.queue.enqueue_after('b', secs(9));
        bench.queue.enqueue('b');
        assert_eq!(bench.clock.sleepers(), 2, "the delay stands");
        bench.queue.enqueue_now('b');
        assert_eq!(bench.clock.sleepers(), 1);
        assert_eq!(finish(&bench, consumers), "ab");
    });
}

#[test]
fn a_key_that_moves_between_levels_wakes_no_consumer() {
    let bench = Bench::new();
    thread::scope(|threads| {
        let _watch = bench.watch();
        let consumers = asleep(&bench, threads, 2);
        bench.queue.enqueue('a');
        // Ready or taken: in either case there is no key for the second consumer.
        bench.queue.at(High).enqueue('a');
        assert_eq!(bench.clock.sleepers(), 1);
        assert_eq!(finish(&bench, consumers), "a");
    });
}

#[test]
fn a_batch_wakes_as_many_as_there_are_keys_and_sleepers() {
    for (keys, sleepers, left, taken) in [("ab", 3, 1, "ab"), ("abc", 2, 0, "ab"), ("aab", 3, 1, "ab"), ("", 2, 2, "")]
    {
        let bench = Bench::new();
        thread::scope(|threads| {
            let _watch = bench.watch();
            let consumers = asleep(&bench, threads, sleepers);
            bench.queue.request_all(&mut keys.chars(), EnqueueMethod::Enqueue.into());
            assert_eq!(bench.clock.sleepers(), left, "{keys} for {sleepers}");
            assert_eq!(finish(&bench, consumers), taken);
        });
    }
}

#[test]
fn time_and_the_end_of_a_claim_wake_consumers() {
    let bench = Bench::new();
    let claim = bench.claim('k');
    bench.queue.enqueue_after('d', secs(9));
    bench.queue.enqueue_after('e', secs(9));
    thread::scope(|threads| {
        let _watch = bench.watch();
        let consumers = asleep(&bench, threads, 4);
        bench.queue.enqueue('k');
        bench.clock.advance(secs(8));
        assert_eq!(bench.clock.sleepers(), 4, "a rerun or a delay is no work yet");
        claim.requeue_after(secs(2));
        assert_eq!(bench.clock.sleepers(), 4);
        bench.clock.advance(secs(1));
        assert_eq!(bench.clock.sleepers(), 2);
        bench.clock.advance(secs(1));
        assert_eq!(bench.clock.sleepers(), 1);
        assert_eq!(finish(&bench, consumers), "dek");
    });
}

#[test]
fn done_and_next_wakes_no_consumer_for_the_key_that_it_takes() {
    let bench = Bench::new();
    let claim = bench.claim('k');
    thread::scope(|threads| {
        let _watch = bench.watch();
        let consumers = asleep(&bench, threads, 1);
        let mut claim = claim;
        // A consumer woken without a key may be asleep again before the check, but not every time.
        for _ in 0..1_000 {
            bench.queue.enqueue('k');
            claim = claim.done_and_next().unwrap();
            assert_eq!((*claim, bench.clock.sleepers()), ('k', 1));
        }
        assert_eq!(finish(&bench, consumers), "");
    });
}

#[test]
fn a_timeout_is_by_the_queue_s_clock() {
    let bench = Bench::new();
    thread::scope(|threads| {
        let _watch = bench.watch();
        let wait = || threads.spawn(|| bench.queue.dequeue_timeout(secs(10)).map(|claim| *claim));
        let consumer = wait();
        bench.clock.wait_for_sleepers(1);
        bench.clock.advance(secs(9));
        assert_eq!(bench.clock.sleepers(), 1);
        bench.clock.advance(secs(1));
        assert_eq!(consumer.join().unwrap(), Err(DequeueError::Empty));

        let consumer = wait();
        bench.clock.wait_for_sleepers(1);
        bench.queue.enqueue('k');
        assert_eq!(consumer.join().unwrap(), Ok('k'));
        assert_eq!(bench.clock.sleepers(), 0);
    });
    assert!(matches!(bench.is('k'), Is::Delayed(_)), "a dropped claim backs off");
    assert_eq!(bench.queue.dequeue_timeout(Duration::ZERO).unwrap_err(), DequeueError::Empty);
}

/// A key becomes ready at the instant of the timeout. The consumer looks again before it gives up.
#[test]
fn a_key_that_comes_with_the_timeout_is_taken() {
    let bench = Bench::new();
    bench.queue.enqueue_after('k', secs(10));
    thread::scope(|threads| {
        let _watch = bench.watch();
        let consumer = threads.spawn(|| bench.queue.dequeue_timeout(secs(10)).map(|claim| *claim));
        bench.clock.wait_for_sleepers(1);
        bench.clock.advance(secs(10));
        assert_eq!(consumer.join().unwrap(), Ok('k'));
    });
}
