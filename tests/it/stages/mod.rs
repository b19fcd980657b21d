//! Helpers for tests that control the steps of runs.

#![expect(clippy::expect_used, reason = "a helper of tests fails as a test does")]

pub(crate) use homeostat_test_support::logs;

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use homeostat::{ManualClock, WorkQueue};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// The time after its deadline at which a run counts as an overrun.
pub(crate) const ALLOWANCE: Duration = Duration::from_millis(100);

/// Returns one nanosecond less than `duration`.
pub(crate) fn just_before(duration: Duration) -> Duration {
    duration.saturating_sub(Duration::from_nanos(1))
}

/// Returns a held clock, and a queue on it.
pub(crate) fn held() -> (ManualClock, WorkQueue<&'static str>) {
    let clock = ManualClock::new();
    let queue = WorkQueue::builder().clock(clock.clock()).build();
    (clock, queue)
}

/// Advances the clock to the next delayed key, and waits until the only worker sleeps again.
pub(crate) fn step(clock: &ManualClock, queue: &WorkQueue<&'static str>) {
    clock.wait_for_sleepers(1);
    if let Some(due) = queue.next_due() {
        clock.advance(due - clock.now());
        clock.wait_for_sleepers(1);
    }
}

/// A point at which runs wait for the test. The runs hold the stage, and the test holds the director.
#[derive(Clone)]
pub(crate) struct Stage<T> {
    entries: Sender<T>,
    cues: Receiver<()>,
}

pub(crate) struct Director<T> {
    pub(crate) entries: Receiver<T>,
    cues: Sender<()>,
}

pub(crate) fn stage<T>() -> (Stage<T>, Director<T>) {
    let (entries, seen) = unbounded();
    let (cue, cues) = bounded(64);
    (Stage { entries, cues }, Director { entries: seen, cues: cue })
}

impl<T> Stage<T> {
    /// Reports the arrival, and waits for a cue. Returns at once if the director was dropped.
    pub(crate) fn enter(&self, who: T) {
        let _ = self.entries.send(who);
        let _ = self.cues.recv();
    }
}

impl<T> Director<T> {
    /// Waits for the next entry.
    pub(crate) fn next(&self) -> T {
        self.entries.recv().expect("the runs hold the other end")
    }

    /// Lets one run continue: a waiting run, or the next one.
    pub(crate) fn cue(&self) {
        let _ = self.cues.send(());
    }

    /// Returns whether no unseen run waits.
    pub(crate) fn is_quiet(&self) -> bool {
        self.entries.is_empty()
    }
}

/// An error that panics when it is displayed.
#[derive(Debug)]
pub(crate) struct PanicsInDisplay;

impl std::fmt::Display for PanicsInDisplay {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("a display that panics");
    }
}

impl std::error::Error for PanicsInDisplay {}
