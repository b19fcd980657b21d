//! Timeouts and delays: one thread advances a held clock while others wait.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use super::{Queue, SECOND, explore, queue};
use crate::base::clock::ManualClock;
use crate::base::time::Nanos;
use crate::base::wait::AutoResetEvent;
use crate::queue::{Claim, DequeueError, Enqueue, EnqueueOutcome, KeyState, PendingRerun, Shutdown};

/// The end of the second that most models pass. Timeouts use this time instead of a duration, because a thread may
/// begin to wait after it.
const ONE: Nanos = Nanos(1_000_000_000);

fn advancer(clock: &ManualClock, by: Duration) -> thread::JoinHandle<()> {
    let clock = clock.clone();
    thread::spawn(move || clock.advance(by))
}

fn consumer(queue: &Queue) -> thread::JoinHandle<Result<Claim<u8>, DequeueError>> {
    let queue = queue.clone();
    thread::spawn(move || queue.dequeue())
}

/// Returns the time since the clock was made.
fn elapsed(queue: &Queue) -> Nanos {
    queue.shared.now()
}

/// The timeout of a consumer races a key. Either this consumer takes the key, or the other one, which waits without a
/// timeout.
#[test]
fn no_key_is_left_to_a_sleeper_by_a_timeout() {
    explore(3, &["took the key", "timed out", "both asleep", "one asleep", "none asleep"], |seen| {
        let (clock, queue) = queue();
        let timed = {
            let queue = queue.clone();
            thread::spawn(move || queue.shared.dequeue(ONE, || false))
        };
        let untimed = consumer(&queue);
        let advancer = advancer(&clock, SECOND);
        seen.note(match clock.sleepers() {
            0 => "none asleep",
            1 => "one asleep",
            _ => "both asleep",
        });
        queue.enqueue(1);
        advancer.join().unwrap();
        match timed.join().unwrap() {
            Ok(claim) => {
                seen.note("took the key");
                claim.done();
                queue.enqueue(2);
            }
            Err(no_claim) => {
                seen.note("timed out");
                assert!(matches!(no_claim, DequeueError::Empty));
            }
        }
        untimed.join().unwrap().unwrap().done();
        assert_eq!((clock.sleepers(), clock.next_alarm()), (0, None));
    });
}

#[test]
fn a_timeout_wakes_its_consumer_beside_other_sleepers() {
    explore(4, &["both asleep", "not both asleep"], |seen| {
        let (clock, queue) = queue();
        let untimed = consumer(&queue);
        let timed = {
            let queue = queue.clone();
            thread::spawn(move || queue.shared.dequeue(ONE, || false).map(Claim::done))
        };
        seen.note(if clock.sleepers() == 2 { "both asleep" } else { "not both asleep" });
        clock.advance(SECOND);
        assert!(matches!(timed.join().unwrap(), Err(DequeueError::Empty)));
        queue.enqueue(1);
        untimed.join().unwrap().unwrap().done();
    });
}

#[test]
fn a_timeout_is_kept_if_another_consumer_takes_the_key() {
    explore(4, &["took the key", "timed out"], |seen| {
        let (clock, queue) = queue();
        let timed = {
            let queue = queue.clone();
            thread::spawn(move || queue.shared.dequeue(ONE, || false).map(Claim::done))
        };
        let advancer = advancer(&clock, SECOND);
        queue.enqueue(1);
        if let Ok(claim) = queue.try_dequeue() {
            claim.done();
        }
        advancer.join().unwrap();
        seen.note(if timed.join().unwrap().is_ok() { "took the key" } else { "timed out" });
        assert_eq!((clock.sleepers(), clock.next_alarm()), (0, None));
    });
}

#[test]
fn a_consumer_that_is_served_in_time_leaves_nothing_on_the_clock() {
    explore(None, &["asleep", "awake"], |seen| {
        let (clock, queue) = queue();
        let timed = {
            let queue = queue.clone();
            thread::spawn(move || queue.dequeue_timeout(SECOND).map(Claim::done))
        };
        seen.note(if clock.sleepers() == 0 { "awake" } else { "asleep" });
        queue.enqueue(1);
        assert_eq!(timed.join().unwrap(), Ok(()));
        assert_eq!((clock.sleepers(), clock.next_alarm()), (0, None));
    });
}

/// The end of a delay races `enqueue_now`. The key runs once, and once more only for a request during the run.
#[test]
fn a_delay_that_ends_while_a_request_ends_it_fires_once() {
    explore(5, &["queued", "merged", "rerun"], |seen| {
        let (clock, queue) = queue();
        assert_eq!(queue.enqueue_after(1, SECOND), EnqueueOutcome::Scheduled);
        let consumer = consumer(&queue);
        let advancer = advancer(&clock, SECOND);
        let rerun = match queue.enqueue_now(1) {
            EnqueueOutcome::Queued => {
                seen.note("queued");
                PendingRerun::None
            }
            EnqueueOutcome::Merged => {
                seen.note("merged");
                PendingRerun::None
            }
            EnqueueOutcome::Rerun => {
                seen.note("rerun");
                PendingRerun::Now
            }
            other => panic!("{other}"),
        };
        advancer.join().unwrap();
        let claim = consumer.join().unwrap().unwrap();
        assert_eq!(queue.state(&1), KeyState::Processing(rerun));
        assert_eq!(clock.next_alarm(), None);
        claim.done();
        assert_eq!(queue.len(), usize::from(rerun == PendingRerun::Now));
    });
}

#[test]
fn a_delay_that_ends_while_it_is_pushed_out_is_not_early() {
    explore(4, &["pushed out", "rerun"], |seen| {
        let (clock, queue) = queue();
        queue.enqueue_after(1, SECOND);
        let consumer = {
            let queue = queue.clone();
            thread::spawn(move || {
                let claim = queue.dequeue().unwrap();
                (elapsed(&queue), claim)
            })
        };
        let advancer = advancer(&clock, SECOND);
        let outcome = queue.reschedule(1, 5 * SECOND);
        advancer.join().unwrap();
        clock.advance(5 * SECOND);
        let (started, claim) = consumer.join().unwrap();
        match outcome {
            EnqueueOutcome::Scheduled => {
                seen.note("pushed out");
                assert!(started >= Nanos::ZERO.after(5 * SECOND));
            }
            EnqueueOutcome::Rerun => {
                seen.note("rerun");
                assert!(started >= Nanos::ZERO.after(SECOND));
            }
            other => panic!("{other}"),
        }
        claim.done();
        assert_eq!(queue.len(), usize::from(outcome == EnqueueOutcome::Rerun));
    });
}

#[test]
fn a_delay_that_ends_while_it_is_cancelled_matches_the_returned_state() {
    explore(5, &["delayed", "ready", "processing"], |seen| {
        let (clock, queue) = queue();
        queue.enqueue_after(1, SECOND);
        let consumer = consumer(&queue);
        let advancer = advancer(&clock, SECOND);
        let found = queue.cancel(&1);
        advancer.join().unwrap();
        queue.shutdown(Shutdown::ServeReady);
        let took = consumer.join().unwrap().is_ok();
        match found {
            KeyState::Delayed(_) => seen.note("delayed"),
            KeyState::Ready(_) => seen.note("ready"),
            KeyState::Processing(PendingRerun::None) => seen.note("processing"),
            other => panic!("{other:?}"),
        }
        assert_eq!(took, matches!(found, KeyState::Processing(_)));
        assert_eq!(clock.next_alarm(), None);
    });
}

/// The clock passes a time while a request for that time enters the queue.
#[test]
fn a_delay_that_begins_while_its_time_comes_is_not_forgotten() {
    explore(None, &["due at once", "due later"], |seen| {
        let (clock, queue) = queue();
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || queue.enqueue_after(1, SECOND))
        };
        clock.advance(SECOND);
        assert!(matches!(producer.join().unwrap(), EnqueueOutcome::Scheduled | EnqueueOutcome::Queued));
        if queue.len() == 1 {
            seen.note("due at once");
        } else {
            seen.note("due later");
            assert!(clock.next_alarm().is_some());
            clock.advance(SECOND);
        }
        queue.try_dequeue().unwrap().done();
        assert_eq!(clock.next_alarm(), None);
    });
}

/// Two requests, the second of them earlier, race the clock. Each key becomes ready at its time and wakes its consumer.
#[test]
fn an_earlier_delay_than_the_pending_one_is_kept() {
    explore(4, &["earlier second", "earlier first"], |seen| {
        let (clock, queue) = queue();
        let earlier = {
            let queue = queue.clone();
            thread::spawn(move || queue.enqueue_after(1, SECOND))
        };
        let consumer = consumer(&queue);
        seen.note(if queue.contains(&1) { "earlier first" } else { "earlier second" });
        queue.enqueue_after(2, 5 * SECOND);
        earlier.join().unwrap();
        clock.advance(SECOND);
        let claim = consumer.join().unwrap().unwrap();
        assert_eq!(*claim, 1);
        claim.done();
        clock.advance(4 * SECOND);
        assert_eq!(*queue.try_dequeue().unwrap(), 2);
    });
}

#[test]
fn an_event_wakes_a_thread_that_falls_asleep() {
    explore(None, &["asleep", "awake"], |seen| {
        let clock = ManualClock::new();
        let signal = AutoResetEvent::new(clock.clock());
        let waiter = {
            let signal = Arc::clone(&signal);
            thread::spawn(move || signal.wait_until(Nanos::NEVER))
        };
        seen.note(if clock.sleepers() == 0 { "awake" } else { "asleep" });
        signal.set();
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn an_event_that_races_a_deadline_is_seen_once() {
    explore(None, &["signalled", "timed out"], |seen| {
        let clock = ManualClock::new();
        let signal = AutoResetEvent::new(clock.clock());
        let waiter = {
            let signal = Arc::clone(&signal);
            thread::spawn(move || signal.wait_until(ONE))
        };
        let advancer = advancer(&clock, SECOND);
        signal.set();
        advancer.join().unwrap();
        let signalled = waiter.join().unwrap();
        seen.note(if signalled { "signalled" } else { "timed out" });
        // The event stays set until a wait sees it.
        assert_eq!(signal.wait_until(Nanos::ZERO), !signalled);
        assert_eq!((clock.sleepers(), clock.next_alarm()), (0, None));
    });
}
