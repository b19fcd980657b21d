//! The period of a running poller.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use homeostat::base::StartErrorKind;
use homeostat::watch::SourceHandle;
use homeostat::{BoxError, Context, ManualClock, Poller, WorkQueue};

use crate::stages::{SECOND, held, just_before, stage};
use homeostat::Running;

const PERIOD: Duration = Duration::from_secs(10);

/// The sleeping threads of an idle poller: the poller and its watchdog.
const IDLE: usize = 2;

type Keys = Result<Vec<&'static str>, BoxError>;

/// Starts a poller without keys, and returns a receiver for the times of its polls.
fn polling(
    queue: &WorkQueue<&'static str>,
    period: Duration,
    jitter: f64,
) -> (Running<SourceHandle>, Receiver<Instant>) {
    let (starts, seen) = unbounded();
    let list = move |cx: &Context| -> Keys {
        starts.send(cx.clock().now())?;
        Ok(vec![])
    };
    (Poller::new(period, list).jitter(jitter).clock(queue.clock()).start(queue).unwrap(), seen)
}

/// Checks that the next poll begins after exactly `by`.
#[track_caller]
fn next_poll_is_in(clock: &ManualClock, starts: &Receiver<Instant>, by: Duration) {
    clock.wait_for_sleepers(IDLE);
    clock.advance(just_before(by));
    clock.wait_for_sleepers(IDLE);
    assert!(starts.is_empty());
    clock.advance(Duration::from_nanos(1));
    assert_eq!(starts.recv().unwrap(), clock.now());
}

#[test]
fn a_new_period_counts_from_the_call_that_sets_it() {
    for period in [3 * SECOND, 20 * SECOND] {
        let (clock, queue) = held();
        let (poller, starts) = polling(&queue, PERIOD, 0.0);
        starts.recv().unwrap();
        clock.wait_for_sleepers(IDLE);
        clock.advance(4 * SECOND);
        poller.set_period(period).unwrap();
        for _ in 0..3 {
            next_poll_is_in(&clock, &starts, period);
        }
        poller.shutdown(Duration::ZERO).unwrap();
    }
}

/// The poll may have begun or not: the test does not wait for the thread before it sets the period.
#[test]
fn a_poll_that_is_due_is_not_put_off() {
    let (clock, queue) = held();
    let (poller, starts) = polling(&queue, PERIOD, 0.0);
    poller.set_period(3 * SECOND).unwrap();
    assert_eq!(starts.recv().unwrap(), clock.now());
    next_poll_is_in(&clock, &starts, 3 * SECOND);
    clock.wait_for_sleepers(IDLE);
    clock.advance(3 * SECOND);
    poller.set_period(7 * SECOND).unwrap();
    assert_eq!(starts.recv().unwrap(), clock.now());
    next_poll_is_in(&clock, &starts, 7 * SECOND);
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn the_last_of_several_periods_counts() {
    let (clock, queue) = held();
    let (poller, starts) = polling(&queue, PERIOD, 0.0);
    starts.recv().unwrap();
    clock.wait_for_sleepers(IDLE);
    for period in [SECOND, Duration::MAX, 6 * SECOND] {
        poller.set_period(period).unwrap();
    }
    next_poll_is_in(&clock, &starts, 6 * SECOND);
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_poll_under_way_keeps_its_deadline_and_the_next_has_the_new_one() {
    let (clock, queue) = held();
    let start = clock.now();
    let (runs, director) = stage();
    let list = move |cx: &Context| -> Keys {
        runs.enter((cx.clock().now(), cx.remaining()));
        runs.enter((cx.clock().now(), cx.remaining()));
        Ok(vec![])
    };
    let poller = Poller::new(PERIOD, list).clock(queue.clock()).start(&queue).unwrap();
    assert_eq!(director.next(), (start, Some(PERIOD)));
    clock.advance(2 * SECOND);
    poller.set_period(5 * SECOND).unwrap();
    director.cue();
    assert_eq!(director.next(), (start + 2 * SECOND, Some(8 * SECOND)));
    // The polls due at 7 s and at 12 s would begin while this one runs.
    clock.advance(11 * SECOND);
    director.cue();
    clock.wait_for_sleepers(IDLE);
    clock.advance(just_before(4 * SECOND));
    clock.wait_for_sleepers(IDLE);
    assert!(director.is_quiet());
    clock.advance(Duration::from_nanos(1));
    assert_eq!(director.next(), (start + 17 * SECOND, Some(5 * SECOND)));
    drop(director);
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_trigger_does_not_shift_the_new_plan() {
    let (clock, queue) = held();
    let (poller, starts) = polling(&queue, PERIOD, 0.0);
    starts.recv().unwrap();
    clock.wait_for_sleepers(IDLE);
    poller.set_period(5 * SECOND).unwrap();
    clock.wait_for_sleepers(IDLE);
    clock.advance(2 * SECOND);
    poller.trigger();
    assert_eq!(starts.recv().unwrap(), clock.now());
    next_poll_is_in(&clock, &starts, 3 * SECOND);
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn an_endless_period_can_be_ended_and_begun() {
    let (clock, queue) = held();
    let (poller, starts) = polling(&queue, Duration::MAX, 0.0);
    starts.recv().unwrap();
    clock.wait_for_sleepers(IDLE);
    clock.advance(3 * PERIOD);
    poller.set_period(PERIOD).unwrap();
    next_poll_is_in(&clock, &starts, PERIOD);
    clock.wait_for_sleepers(IDLE);
    poller.set_period(Duration::MAX).unwrap();
    clock.wait_for_sleepers(IDLE);
    clock.advance(1000 * PERIOD);
    clock.wait_for_sleepers(IDLE);
    assert!(starts.is_empty());
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn the_jitter_is_a_share_of_the_new_period() {
    let (clock, queue) = held();
    let (poller, starts) = polling(&queue, 100 * PERIOD, 0.5);
    clock.wait_for_sleepers(IDLE);
    // The first poll, with a jitter of the first period.
    clock.advance(50 * PERIOD);
    starts.recv().unwrap();
    clock.wait_for_sleepers(IDLE);
    let start = clock.now();
    poller.set_period(PERIOD).unwrap();
    clock.wait_for_sleepers(IDLE);
    while poller.status().listings < 20 {
        clock.advance(clock.next_alarm().unwrap() - clock.now());
        clock.wait_for_sleepers(IDLE);
    }
    for n in 1..20 {
        let offset = starts.recv().unwrap() - (start + n * PERIOD);
        assert!(offset < PERIOD / 2, "{offset:?}");
    }
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_period_of_zero_is_refused_and_changes_nothing() {
    let (clock, queue) = held();
    let (poller, starts) = polling(&queue, PERIOD, 0.0);
    starts.recv().unwrap();
    clock.wait_for_sleepers(IDLE);
    clock.advance(4 * SECOND);
    let error = poller.set_period(Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), StartErrorKind::InvalidSetting);
    assert_eq!(error.to_string(), "period is 0ns, but must be longer than zero");
    next_poll_is_in(&clock, &starts, 6 * SECOND);
    poller.stop();
    poller.set_period(SECOND).unwrap();
    poller.join().unwrap();
    assert_eq!(clock.sleepers(), 0);
}
