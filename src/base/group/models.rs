//! The slots, the watchdog's protocol and the join of a group, in every interleaving of two or three threads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use loom::thread;

use super::start::Attendance;
use super::start::Watchdog;
use super::{ALLOWANCE, ThreadGroup, ThreadGroupKind, WorkerSlot};
use crate::base::cancel::CancellationToken;
use crate::base::clock::ManualClock;
use crate::base::sync::Mutex;
use crate::base::task::{Next, Task};
use crate::base::task_thread::TaskWaker;
use crate::base::time::Nanos;
use crate::run::context::{Context, RunInfo};

const SOON: Nanos = Nanos(10);

/// The time after the start at which a run with the deadline [`SOON`] is overdue.
const OVERDUE: Duration = Duration::from_nanos(SOON.0).saturating_add(ALLOWANCE);

/// After [`OVERDUE`].
const LATER: Nanos = Nanos(1_000_000_000);

/// Run numbers and records that the watchdog has reported.
type Reports = Arc<Mutex<Vec<(u64, u32)>>>;

/// Returns the time after [`OVERDUE`].
fn overdue() -> Nanos {
    Nanos::ZERO.after(OVERDUE)
}

fn group(clock: &ManualClock, slots: usize) -> Arc<ThreadGroup> {
    ThreadGroup::new(ThreadGroupKind::Workers, "group".to_owned(), clock.clock(), slots)
}

fn watchdog(group: &Arc<ThreadGroup>) -> (Watchdog, Reports) {
    group.watchdog.set(TaskWaker::without_thread(group.clock.clone())).unwrap();
    let reports = Reports::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&reports);
    let report = move |overrun: &super::SeenRun| seen.lock().push(overrun.identity());
    (Watchdog { group: Arc::clone(group), report: Arc::new(report) }, reports)
}

fn present(group: &Arc<ThreadGroup>) -> Attendance {
    Attendance::new(Arc::clone(group), Arc::clone(&group.slots[0]))
}

fn context(group: &ThreadGroup, deadline: Nanos) -> Context {
    let slot = Some(Arc::clone(&group.slots[0]));
    Context::new(group.clock.clone(), deadline, group.abort.clone(), slot, RunInfo::default())
}

/// Runs `model` in every interleaving with at most this number of preemptions (`None`: any number). Each execution
/// returns its outcome. All of `outcomes` must occur, and no others: a model of threads that never meet would prove
/// nothing.
fn explore(
    preemptions: Option<usize>,
    outcomes: &[&'static str],
    model: impl Fn() -> &'static str + Send + Sync + 'static,
) {
    // Not one of loom's channels: this outlives its executions.
    let (outcome_of, seen) = std::sync::mpsc::channel();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        let outcome = model();
        assert!(outcome_of.send(outcome).is_ok());
    });
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), outcomes.iter().copied().collect());
}

#[test]
fn a_deadline_is_seen_by_a_watchdog_on_its_way_to_sleep_or_wakes_it() {
    loom::model(|| {
        let group = group(&ManualClock::new(), 1);
        let _present = present(&group);
        let (mut watchdog, _) = watchdog(&group);
        let stepping = thread::spawn(move || watchdog.step(Nanos::ZERO));
        let run = group.begin_until(&group.slots[0], SOON, 0);
        let next = stepping.join().unwrap();
        let woken = group.is_watchdog_woken();
        assert!(woken || next == Next::At(SOON), "{next:?}");
        drop(run);
    });
}

/// The watchdog has waited for an earlier deadline of an ended run, and is about to wait for none.
#[test]
fn a_deadline_later_than_the_last_one_watched_is_not_missed() {
    loom::model(|| {
        let group = group(&ManualClock::new(), 1);
        let _present = present(&group);
        let (mut watchdog, _) = watchdog(&group);
        let first = group.begin_until(&group.slots[0], SOON, 0);
        assert_eq!(watchdog.step(Nanos::ZERO), Next::At(SOON));
        drop(first);
        group.is_watchdog_woken();
        let stepping = thread::spawn(move || watchdog.step(SOON));
        let second = group.begin_until(&group.slots[0], LATER, 0);
        let next = stepping.join().unwrap();
        let woken = group.is_watchdog_woken();
        assert!(woken || next == Next::At(LATER), "{next:?}");
        drop(second);
    });
}

/// The watchdog falls asleep until the planned deadline of the next run, which begins late.
#[test]
fn a_deadline_later_than_planned_is_not_missed() {
    loom::model(|| {
        let group = group(&ManualClock::new(), 1);
        let _present = present(&group);
        let (mut watchdog, _) = watchdog(&group);
        group.slots[0].plan(SOON);
        let stepping = thread::spawn(move || watchdog.step(Nanos::ZERO));
        let run = group.begin_until(&group.slots[0], LATER, 0);
        let next = stepping.join().unwrap();
        let woken = group.is_watchdog_woken();
        assert!(woken || next == Next::At(SOON) || next == Next::At(LATER), "{next:?}");
        drop(run);
    });
}

#[test]
fn the_earlier_of_two_deadlines_is_never_slept_through() {
    // At most three preemptions: all interleavings of three threads would take too long for a test.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let group = group(&ManualClock::new(), 2);
        let _present = present(&group);
        let (mut watchdog, _) = watchdog(&group);
        let stepping = thread::spawn(move || watchdog.step(Nanos::ZERO));
        let other = Arc::clone(&group);
        let beginning = thread::spawn(move || std::mem::forget(other.begin_until(&other.slots[1], LATER, 1)));
        let run = group.begin_until(&group.slots[0], SOON, 0);
        beginning.join().unwrap();
        let next = stepping.join().unwrap();
        let woken = group.is_watchdog_woken();
        assert!(woken || next == Next::At(SOON), "{next:?}");
        drop(run);
    });
}

#[test]
fn a_new_run_is_not_mistaken_for_an_ending_overrun() {
    loom::model(|| {
        let clock = ManualClock::new();
        let group = group(&clock, 1);
        let _present = present(&group);
        let (mut watchdog, reports) = watchdog(&group);
        let first = group.begin_until(&group.slots[0], SOON, 1);
        clock.advance(OVERDUE);
        let stepping = thread::spawn(move || watchdog.step(overdue()));
        drop(first);
        let second = group.begin_until(&group.slots[0], LATER, 2);
        let cx = context(&group, LATER);
        let token = cx.token().clone();
        stepping.join().unwrap();
        assert!(!token.is_cancelled());
        assert!(!group.slots[0].is_overdue());
        assert_eq!(group.slots[0].deadline(SOON), LATER);
        assert!(reports.lock().iter().all(|report| *report == (1, 1)), "{reports:?}");
        drop(cx);
        drop(second);
    });
}

/// On a held clock, two runs may have the same deadline.
#[test]
fn the_second_of_two_runs_with_one_deadline_is_reported_once() {
    loom::model(|| {
        let clock = ManualClock::new();
        let group = group(&clock, 1);
        let _present = present(&group);
        let (mut watchdog, reports) = watchdog(&group);
        let first = group.begin_until(&group.slots[0], SOON, 1);
        clock.advance(OVERDUE);
        let stepping = thread::spawn(move || {
            watchdog.step(overdue());
            watchdog
        });
        drop(first);
        let second = group.begin_until(&group.slots[0], SOON, 2);
        let mut watchdog = stepping.join().unwrap();
        watchdog.step(overdue());
        watchdog.step(overdue());
        assert_eq!(reports.lock().iter().filter(|report| **report == (2, 2)).count(), 1, "{reports:?}");
        assert!(group.slots[0].is_overdue());
        drop(second);
        assert!(!group.slots[0].is_overdue());
    });
}

/// Two consecutive runs, while the watchdog checks their slot at the time when a run with the deadline `SOON` is
/// overdue.
fn explore_two_runs_on_one_slot(deadlines: [Nanos; 2], outcomes: &[&'static str]) {
    // All interleavings take a minute. At most four preemptions take a second or two.
    explore(Some(4), outcomes, move || {
        let slot = WorkerSlot::new("slot".to_owned());
        let seen = Arc::clone(&slot);
        let looking = thread::spawn(move || {
            let look = || seen.overrun(overdue()).map(|run| run.identity());
            (look(), look())
        });
        for (deadline, record) in deadlines.into_iter().zip([11, 12]) {
            slot.begin_until(deadline, record);
            slot.end();
        }
        let reports = looking.join().unwrap();
        assert!(!slot.is_busy() && !slot.is_overdue());
        match reports {
            (None, None) => "none is seen",
            (Some((1, 11)), None) | (None, Some((1, 11))) => "the first is reported",
            (Some((2, 12)), None) | (None, Some((2, 12))) => "the second is reported",
            (Some((1, 11)), Some((2, 12))) => "both are reported",
            _ => panic!("{reports:?}"),
        }
    });
}

#[test]
fn an_overdue_run_is_reported_with_its_own_data() {
    explore_two_runs_on_one_slot([SOON, LATER], &["none is seen", "the first is reported"]);
    explore_two_runs_on_one_slot([LATER, SOON], &["none is seen", "the second is reported"]);
    let all = ["none is seen", "the first is reported", "the second is reported", "both are reported"];
    explore_two_runs_on_one_slot([SOON, SOON], &all);
}

/// As in a worker, both runs use the same context. Both use their tokens.
#[test]
fn an_overrun_never_cancels_the_token_of_the_next_run() {
    let outcomes = ["it ends unseen", "it is reported, and its token cancelled", "its token is cancelled, and it ends"];
    explore(None, &outcomes, move || {
        let clock = ManualClock::new();
        let group = group(&clock, 1);
        let present = present(&group);
        let (mut watchdog, reports) = watchdog(&group);
        let mut cx = context(&group, SOON);
        let first = group.begin_until(&group.slots[0], SOON, 1);
        let late = cx.token().clone();
        clock.advance(OVERDUE);
        let stepping = thread::spawn(move || watchdog.step(overdue()));
        drop(first);
        cx.end();
        cx.renew(LATER, RunInfo::default());
        let second = group.begin_until(&group.slots[0], LATER, 2);
        let token = cx.token().clone();
        let next = stepping.join().unwrap();
        assert!(!token.is_cancelled());
        assert!(!group.slots[0].is_overdue());
        assert!(group.is_watchdog_woken() || next == Next::At(LATER), "{next:?}");
        let outcome = match (reports.lock().as_slice(), late.is_cancelled()) {
            ([], false) => outcomes[0],
            ([(1, 1)], true) => outcomes[1],
            ([], true) => outcomes[2],
            other => panic!("{other:?}"),
        };
        drop((second, cx, present));
        outcome
    });
}

#[test]
fn a_run_is_busy_from_begin_to_end_and_overdue_no_longer() {
    explore(None, &["idle", "busy", "overdue"], || {
        let slot = WorkerSlot::new("slot".to_owned());
        let seen = Arc::clone(&slot);
        let looking = thread::spawn(move || {
            let reported = seen.overrun(overdue()).is_some();
            let (overdue, busy) = (seen.is_overdue(), seen.is_busy());
            // An overdue run has been reported, and a busy run is not over.
            assert!(reported || !overdue);
            if overdue {
                "overdue"
            } else if busy {
                "busy"
            } else {
                "idle"
            }
        });
        slot.begin_until(SOON, 1);
        assert!(slot.is_busy());
        slot.end();
        assert!(!slot.is_busy() && !slot.is_overdue());
        looking.join().unwrap()
    });
}

#[test]
fn a_token_made_as_the_deadline_passes_is_cancelled() {
    loom::model(|| {
        let clock = ManualClock::new();
        let group = group(&clock, 1);
        let _present = present(&group);
        let (mut watchdog, reports) = watchdog(&group);
        let run = group.begin_until(&group.slots[0], SOON, 1);
        let cx = context(&group, SOON);
        let stepping = thread::spawn(move || {
            clock.advance(Duration::from_nanos(SOON.0));
            watchdog.step(SOON);
        });
        let token = cx.token().clone();
        stepping.join().unwrap();
        assert!(token.is_cancelled());
        assert!(reports.lock().is_empty());
        drop(cx);
        drop(run);
    });
}

#[test]
fn a_run_that_ends_in_time_leaves_its_token_alone() {
    loom::model(|| {
        let clock = ManualClock::new();
        let group = group(&clock, 1);
        let _present = present(&group);
        let (mut watchdog, reports) = watchdog(&group);
        let ended = Arc::new(Mutex::new(false));
        let (still, advanced) = (Arc::clone(&ended), clock.clone());
        let run = group.begin_until(&group.slots[0], SOON, 1);
        let cx = context(&group, SOON);
        let token = cx.token().clone();
        let stepping = thread::spawn(move || {
            let in_time = *still.lock();
            advanced.advance(OVERDUE);
            watchdog.step(overdue());
            in_time
        });
        drop(cx);
        drop(run);
        *ended.lock() = true;
        let in_time = stepping.join().unwrap();
        let reported = !reports.lock().is_empty();
        assert!(!(in_time && (reported || token.is_cancelled())));
    });
}

/// All parts together, with waits: a missed deadline would block the last thread for ever.
#[test]
fn the_token_of_a_run_is_cancelled_at_its_deadline_while_it_runs() {
    // At most three preemptions: all interleavings would take too long for a test.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let clock = ManualClock::new();
        let group = group(&clock, 1);
        let present = present(&group);
        let (task, reports) = watchdog(&group);
        let waker = group.watchdog.get().cloned().unwrap();
        let watching = thread::spawn(move || waker.run(task));
        let current = group.begin_until(&group.slots[0], SOON, 1);
        let cx = context(&group, SOON);
        let token: CancellationToken = cx.token().clone();
        clock.advance(Duration::from_nanos(SOON.0));
        token.wait();
        assert!(reports.lock().is_empty());
        drop(cx);
        drop(current);
        drop(present);
        watching.join().unwrap();
    });
}

#[test]
fn the_last_thread_to_leave_wakes_the_joiner() {
    loom::model(|| {
        let clock = ManualClock::new();
        let group = group(&clock, 2);
        let leaving: Vec<_> = (0..2)
            .map(|_| {
                let present = present(&group);
                thread::spawn(move || drop(present))
            })
            .collect();
        assert!(group.end.wait_until_empty(Nanos::NEVER));
        assert!(group.end.is_empty());
        for thread in leaving {
            thread.join().unwrap();
        }
        assert_eq!(clock.sleepers(), 0);
    });
}

#[test]
fn a_timed_join_returns_at_the_timeout_or_the_end() {
    loom::model(|| {
        let clock = ManualClock::new();
        let group = group(&clock, 1);
        let present = present(&group);
        let leaving = thread::spawn(move || drop(present));
        let advancing = {
            let clock = clock.clone();
            thread::spawn(move || clock.advance(Duration::from_nanos(SOON.0)))
        };
        let left = group.end.wait_until_empty(SOON);
        leaving.join().unwrap();
        advancing.join().unwrap();
        assert!(left || group.clock.reached(SOON));
        assert!(group.end.is_empty());
        assert_eq!(clock.sleepers(), 0);
        assert_eq!(clock.next_alarm(), None);
    });
}

#[test]
fn a_timed_join_returns_at_the_timeout_if_no_thread_leaves() {
    loom::model(|| {
        let clock = ManualClock::new();
        let group = group(&clock, 1);
        let present = present(&group);
        let advancing = {
            let clock = clock.clone();
            thread::spawn(move || clock.advance(Duration::from_nanos(SOON.0)))
        };
        assert!(!group.end.wait_until_empty(SOON));
        advancing.join().unwrap();
        assert_eq!((clock.sleepers(), clock.next_alarm()), (0, None));
        drop(present);
    });
}

#[test]
fn the_watchdog_ends_with_the_last_thread() {
    loom::model(|| {
        let group = group(&ManualClock::new(), 1);
        let present = present(&group);
        let (task, _) = watchdog(&group);
        let waker = group.watchdog.get().cloned().unwrap();
        let watching = thread::spawn(move || waker.run(task));
        drop(present);
        watching.join().unwrap();
    });
}
