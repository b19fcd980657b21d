//! When a poller counts as listed.

use std::io;
use std::sync::mpsc;

use super::*;
use crate::base::clock::ManualClock;
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
    poller.source().synced().on_set(Box::new(move |listed| report.send((listed, fed.len())).unwrap()));
    for _ in 0..2 {
        clock.wait_for_sleepers(IDLE);
        assert!(!poller.has_listed());
        clock.advance(PERIOD);
    }
    assert!(poller.source().synced().wait_for(Duration::MAX));
    clock.wait_for_sleepers(IDLE);
    assert_eq!(reported.try_recv(), Ok((true, 1)));
    poller.shutdown(Duration::ZERO);
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
    let listed = Arc::clone(poller.source().synced());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| listed.wait_for(Duration::MAX));
        // The poll, the watchdog, and the waiting thread.
        clock.wait_for_sleepers(3);
        poller.shutdown(Duration::ZERO);
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
    assert!(poller.failures() == 1 && poller.has_listed());
    let listed = Arc::clone(poller.source().synced());
    poller.shutdown(Duration::ZERO);
    assert!(listed.is_open());
}
