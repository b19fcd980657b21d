//! When a poller counts as listed, and a refused thread.

use std::io;
use std::sync::mpsc;

use super::*;
use crate::base::clock::ManualClock;
use crate::base::running::{Runnable, RunningPhase};
use crate::base::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::queue::WorkQueue;

const PERIOD: Duration = Duration::from_secs(10);

/// The sleeping threads of an idle poller: the poller and its watchdog.
const IDLE: usize = 2;

type Keys = io::Result<Vec<&'static str>>;

fn stage() -> (ManualClock, WorkQueue<&'static str>) {
    let clock = ManualClock::new();
    let queue = WorkQueue::builder().clock(clock.clock()).build();
    (clock, queue)
}

#[test]
fn has_listed_once_the_keys_of_the_first_successful_poll_are_enqueued() {
    let (clock, queue) = stage();
    let mut polls = 0;
    let list = move |_cx: &Context| -> Keys {
        polls += 1;
        match polls {
            1 => Err(io::ErrorKind::TimedOut.into()),
            2 => panic!("out of luck"),
            _ => Ok(vec!["a"]),
        }
    };
    let poller = Poller::new(PERIOD, list).clock(queue.clock()).start(&queue).unwrap();
    let (report, reported) = mpsc::channel();
    let fed = queue.clone();
    poller.synced().on_set(Box::new(move |listed| report.send((listed, fed.len())).unwrap()));
    for _ in 0..2 {
        clock.wait_for_sleepers(IDLE);
        assert!(!poller.synced().is_open());
        clock.advance(PERIOD);
    }
    assert!(poller.synced().wait_for(Duration::MAX));
    clock.wait_for_sleepers(IDLE);
    assert_eq!(reported.try_recv(), Ok((true, 1)));
    poller.shutdown(Duration::ZERO).unwrap();
    assert!(reported.recv().is_err(), "the callback runs once");
}

#[test]
fn waiting_for_the_first_listing_fails_when_the_poller_ends() {
    let (clock, queue) = stage();
    let list = |cx: &Context| -> Keys {
        cx.sleep(Duration::MAX).map_err(io::Error::other)?;
        Ok(vec!["a"])
    };
    let poller = Poller::new(PERIOD, list).clock(queue.clock()).start(&queue).unwrap();
    let listed = Arc::clone(poller.synced());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| listed.wait_for(Duration::MAX));
        // The poll, the watchdog, and the waiting thread.
        clock.wait_for_sleepers(3);
        poller.shutdown(Duration::ZERO).unwrap();
        assert!(!waiting.join().unwrap());
    });
    assert!(!listed.is_open() && queue.is_empty());
}

#[test]
fn a_failure_after_the_first_listing_does_not_reset_has_listed() {
    let (clock, queue) = stage();
    let mut first = true;
    let list = move |_cx: &Context| -> Keys {
        if std::mem::take(&mut first) { Ok(vec![]) } else { Err(io::ErrorKind::TimedOut.into()) }
    };
    let poller = Poller::new(PERIOD, list).clock(queue.clock()).start(&queue).unwrap();
    clock.wait_for_sleepers(IDLE);
    clock.advance(PERIOD);
    clock.wait_for_sleepers(IDLE);
    assert!(SourceHandle::status(&poller).failures == 1 && poller.synced().is_open());
    let listed = Arc::clone(poller.synced());
    poller.shutdown(Duration::ZERO).unwrap();
    assert!(listed.is_open());
}

#[test]
fn the_status_tells_the_period_the_last_success_and_the_next_listing() {
    let (clock, queue) = stage();
    let mut polls = 0;
    let list = move |cx: &Context| -> Keys {
        polls += 1;
        match polls {
            1 => Err(io::ErrorKind::TimedOut.into()),
            3 => cx.sleep(PERIOD * 9).map(|()| vec![]).map_err(io::Error::other),
            _ => Ok(vec![]),
        }
    };
    let poller = Poller::new(PERIOD, list).clock(queue.clock()).start(&queue).unwrap();
    let seen = || {
        let status = SourceHandle::status(&poller);
        (status.period, status.last_success, status.next_listing)
    };
    clock.wait_for_sleepers(IDLE);
    assert_eq!(seen(), (Some(PERIOD), None, Some(PERIOD)), "the first poll has failed");
    clock.advance(PERIOD / 2);
    assert_eq!(seen(), (Some(PERIOD), None, Some(PERIOD / 2)));
    clock.advance(PERIOD / 2);
    clock.wait_for_sleepers(IDLE);
    assert_eq!(seen(), (Some(PERIOD), Some(Duration::ZERO), Some(PERIOD)), "the second poll has succeeded");
    clock.advance(PERIOD);
    clock.wait_for_sleepers(IDLE);
    assert_eq!(seen(), (Some(PERIOD), Some(PERIOD), None), "the third poll runs, so none is planned");
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn the_period_is_known_during_the_first_poll() {
    let (clock, queue) = stage();
    let list = |cx: &Context| -> Keys { cx.sleep(Duration::MAX).map(|()| vec![]).map_err(io::Error::other) };
    let poller = Poller::new(PERIOD, list).clock(queue.clock()).start(&queue).unwrap();
    clock.wait_for_sleepers(IDLE);
    let status = SourceHandle::status(&poller);
    assert_eq!((status.listings, status.period, status.next_listing), (1, Some(PERIOD), None));
    poller.shutdown(Duration::ZERO).unwrap();
}

/// The end of a poller ends its watch, and readers of the watch may not be closed yet.
#[test]
fn a_closed_poller_lists_no_more_and_ends_when_it_is_stopped() {
    let (clock, queue) = stage();
    let polls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&polls);
    let list = move |_cx: &Context| -> Keys {
        counted.fetch_add(1, SeqCst);
        Ok(vec![])
    };
    let poller = Poller::new(PERIOD, list).clock(queue.clock()).start(&queue).unwrap();
    clock.wait_for_sleepers(IDLE);
    Runnable::close(&poller);
    poller.trigger();
    // Each of these wakes the poller.
    for _ in 0..3 {
        clock.advance(PERIOD);
        clock.wait_for_sleepers(IDLE);
    }
    assert_eq!((polls.load(SeqCst), poller.run_status().phase), (1, RunningPhase::Running));
    poller.shutdown(Duration::ZERO).unwrap();
    assert_eq!(polls.load(SeqCst), 1);
}

#[test]
fn a_poller_whose_watchdog_is_refused_runs_no_thread() {
    let (options, started) = ThreadOptions::refusing_named("-watchdog");
    let list = |_cx: &Context| -> Keys { Ok(vec![]) };
    let error = Poller::new(PERIOD, list).thread_options(options).start(&WorkQueue::new()).unwrap_err();
    assert_eq!(error.to_string(), "the system cannot start thread poller-watchdog");
    assert_eq!(started.iter().collect::<Vec<_>>(), [""; 0]);
}
