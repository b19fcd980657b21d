//! The wakes of the watchdog, and refused threads.

use super::start::Attendance;
use super::start::Watchdog;
use super::*;
use crate::base::clock::ManualClock;
use crate::base::running::Runnable;
use crate::base::task::{Next, Task};
use crate::base::thread::ThreadOptions;
use crate::base::wait::{AutoResetEvent, Latch};

const PERIOD: Duration = Duration::from_secs(10);

fn group_of_one() -> (Arc<ThreadGroup>, Attendance, Watchdog) {
    let group = ThreadGroup::new(ThreadGroupKind::Poller, "poller".to_owned(), ManualClock::new().clock(), 1);
    let attendance = Attendance::new(Arc::clone(&group), Arc::clone(&group.slots[0]));
    assert!(group.watchdog.set(TaskWaker::without_thread(group.clock.clone())).is_ok());
    let watchdog = Watchdog { group: Arc::clone(&group), report: Arc::new(|_| {}) };
    (group, attendance, watchdog)
}

#[test]
fn runs_at_planned_times_wake_the_watchdog_once_a_period() {
    let (group, _attendance, mut watchdog) = group_of_one();
    let mut start = Nanos::ZERO;
    for period in 0..100 {
        let deadline = start.after(PERIOD);
        drop(group.begin_until(&group.slots[0], deadline, 0));
        group.slots[0].plan(deadline.after(PERIOD));
        // The watchdog waits for nothing when the first run begins.
        assert_eq!(group.is_watchdog_woken(), period == 0, "period {period}");
        let wakes_at = if period == 0 { start } else { deadline };
        assert_eq!(watchdog.step(wakes_at), Next::At(deadline.after(PERIOD)), "period {period}");
        start = deadline;
    }
}

#[test]
fn the_watchdog_does_not_wait_for_a_planned_deadline_that_has_passed() {
    let (group, _attendance, mut watchdog) = group_of_one();
    group.slots[0].plan(Nanos::ZERO.after(PERIOD));
    assert_eq!(watchdog.step(Nanos::ZERO), Next::At(Nanos::ZERO.after(PERIOD)));
    assert_eq!(watchdog.step(Nanos::ZERO.after(PERIOD)), Next::At(Nanos::NEVER));
    let late = Nanos::ZERO.after(2 * PERIOD);
    let run = group.begin_until(&group.slots[0], late, 0);
    assert!(group.is_watchdog_woken(), "the run wakes it");
    assert_eq!(watchdog.step(Nanos::ZERO.after(PERIOD)), Next::At(late));
    drop(run);
}

#[test]
fn a_run_that_begins_before_its_planned_time_wakes_the_watchdog() {
    let (group, _attendance, mut watchdog) = group_of_one();
    group.slots[0].plan(Nanos::ZERO.after(PERIOD));
    watchdog.step(Nanos::ZERO);
    let sooner = Nanos::ZERO.after(PERIOD / 2);
    let run = group.begin_until(&group.slots[0], sooner, 0);
    assert!(group.is_watchdog_woken());
    assert_eq!(watchdog.step(Nanos::ZERO), Next::At(sooner));
    drop(run);
}

/// A task that does not end.
struct Endless;

impl Task for Endless {
    fn step(&mut self, _now: Nanos) -> Next {
        Next::At(Nanos::NEVER)
    }
}

/// A task that panics.
struct Panics;

impl Task for Panics {
    fn step(&mut self, _now: Nanos) -> Next {
        panic!("out of luck")
    }
}

#[test]
fn a_panic_that_ends_a_thread_is_the_failure_of_its_group() {
    let group = ThreadGroup::new(ThreadGroupKind::Poller, "poller".to_owned(), ManualClock::new().clock(), 1);
    let event = AutoResetEvent::new(group.clock.clone());
    let mut handle = group.start_one(&ThreadOptions::new(), Panics, event, None, || ()).unwrap();
    handle.join().unwrap();
    assert_eq!(handle.failure().unwrap().to_string(), "thread poller-0 panicked: out of luck");
}

/// A task that blocks until it is woken. It keeps the group.
struct Blocked(Arc<Latch>, #[expect(dead_code, reason = "counted")] Arc<ThreadGroup>);

impl Task for Blocked {
    fn step(&mut self, _now: Nanos) -> Next {
        self.0.wait_until(Nanos::NEVER);
        Next::Finished
    }
}

#[test]
fn all_threads_of_a_group_have_been_joined_if_the_system_refuses_one() {
    for (refused, others) in [("pool-0", 1), ("pool-2", 3), ("pool-watchdog", 0)] {
        let group = ThreadGroup::new(ThreadGroupKind::Pool, "pool".to_owned(), ManualClock::new().clock(), 3);
        let (options, started) = ThreadOptions::refusing_named(refused);
        let woken = Latch::new(group.clock.clone());
        let task = |_: &Arc<WorkerSlot>| -> Box<dyn Task> { Box::new(Blocked(Arc::clone(&woken), Arc::clone(&group))) };
        let wakes = Arc::clone(&woken);
        let result = group.start(&options, 3, task, Some(Arc::new(|_| {})), move || wakes.set(true));
        let error = result.map(drop).unwrap_err();
        assert_eq!(error.to_string(), format!("the system cannot start thread {refused}"));
        assert_eq!(Arc::strong_count(&group), 1, "no thread has it");
        drop((options, group));
        assert_eq!(started.iter().count(), others);
    }
}

#[test]
fn no_thread_of_a_group_runs_after_the_system_has_refused_one() {
    for (refused, others) in [("poller-watchdog", &[][..]), ("poller-0", &["poller-watchdog"])] {
        let group = ThreadGroup::new(ThreadGroupKind::Poller, "poller".to_owned(), ManualClock::new().clock(), 1);
        let event = AutoResetEvent::new(group.clock.clone());
        let (options, started) = ThreadOptions::refusing_named(refused);
        let error = group.start_one(&options, Endless, event, Some(Arc::new(|| {})), || ()).map(drop).unwrap_err();
        assert_eq!(error.to_string(), format!("the system cannot start thread {refused}"));
        assert!(group.end.is_empty());
        assert_eq!(Arc::strong_count(&group), 1, "no thread has it");
        drop((options, group));
        assert_eq!(started.iter().collect::<Vec<_>>(), others);
    }
}
