//! The watchdog's protocol and the join of a crew, in every interleaving of two or three threads.
//!
//! Of all accesses to an atomic the model checker keeps only the last, so what a model can see is what passes a lock too.

use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use super::watchdog::Watchdog;
use super::{Attendance, Crew};
use crate::cancel::CancellationToken;
use crate::clock::ManualClock;
use crate::reconcile::context::{Call, Context};
use crate::sync::Mutex;
use crate::time::Nanos;
use crate::wait::{Next, Task, run};

const SOON: Nanos = Nanos(10);
const LATER: Nanos = Nanos(1000);

/// Run numbers and records that the watchdog has reported.
type Reports = Arc<Mutex<Vec<(u64, u32)>>>;

fn crew(clock: &ManualClock, seats: usize) -> Arc<Crew> {
    Crew::new("crew".to_owned(), clock.clock(), seats, |_| {})
}

fn watchdog(crew: &Arc<Crew>) -> (Watchdog, Reports) {
    let reports = Reports::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&reports);
    let report = move |overrun: super::Overrun| seen.lock().push((overrun.run, overrun.record));
    (Watchdog::new(Arc::clone(crew), Box::new(report)), reports)
}

fn present(crew: &Arc<Crew>) -> Attendance {
    Attendance::new(Arc::clone(crew), Arc::clone(&crew.seats[0]))
}

fn context(crew: &Crew, deadline: Nanos) -> Context {
    let seat = Some(Arc::clone(&crew.seats[0]));
    Context::new(crew.clock.clone(), deadline, crew.abort.clone(), seat, Call::default())
}

#[test]
fn a_deadline_is_seen_by_a_watchdog_on_its_way_to_sleep_or_wakes_it() {
    loom::model(|| {
        let crew = crew(&ManualClock::new(), 1);
        let _present = present(&crew);
        let (mut watchdog, _) = watchdog(&crew);
        let stepping = thread::spawn(move || watchdog.step(Nanos::ZERO));
        let run = crew.begin(&crew.seats[0], 0, SOON);
        let next = stepping.join().unwrap();
        let woken = crew.watchdog.wait_until(Nanos::ZERO);
        assert!(woken || next == Next::At(SOON), "{next:?}");
        drop(run);
    });
}

/// The watchdog has waited for an earlier deadline, of a run that is over, and is about to wait for none.
#[test]
fn a_deadline_later_than_the_last_one_watched_is_not_missed() {
    loom::model(|| {
        let crew = crew(&ManualClock::new(), 1);
        let _present = present(&crew);
        let (mut watchdog, _) = watchdog(&crew);
        let first = crew.begin(&crew.seats[0], 0, SOON);
        assert_eq!(watchdog.step(Nanos::ZERO), Next::At(SOON));
        drop(first);
        crew.watchdog.wait_until(Nanos::ZERO);
        let stepping = thread::spawn(move || watchdog.step(SOON));
        let second = crew.begin(&crew.seats[0], 0, LATER);
        let next = stepping.join().unwrap();
        let woken = crew.watchdog.wait_until(Nanos::ZERO);
        assert!(woken || next == Next::At(LATER), "{next:?}");
        drop(second);
    });
}

#[test]
fn the_earlier_of_two_deadlines_is_never_slept_through() {
    loom::model(|| {
        let crew = crew(&ManualClock::new(), 2);
        let _present = present(&crew);
        let (mut watchdog, _) = watchdog(&crew);
        let stepping = thread::spawn(move || watchdog.step(Nanos::ZERO));
        let other = Arc::clone(&crew);
        let beginning = thread::spawn(move || std::mem::forget(other.begin(&other.seats[1], 1, LATER)));
        let run = crew.begin(&crew.seats[0], 0, SOON);
        beginning.join().unwrap();
        let next = stepping.join().unwrap();
        let woken = crew.watchdog.wait_until(Nanos::ZERO);
        assert!(woken || next == Next::At(SOON), "{next:?}");
        drop(run);
    });
}

#[test]
fn a_run_that_begins_as_an_overdue_one_ends_is_not_taken_for_it() {
    loom::model(|| {
        let clock = ManualClock::new();
        let crew = crew(&clock, 1);
        let _present = present(&crew);
        let (mut watchdog, reports) = watchdog(&crew);
        let first = crew.begin(&crew.seats[0], 1, SOON);
        clock.advance(Duration::from_nanos(SOON.0));
        let stepping = thread::spawn(move || watchdog.step(SOON));
        drop(first);
        let second = crew.begin(&crew.seats[0], 2, LATER);
        let cx = context(&crew, LATER);
        let token = cx.token().clone();
        stepping.join().unwrap();
        assert!(!token.is_cancelled());
        assert!(!crew.seats[0].is_overdue());
        assert_eq!(crew.seats[0].deadline(), LATER);
        assert!(reports.lock().iter().all(|report| *report == (1, 1)), "{reports:?}");
        drop(cx);
        drop(second);
    });
}

/// On a clock that stands still two runs may have one deadline.
#[test]
fn of_two_runs_with_one_deadline_the_second_is_reported_once() {
    loom::model(|| {
        let clock = ManualClock::new();
        let crew = crew(&clock, 1);
        let _present = present(&crew);
        let (mut watchdog, reports) = watchdog(&crew);
        let first = crew.begin(&crew.seats[0], 1, SOON);
        clock.advance(Duration::from_nanos(SOON.0));
        let stepping = thread::spawn(move || {
            watchdog.step(SOON);
            watchdog
        });
        drop(first);
        let second = crew.begin(&crew.seats[0], 2, SOON);
        let mut watchdog = stepping.join().unwrap();
        watchdog.step(SOON);
        watchdog.step(SOON);
        assert_eq!(reports.lock().iter().filter(|report| **report == (2, 2)).count(), 1, "{reports:?}");
        assert!(crew.seats[0].is_overdue());
        drop(second);
        assert!(!crew.seats[0].is_overdue());
    });
}

#[test]
fn a_token_made_as_the_deadline_passes_is_cancelled() {
    loom::model(|| {
        let clock = ManualClock::new();
        let crew = crew(&clock, 1);
        let _present = present(&crew);
        let (mut watchdog, reports) = watchdog(&crew);
        let run = crew.begin(&crew.seats[0], 1, SOON);
        let cx = context(&crew, SOON);
        let stepping = thread::spawn(move || {
            clock.advance(Duration::from_nanos(SOON.0));
            watchdog.step(SOON);
        });
        let token = cx.token().clone();
        stepping.join().unwrap();
        assert!(token.is_cancelled());
        assert_eq!(*reports.lock(), [(1, 1)]);
        drop(cx);
        drop(run);
    });
}

#[test]
fn a_run_that_ends_in_time_leaves_its_token_alone() {
    loom::model(|| {
        let clock = ManualClock::new();
        let crew = crew(&clock, 1);
        let _present = present(&crew);
        let (mut watchdog, reports) = watchdog(&crew);
        let ended = Arc::new(Mutex::new(false));
        let (still, advanced) = (Arc::clone(&ended), clock.clone());
        let run = crew.begin(&crew.seats[0], 1, SOON);
        let cx = context(&crew, SOON);
        let token = cx.token().clone();
        let stepping = thread::spawn(move || {
            let in_time = *still.lock();
            advanced.advance(Duration::from_nanos(SOON.0));
            watchdog.step(SOON);
            in_time
        });
        drop(cx);
        drop(run);
        *ended.lock() = true;
        let in_time = stepping.join().unwrap();
        let reported = !reports.lock().is_empty();
        assert!(!(in_time && reported));
        assert!(reported || !token.is_cancelled());
    });
}

/// The whole of it, asleep and awake: a deadline that were missed would leave the last thread waiting for ever.
#[test]
fn the_token_of_an_overdue_run_is_cancelled_while_it_runs() {
    // With at most three preemptions: all interleavings take longer than a test may.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let clock = ManualClock::new();
        let crew = crew(&clock, 1);
        let present = present(&crew);
        let (task, reports) = watchdog(&crew);
        let signal = Arc::clone(&crew.watchdog);
        let watching = thread::spawn(move || run(task, &signal));
        let current = crew.begin(&crew.seats[0], 1, SOON);
        let cx = context(&crew, SOON);
        let token: CancellationToken = cx.token().clone();
        clock.advance(Duration::from_nanos(SOON.0));
        token.wait();
        assert_eq!(*reports.lock(), [(1, 1)]);
        drop(cx);
        drop(current);
        drop(present);
        watching.join().unwrap();
    });
}

#[test]
fn the_last_thread_to_leave_wakes_who_joins() {
    loom::model(|| {
        let clock = ManualClock::new();
        let crew = crew(&clock, 2);
        let leaving: Vec<_> = (0..2)
            .map(|_| {
                let present = present(&crew);
                thread::spawn(move || drop(present))
            })
            .collect();
        assert!(crew.wait_until_empty(Nanos::NEVER));
        assert!(crew.is_empty());
        for thread in leaving {
            thread.join().unwrap();
        }
        assert_eq!(clock.sleepers(), 0);
    });
}

#[test]
fn who_joins_for_a_time_returns_when_it_is_over_or_the_last_has_left() {
    loom::model(|| {
        let clock = ManualClock::new();
        let crew = crew(&clock, 1);
        let present = present(&crew);
        let leaving = thread::spawn(move || drop(present));
        let advancing = {
            let clock = clock.clone();
            thread::spawn(move || clock.advance(Duration::from_nanos(SOON.0)))
        };
        let left = crew.wait_until_empty(SOON);
        leaving.join().unwrap();
        advancing.join().unwrap();
        assert!(left || crew.clock.reached(SOON));
        assert!(crew.is_empty());
        assert_eq!(clock.sleepers(), 0);
        assert_eq!(clock.next_alarm(), None);
    });
}

#[test]
fn who_joins_for_a_time_returns_when_it_is_over_though_nobody_leaves() {
    loom::model(|| {
        let clock = ManualClock::new();
        let crew = crew(&clock, 1);
        let present = present(&crew);
        let advancing = {
            let clock = clock.clone();
            thread::spawn(move || clock.advance(Duration::from_nanos(SOON.0)))
        };
        assert!(!crew.wait_until_empty(SOON));
        advancing.join().unwrap();
        assert_eq!((clock.sleepers(), clock.next_alarm()), (0, None));
        drop(present);
    });
}

#[test]
fn the_watchdog_ends_with_the_last_thread() {
    loom::model(|| {
        let crew = crew(&ManualClock::new(), 1);
        let present = present(&crew);
        let (task, _) = watchdog(&crew);
        let signal = Arc::clone(&crew.watchdog);
        let watching = thread::spawn(move || run(task, &signal));
        drop(present);
        watching.join().unwrap();
    });
}
