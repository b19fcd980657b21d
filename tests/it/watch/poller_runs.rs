//! The context of a poll, the keys that it enqueues, and its failures.

use std::time::Duration;

use crossbeam_channel::unbounded;
use homeostat::queue::{KeyState, PendingRerun};
use homeostat::run::Cancelled;
use homeostat::{BoxError, Context, ManualClock, Poller, Priority, Reasons, Shutdown, WorkQueue};
use log::Level;

use crate::stages::logs::Logs;
use crate::stages::{ALLOWANCE, PanicsInDisplay, SECOND, held, just_before, stage};

const PERIOD: Duration = Duration::from_secs(10);
const IDLE: usize = 2;

type Keys = Result<Vec<&'static str>, BoxError>;

#[test]
fn the_deadline_of_a_poll_is_one_period_after_it_began() {
    let (clock, queue) = held();
    let (ask, asked) = unbounded();
    let (tell, notice) = unbounded();
    let list = move |cx: &Context| -> Keys {
        for () in &asked {
            tell.send((cx.remaining(), cx.is_cancelled(), cx.check()))?;
        }
        Ok(vec![])
    };
    let poller = Poller::new(PERIOD, list).clock(queue.clock()).start(&queue).unwrap();
    let look = || {
        ask.send(()).unwrap();
        notice.recv().unwrap()
    };
    assert_eq!(look(), (Some(PERIOD), false, Ok(())));
    clock.advance(4 * SECOND);
    assert_eq!(look(), (Some(6 * SECOND), false, Ok(())));
    clock.advance(6 * SECOND);
    assert_eq!(look(), (Some(Duration::ZERO), true, Err(Cancelled::DeadlineExceeded)));
    clock.advance(SECOND);
    assert_eq!(look(), (Some(Duration::ZERO), true, Err(Cancelled::DeadlineExceeded)));
    poller.abort();
    assert_eq!(look(), (Some(Duration::ZERO), true, Err(Cancelled::Aborted)));
    drop(ask);
    poller.join().unwrap();
}

#[test]
fn a_poll_past_its_deadline_is_reported_and_cancelled_while_it_still_blocks() {
    let logs = Logs::of("slow-poller");
    let (clock, queue) = held();
    let (runs, director) = stage();
    let (cancelled, seen) = unbounded();
    let list = move |cx: &Context| -> Keys {
        let cancelled = cancelled.clone();
        let _guard = cx.on_cancel(move || cancelled.send(()).unwrap());
        runs.enter(());
        Ok(vec![])
    };
    let poller = Poller::new(PERIOD, list).name("slow-poller").clock(queue.clock()).start(&queue).unwrap();
    director.next();
    clock.wait_for_sleepers(1);
    clock.advance(just_before(PERIOD));
    clock.wait_for_sleepers(1);
    assert_eq!((poller.status().overruns, poller.status().overdue, seen.len()), (0, false, 0));
    clock.advance(Duration::from_nanos(1));
    seen.recv().unwrap();
    clock.wait_for_sleepers(1);
    assert_eq!((poller.status().overruns, poller.status().overdue), (0, true));
    clock.advance(ALLOWANCE);
    logs.wait_for(Level::Warn, "passed its deadline");
    assert_eq!((poller.status().overruns, poller.status().overdue), (1, true));
    clock.advance(SECOND);
    director.cue();
    clock.wait_for_sleepers(IDLE);
    assert_eq!((poller.status().overruns, poller.status().overdue), (1, false));
    drop(director);
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn the_next_poll_comes_as_planned_after_any_failure() {
    let logs = Logs::of("unlucky-poller");
    let (clock, queue) = held();
    let mut poll = 0;
    let list = move |_cx: &Context| -> Result<Box<dyn Iterator<Item = &'static str>>, BoxError> {
        poll += 1;
        match poll {
            1 => Err("no answer".into()),
            2 => panic!("out of luck"),
            3 => Ok(Box::new(std::iter::once("before").chain(std::iter::from_fn(|| panic!("half way"))))),
            4 => Err("no route".into()),
            5 => Err(Box::new(PanicsInDisplay)),
            6 => std::panic::panic_any(6),
            _ => Ok(Box::new(std::iter::once("after"))),
        }
    };
    let poller = Poller::new(PERIOD, list).name("unlucky-poller").clock(queue.clock()).start(&queue).unwrap();
    for polls in 1..=7 {
        clock.wait_for_sleepers(IDLE);
        assert_eq!(poller.status().listings, polls);
        clock.advance(PERIOD);
    }
    clock.wait_for_sleepers(IDLE);
    assert_eq!((poller.status().listings, poller.status().failures), (8, 6));
    assert_eq!(queue.state("after"), KeyState::Ready(Priority::Normal));
    // Six failures in a row: the first, second and fourth are logged above debug.
    let thrown = |level, field| logs.at(level).iter().map(|line| line.field(field).to_owned()).collect::<Vec<_>>();
    assert_eq!(thrown(Level::Error, "panic"), ["out of luck"]);
    assert_eq!(thrown(Level::Warn, "error"), ["no answer", "no route"]);
    let failures = |level| logs.at(level).into_iter().filter(|line| line.fields.contains_key("failures")).collect();
    let quiet: Vec<_> = failures(Level::Debug);
    let panics: Vec<_> = quiet.iter().map(|line| line.field("panic")).collect();
    assert_eq!(panics, ["half way", "", "a panic with a non-string payload"]);
    assert_eq!(quiet[1].field("error"), "(an error that panics when shown)");
    let again: Vec<_> = failures(Level::Info);
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].field("failures"), again[0].field("source")), ("6", "unlucky-poller"));
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_poll_enqueues_only_absent_keys_unless_it_is_an_edge() {
    for (edge, wish) in [(false, PendingRerun::None), (true, PendingRerun::Soft)] {
        let (clock, queue) = held();
        let poller = Poller::new(PERIOD, |_cx: &Context| -> Keys { Ok(vec!["vm"]) });
        let poller = if edge { poller.edge() } else { poller }.clock(queue.clock()).start(&queue).unwrap();
        let claim = queue.dequeue().unwrap();
        clock.wait_for_sleepers(IDLE);
        poller.trigger();
        clock.wait_for_sleepers(IDLE);
        assert_eq!(poller.status().listings, 2);
        assert_eq!(queue.state("vm"), KeyState::Processing(wish));
        claim.done();
        assert_eq!(queue.contains("vm"), edge);
        poller.shutdown(Duration::ZERO).unwrap();
    }
}

#[test]
fn polled_keys_have_the_given_priority_and_the_reason_poll() {
    let (clock, queue) = held();
    let (asked, seen) = unbounded();
    let list = move |cx: &Context| -> Keys {
        asked.send((cx.reasons(), cx.attempt(), cx.queued_for()))?;
        Ok(vec!["vm"])
    };
    let poller = Poller::new(PERIOD, list).priority(Priority::High).clock(queue.clock()).start(&queue).unwrap();
    let claim = queue.dequeue().unwrap();
    assert_eq!((claim.priority(), claim.reasons()), (Priority::High, Reasons::POLL));
    assert_eq!(seen.recv().unwrap(), (Reasons::POLL, 1, None));
    claim.done();
    clock.wait_for_sleepers(IDLE);
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_listing_of_several_thousand_keys_arrives_whole() {
    let clock = ManualClock::new();
    let queue = WorkQueue::builder().clock(clock.clock()).build();
    let poller =
        Poller::new(PERIOD, |_cx: &Context| Ok::<_, BoxError>(0..5000_u32)).clock(queue.clock()).start(&queue).unwrap();
    clock.wait_for_sleepers(IDLE);
    assert_eq!(queue.len(), 5000);
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_poller_survives_the_shutdown_of_its_queue() {
    let (clock, queue) = held();
    let poller =
        Poller::new(PERIOD, |_cx: &Context| -> Keys { Ok(vec!["vm"]) }).clock(queue.clock()).start(&queue).unwrap();
    clock.wait_for_sleepers(IDLE);
    queue.shutdown(Shutdown::Discard);
    clock.advance(PERIOD);
    clock.wait_for_sleepers(IDLE);
    assert_eq!((poller.status().listings, poller.status().failures), (2, 0));
    assert!(!queue.contains("vm"));
    poller.shutdown(Duration::ZERO).unwrap();
}
