//! Stopping, joining, dropping and detaching a poller.

#![expect(clippy::expect_used, reason = "a helper of tests fails as a test does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{bounded, unbounded};
use homeostat::run::Cancelled;
use homeostat::watch::SourceHandle;
use homeostat::{BoxError, Context, Poller, ThreadOptions, WorkQueue};
use log::Level;

use crate::stages::logs::Logs;
use crate::stages::{SECOND, held, just_before, stage};
use homeostat::Running;
use homeostat::base::StartErrorKind;

const PERIOD: Duration = Duration::from_secs(60);
const IDLE: usize = 2;

type Keys = Result<Vec<&'static str>, BoxError>;

#[test]
fn a_stopped_poller_finishes_its_poll_and_polls_no_more() {
    let (clock, queue) = held();
    let (runs, director) = stage();
    let (report, reported) = bounded(1);
    let poller = polling(&queue, move |cx| {
        runs.enter(());
        report.send(cx.check()).unwrap();
    });
    director.next();
    poller.trigger();
    poller.stop();
    poller.trigger();
    assert_eq!(poller.status().listings, 1);
    director.cue();
    poller.join().unwrap();
    assert_eq!(reported.recv(), Ok(Ok(())));
    assert!(director.is_quiet());
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn an_idle_poller_ends_as_soon_as_it_is_stopped() {
    let (clock, queue) = held();
    let mut poller = polling(&queue, |_| {});
    clock.wait_for_sleepers(IDLE);
    poller.stop();
    poller.join_timeout(Duration::MAX).unwrap();
    assert_eq!(clock.sleepers(), 0);
    assert_eq!(clock.next_alarm(), None);
}

#[test]
fn a_poll_may_shut_its_own_poller_down() {
    let (_clock, queue) = held();
    let (give, take) = unbounded::<Running<SourceHandle>>();
    let (report, seen) = unbounded();
    let poller = polling(&queue, move |_| {
        let own = take.recv().unwrap().shutdown(Duration::ZERO).unwrap_err();
        assert_eq!(own.still_running(), ["poller-0"]);
        report.send(()).unwrap();
    });
    give.send(poller).unwrap();
    assert_eq!(seen.recv(), Ok(()));
}

#[test]
fn an_aborted_poll_is_cancelled_and_told_why() {
    let (clock, queue) = held();
    let (woken, seen) = unbounded();
    let poller = polling(&queue, move |cx| woken.send(cx.sleep(Duration::MAX)).unwrap());
    // The sleeping poll and the watchdog.
    clock.wait_for_sleepers(2);
    poller.abort();
    assert_eq!(seen.recv().unwrap(), Err(Cancelled::Aborted));
    poller.join().unwrap();
}

#[test]
fn joining_for_a_time_names_the_thread_that_is_still_polling() {
    let (clock, queue) = held();
    let (runs, director) = stage();
    let list = move |_cx: &Context| -> Keys {
        runs.enter(());
        Ok(vec![])
    };
    let mut poller = Poller::new(PERIOD, list).name("stuck").clock(queue.clock()).start(&queue).unwrap();
    director.next();
    poller.stop();
    thread::scope(|scope| {
        let joining = scope.spawn(|| poller.join_timeout(5 * SECOND));
        // The watchdog and the joining thread.
        clock.wait_for_sleepers(2);
        clock.advance(5 * SECOND);
        let still = joining.join().unwrap().unwrap_err();
        assert_eq!(still.still_running(), ["stuck-0"]);
        assert_eq!(still.to_string(), "still running: stuck-0");
    });
    director.cue();
    poller.join_timeout(Duration::MAX).unwrap();
}

#[test]
fn a_shutdown_aborts_when_its_grace_is_over_and_not_before() {
    let (clock, queue) = held();
    let aborted = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&aborted);
    let (runs, director) = stage();
    let poller = polling(&queue, move |cx| {
        let seen = Arc::clone(&seen);
        let runs = runs.clone();
        cx.on_cancel(move || seen.store(true, SeqCst)).detach();
        runs.enter(());
        let _ = cx.sleep(Duration::MAX);
    });
    director.next();
    director.cue();
    thread::scope(|scope| {
        let shutting_down = scope.spawn(|| poller.shutdown(5 * SECOND));
        // The sleeping poll, the watchdog, and the thread that shuts down.
        clock.wait_for_sleepers(3);
        clock.advance(just_before(5 * SECOND));
        clock.wait_for_sleepers(3);
        assert!(!aborted.load(SeqCst) && !shutting_down.is_finished());
        clock.advance(Duration::from_nanos(1));
        shutting_down.join().unwrap().unwrap();
        assert!(aborted.load(SeqCst));
    });
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn a_dropped_poller_is_joined_and_aborted_after_the_builders_grace() {
    let (clock, queue) = held();
    let alive = Arc::new(());
    let held_by_list = Arc::clone(&alive);
    let list = move |cx: &Context| -> Keys {
        let _ = &held_by_list;
        cx.sleep(Duration::MAX)?;
        Ok(vec![])
    };
    let poller = Poller::new(PERIOD, list).shutdown_grace(2 * SECOND).clock(queue.clock()).start(&queue).unwrap();
    // The drop must abort a running poll: wait until the poll has begun.
    clock.wait_for_sleepers(2);
    thread::scope(|scope| {
        let dropping = scope.spawn(|| drop(poller));
        clock.wait_for_sleepers(3);
        clock.advance(just_before(2 * SECOND));
        clock.wait_for_sleepers(3);
        assert!(!dropping.is_finished());
        clock.advance(Duration::from_nanos(1));
        dropping.join().unwrap();
    });
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn a_detached_poller_polls_on() {
    let (clock, queue) = held();
    let (report, polls) = unbounded();
    let poller = polling(&queue, move |_| report.send(()).unwrap());
    polls.recv().unwrap();
    clock.wait_for_sleepers(IDLE);
    poller.detach();
    clock.advance(PERIOD);
    polls.recv().unwrap();
    // The poller holds a handle of its queue, so it does not need this one.
    drop(queue);
    clock.wait_for_sleepers(IDLE);
    clock.advance(PERIOD);
    polls.recv().unwrap();
}

#[test]
fn the_threads_are_made_as_asked() {
    let (clock, queue) = held();
    let (started, names) = unbounded();
    let options = ThreadOptions::new().stack_size(256 * 1024).on_start(move |name| {
        assert_eq!(thread::current().name(), Some(name));
        started.send(name.to_owned()).unwrap();
    });
    let list = |_cx: &Context| -> Keys { Ok(vec![]) };
    let poller =
        Poller::new(PERIOD, list).name("made").thread_options(options).clock(queue.clock()).start(&queue).unwrap();
    clock.wait_for_sleepers(IDLE);
    let mut names: Vec<_> = names.try_iter().collect();
    names.sort();
    assert_eq!(names, ["made-0", "made-watchdog"]);
    poller.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_start_hook_that_panics_does_not_keep_a_poller_from_polling() {
    let (clock, queue) = held();
    let options = ThreadOptions::new().on_start(|_| panic!("no such priority"));
    let list = |_cx: &Context| -> Keys { Ok(vec![]) };
    let poller = Poller::new(PERIOD, list).thread_options(options).clock(queue.clock()).start(&queue).unwrap();
    clock.wait_for_sleepers(IDLE);
    assert_eq!(poller.status().listings, 1);
    poller.shutdown(Duration::ZERO).unwrap();
}

/// A stack larger than any address space.
#[cfg(target_pointer_width = "64")]
#[test]
fn a_thread_that_the_system_refuses_is_an_error_that_names_it() {
    let queue = WorkQueue::new();
    let options = ThreadOptions::new().stack_size(1 << 60);
    let list = |_cx: &Context| -> Keys { Ok(vec![]) };
    let error =
        Poller::new(PERIOD, list).name("huge").thread_options(options).clock(queue.clock()).start(&queue).unwrap_err();
    assert_eq!(error.kind(), StartErrorKind::Thread);
    assert_eq!(error.to_string(), "the system cannot start thread huge-watchdog");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn start_and_end_are_logged_at_info_and_each_poll_at_debug() {
    let logs = Logs::of("talking-poller");
    let (clock, queue) = held();
    let list = |_cx: &Context| -> Keys { Ok(vec!["a", "b"]) };
    let poller = Poller::new(PERIOD, list).name("talking-poller").clock(queue.clock()).start(&queue).unwrap();
    clock.wait_for_sleepers(IDLE);
    poller.shutdown(Duration::ZERO).unwrap();
    let report: Vec<_> = logs.all().into_iter().map(|line| (line.level, line.message)).collect();
    let report: Vec<_> = report.iter().map(|(level, message)| (*level, message.as_str())).collect();
    assert_eq!(
        report,
        [
            (Level::Info, "talking-poller: the poller starts, with a period of 60s"),
            (Level::Debug, "talking-poller: polled, keys: 2"),
            (Level::Info, "talking-poller: the poller has ended"),
        ]
    );
    assert_eq!(logs.at(Level::Debug)[0].field("keys"), "2");
}

fn polling(queue: &WorkQueue<&'static str>, mut poll: impl FnMut(&Context) + Send + 'static) -> Running<SourceHandle> {
    let list = move |cx: &Context| -> Keys {
        poll(cx);
        Ok(vec![])
    };
    Poller::new(PERIOD, list).clock(queue.clock()).start(queue).expect("settings in range")
}
