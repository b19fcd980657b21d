//! An idle timer thread does not wake.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use homeostat::{Enqueue, WorkQueue};

/// Returns the directory of the thread with this name, under `/proc`.
fn thread_named(name: &str) -> Option<PathBuf> {
    fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path()).find(|task| {
        // A thread that has just ended has no name.
        fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    })
}

/// Returns whether the thread sleeps, and how often it has stopped running.
fn rest(task: &std::path::Path) -> (bool, u64) {
    let status = fs::read_to_string(task.join("status")).unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
    let switches = |name| field(name).parse::<u64>().unwrap();
    let asleep = field("State:").starts_with('S');
    (asleep, switches("voluntary_ctxt_switches:") + switches("nonvoluntary_ctxt_switches:"))
}

#[test]
fn a_timer_that_waits_for_an_hour_does_not_wake_while_the_queue_works() {
    let queue = WorkQueue::builder().name("idle").build();
    for key in 0..1000 {
        queue.enqueue_after(key, Duration::from_secs(3600));
    }
    let cycles = || {
        for key in 0..100_000 {
            queue.enqueue(1000 + key % 10);
            queue.dequeue().unwrap().done();
        }
    };
    // The thread may not have fallen asleep yet, so several windows may pass. A thread that wakes by itself wakes in
    // all of them.
    let at_rest = (0..20).any(|_| {
        let Some(timer) = thread_named("timer-idle") else {
            cycles();
            return false;
        };
        let before = rest(&timer);
        cycles();
        before.0 && rest(&timer) == before
    });
    assert!(at_rest, "the timer thread does not sleep");
    assert_eq!(queue.metrics().delayed, 1000);
}
