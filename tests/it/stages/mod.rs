//! What the tests of pollers and workers have in common.

#![expect(clippy::expect_used, reason = "a helper of tests fails as a test does")]

pub(crate) mod logs;

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use homeostat::{ManualClock, WorkQueue};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// How long after its deadline a run that goes on becomes an overrun.
pub(crate) const ALLOWANCE: Duration = Duration::from_millis(100);

/// A nanosecond less.
pub(crate) fn just_before(duration: Duration) -> Duration {
    duration.saturating_sub(Duration::from_nanos(1))
}

/// A queue on a clock that the test holds.
pub(crate) fn held() -> (ManualClock, WorkQueue<&'static str>) {
    let clock = ManualClock::new();
    let queue = WorkQueue::builder().clock(clock.clock()).build();
    (clock, queue)
}

/// Advances to where the next delayed key is due, and lets the one worker that serves it fall asleep again.
pub(crate) fn step(clock: &ManualClock, queue: &WorkQueue<&'static str>) {
    clock.wait_for_sleepers(1);
    if let Some(due) = queue.next_due() {
        clock.advance(due - clock.now());
        clock.wait_for_sleepers(1);
    }
}

/// Where a run stops until the test lets it go on. The runs hold the stage, the test its director.
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
    /// Says that it is here, and waits for its cue. A director that has gone lets everyone through.
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

    /// Lets one run go on, the one that waits or the next to come.
    pub(crate) fn cue(&self) {
        let _ = self.cues.send(());
    }

    /// Nobody has entered unseen.
    pub(crate) fn is_quiet(&self) -> bool {
        self.entries.is_empty()
    }
}

/// A value whose drop panics.
#[derive(Debug)]
pub(crate) struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("a drop that panics");
    }
}

impl std::fmt::Display for PanicsInDrop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an error whose drop panics")
    }
}

impl std::error::Error for PanicsInDrop {}

/// An error that cannot be shown.
#[derive(Debug)]
pub(crate) struct PanicsInDisplay;

impl std::fmt::Display for PanicsInDisplay {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("a display that panics");
    }
}

impl std::error::Error for PanicsInDisplay {}
