//! When a poller polls: its rate, jitter and trigger.

#![expect(clippy::expect_used, reason = "a helper of tests fails as a test does")]

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

/// Returns a listing function without keys, and a receiver for the times of its calls.
fn recording() -> (impl FnMut(&Context) -> Keys + Send + 'static, Receiver<Instant>) {
    let (starts, seen) = unbounded();
    let list = move |cx: &Context| {
        starts.send(cx.clock().now())?;
        Ok(vec![])
    };
    (list, seen)
}

/// Advances to the next alarm and waits until the poller sleeps again.
fn step(clock: &ManualClock) {
    let next = clock.next_alarm().expect("a poller waits for its next poll");
    clock.advance(next - clock.now());
    clock.wait_for_sleepers(IDLE);
}

#[test]
fn the_first_poll_comes_at_once_and_the_others_at_multiples_of_the_period() {
    let (clock, queue) = held();
    let start = clock.now();
    let (list, starts) = recording();
    let poller = Poller::new(PERIOD, list).clock(queue.clock()).start(&queue).unwrap();
    for n in 0..5 {
        assert_eq!(starts.recv().unwrap() - start, n * PERIOD);
        clock.wait_for_sleepers(IDLE);
        clock.advance(just_before(PERIOD));
        clock.wait_for_sleepers(IDLE);
        assert!(starts.is_empty());
        clock.advance(Duration::from_nanos(1));
    }
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn the_first_poll_may_wait_for_one_period() {
    let (clock, queue) = held();
    let start = clock.now();
    let (list, starts) = recording();
    let poller = Poller::new(PERIOD, list).first_after_period().clock(queue.clock()).start(&queue).unwrap();
    clock.wait_for_sleepers(IDLE);
    clock.advance(just_before(PERIOD));
    clock.wait_for_sleepers(IDLE);
    assert_eq!(poller.status().listings, 0);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(starts.recv().unwrap() - start, PERIOD);
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_poll_that_takes_long_does_not_put_off_the_next() {
    let (clock, queue) = held();
    let start = clock.now();
    let (runs, director) = stage();
    let poller = polling(&queue, move |cx| runs.enter(cx.clock().now()));
    for n in 0..4 {
        assert_eq!(director.next() - start, n * PERIOD);
        clock.advance(4 * SECOND);
        director.cue();
        clock.wait_for_sleepers(IDLE);
        clock.advance(6 * SECOND);
    }
    drop(director);
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn polls_that_would_begin_during_another_are_skipped_and_never_piled_up() {
    let (clock, queue) = held();
    let start = clock.now();
    let (runs, director) = stage();
    let poller = polling(&queue, move |cx| runs.enter(cx.clock().now()));
    assert_eq!(director.next() - start, Duration::ZERO);
    clock.advance(25 * SECOND);
    director.cue();
    clock.wait_for_sleepers(IDLE);
    clock.advance(just_before(5 * SECOND));
    clock.wait_for_sleepers(IDLE);
    assert_eq!(poller.status().listings, 1);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(director.next() - start, 30 * SECOND);
    director.cue();
    clock.wait_for_sleepers(IDLE);
    clock.advance(PERIOD);
    assert_eq!(director.next() - start, 40 * SECOND);
    drop(director);
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn jitter_puts_a_poll_off_within_its_share_and_does_not_move_the_plan() {
    let (clock, queue) = held();
    let start = clock.now();
    let (list, starts) = recording();
    let poller = Poller::new(PERIOD, list).jitter(0.5).clock(queue.clock()).start(&queue).unwrap();
    clock.wait_for_sleepers(IDLE);
    while poller.status().listings < 60 {
        step(&clock);
    }
    let offsets: Vec<_> = (0..60).map(|n| starts.recv().unwrap() - (start + n * PERIOD)).collect();
    assert!(offsets.iter().all(|offset| *offset < PERIOD / 2), "{offsets:?}");
    // The chance that this fails is 1 in 10^20.
    assert!(offsets.iter().any(|offset| *offset < PERIOD / 4), "{offsets:?}");
    assert!(offsets.iter().any(|offset| *offset >= PERIOD / 4), "{offsets:?}");
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn jitter_may_take_the_whole_period_or_nothing() {
    for share in [0.0, 1.0] {
        let (clock, queue) = held();
        let start = clock.now();
        let (list, starts) = recording();
        let poller = Poller::new(PERIOD, list).jitter(share).clock(queue.clock()).start(&queue).unwrap();
        clock.wait_for_sleepers(IDLE);
        while poller.status().listings < 20 {
            step(&clock);
        }
        for n in 0..20 {
            let offset = starts.recv().unwrap() - (start + n * PERIOD);
            assert!(offset <= PERIOD.mul_f64(share), "{offset:?}");
        }
        poller.shutdown(Duration::ZERO).unwrap();
    }
}

#[test]
fn a_period_of_zero_and_a_jitter_out_of_range_are_refused_by_name_and_value() {
    let queue = WorkQueue::<&str>::new();
    let refused = |period, share| {
        let error = Poller::new(period, recording().0).jitter(share).clock(queue.clock()).start(&queue).unwrap_err();
        assert_eq!(error.kind(), StartErrorKind::InvalidSetting);
        error.to_string()
    };
    assert_eq!(refused(Duration::ZERO, 0.0), "period is 0ns, but must be longer than zero");
    assert_eq!(refused(SECOND, 1.5), "jitter is 1.5, but must be between 0 and 1");
    assert_eq!(refused(SECOND, -0.1), "jitter is -0.1, but must be between 0 and 1");
    assert_eq!(refused(SECOND, f64::NAN), "jitter is NaN, but must be between 0 and 1");
}

#[test]
fn a_trigger_polls_at_once_and_does_not_shift_the_plan() {
    let (clock, queue) = held();
    let start = clock.now();
    let (list, starts) = recording();
    let poller = Poller::new(PERIOD, list).clock(queue.clock()).start(&queue).unwrap();
    assert_eq!(starts.recv().unwrap() - start, Duration::ZERO);
    clock.wait_for_sleepers(IDLE);
    clock.advance(7 * SECOND);
    poller.trigger();
    assert_eq!(starts.recv().unwrap() - start, 7 * SECOND);
    clock.wait_for_sleepers(IDLE);
    clock.advance(3 * SECOND);
    assert_eq!(starts.recv().unwrap() - start, PERIOD);
    clock.wait_for_sleepers(IDLE);
    assert_eq!(poller.status().listings, 3);
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn triggers_during_a_poll_cause_exactly_one_more() {
    let (clock, queue) = held();
    let (runs, director) = stage();
    let poller = polling(&queue, move |cx| runs.enter(cx.clock().now()));
    let first = director.next();
    for _ in 0..5 {
        poller.trigger();
    }
    director.cue();
    assert_eq!(director.next(), first);
    director.cue();
    clock.wait_for_sleepers(IDLE);
    assert_eq!(poller.status().listings, 2);
    assert!(director.is_quiet());
    drop(director);
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_planned_poll_that_would_begin_during_a_triggered_one_is_skipped() {
    let (clock, queue) = held();
    let start = clock.now();
    let (runs, director) = stage();
    let list = move |cx: &Context| -> Keys {
        runs.enter(cx.clock().now());
        Ok(vec![])
    };
    let poller = Poller::new(PERIOD, list).first_after_period().clock(queue.clock()).start(&queue).unwrap();
    clock.wait_for_sleepers(IDLE);
    clock.advance(8 * SECOND);
    poller.trigger();
    assert_eq!(director.next() - start, 8 * SECOND);
    clock.advance(4 * SECOND);
    director.cue();
    clock.wait_for_sleepers(IDLE);
    assert_eq!(poller.status().listings, 1);
    clock.advance(8 * SECOND);
    assert_eq!(director.next() - start, 20 * SECOND);
    drop(director);
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn an_endless_period_polls_once_and_when_triggered() {
    let (clock, queue) = held();
    let (asked, deadlines) = unbounded();
    let list = move |cx: &Context| -> Keys {
        asked.send((cx.deadline(), cx.remaining()))?;
        Ok(vec![])
    };
    let poller = Poller::new(Duration::MAX, list).clock(queue.clock()).start(&queue).unwrap();
    assert_eq!(deadlines.recv().unwrap(), (None, None));
    clock.wait_for_sleepers(IDLE);
    assert_eq!(clock.next_alarm(), None);
    clock.advance(Duration::from_secs(1 << 40));
    clock.wait_for_sleepers(IDLE);
    assert_eq!(poller.status().listings, 1);
    poller.trigger();
    assert_eq!(deadlines.recv().unwrap(), (None, None));
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn an_endless_first_period_never_polls() {
    let (clock, queue) = held();
    let (list, starts) = recording();
    let poller = Poller::new(Duration::MAX, list).first_after_period().clock(queue.clock()).start(&queue).unwrap();
    clock.wait_for_sleepers(IDLE);
    clock.advance(Duration::MAX);
    clock.wait_for_sleepers(IDLE);
    assert!(starts.is_empty());
    poller.shutdown(Duration::ZERO).unwrap();
}

fn polling(queue: &WorkQueue<&'static str>, mut poll: impl FnMut(&Context) + Send + 'static) -> Running<SourceHandle> {
    let list = move |cx: &Context| -> Keys {
        poll(cx);
        Ok(vec![])
    };
    Poller::new(PERIOD, list).clock(queue.clock()).start(queue).expect("settings in range")
}
