//! Shutdown in every state by every cause. Every thread that can end has ended, the stuck ones are named, and `run`
//! returns within the grace periods.

#![expect(clippy::expect_used, reason = "a helper of tests fails as a test does")]

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use homeostat::base::EndError;
use homeostat::{
    Action, BoxError, CancellationToken, Component, Context, Controller, Exponential, Manager, ManualClock, Poller,
    Running, Subscriber,
};

use crate::support::{threads, until_threads_end};
use crate::until::until;

type Key = &'static str;

const SHORT: Duration = Duration::from_millis(30);
/// Longer than all short advances together, and far from the largest time.
const ABORT_GRACE: Duration = Duration::from_secs(1_000_000);

/// The state of the manager at the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// A run that ends when it is cancelled.
    MidReconcile,
    MidBackoff,
    /// A run that does not end when it is cancelled.
    IgnoringCancellation,
    /// Runs that panic one after the other.
    Panicking,
    /// A source with a listing that does not return.
    StuckListing,
}

impl State {
    fn is_stuck(self) -> bool {
        matches!(self, Self::IgnoringCancellation | Self::StuckListing)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Token,
    FailureOfAnother,
    Drop,
    SecondSignal,
}

const STATES: [State; 6] = [
    State::Idle,
    State::MidReconcile,
    State::MidBackoff,
    State::IgnoringCancellation,
    State::Panicking,
    State::StuckListing,
];

struct Scene {
    clock: ManualClock,
    manager: Manager,
    stop: CancellationToken,
    abort: CancellationToken,
    /// Receives once the state has been reached.
    under_way: Receiver<()>,
    /// Releases the stuck run or listing when dropped.
    release: Sender<()>,
    fail: Sender<()>,
}

fn scene(state: State, grace: Duration) -> Scene {
    let (started, under_way) = bounded(1024);
    let (release, stuck) = bounded::<()>(0);
    let (fail, told_to_fail) = bounded::<()>(0);
    let abort = CancellationToken::new();
    let clock = ManualClock::new();
    let manager = Manager::builder()
        .name("Zx")
        .clock(clock.clock())
        .threads(2)
        .shutdown_grace(grace)
        .abort_grace(ABORT_GRACE)
        .abort_on(&abort)
        .build()
        .expect("its settings are in range");
    let (listing, listed) = (stuck.clone(), started.clone());
    let list = move |_: &Context| {
        if state == State::StuckListing {
            let _ = listed.try_send(());
            let _ = listing.recv();
        }
        Ok::<_, Infallible>([("vm-1", 1)])
    };
    let time = clock.clock();
    let start =
        || Poller::new(ABORT_GRACE, list).name("Zx-vms").clock(time.clone()).shutdown_grace(Duration::ZERO).watch();
    let vms = manager.watch::<Key, i32>("Zx-vms", start).expect("it starts");
    let reconcile = move |cx: &Context, _: &Key| -> Result<Action, BoxError> {
        let _ = started.try_send(());
        match state {
            State::Idle | State::StuckListing => {}
            State::MidReconcile => cx.token().wait(),
            State::MidBackoff => return Err("no answer".into()),
            State::IgnoringCancellation => drop(stuck.recv()),
            State::Panicking => panic!("out of luck"),
        }
        Ok(Action::await_change())
    };
    let backoff = if state == State::Panicking { Duration::from_nanos(1) } else { Duration::from_secs(3600) };
    let controller = Controller::builder("Zx-vm", reconcile)
        .clock(clock.clock())
        .subscribe(&vms, |queue| Subscriber::to_itself(queue).buffered())
        .retry(Exponential::new(backoff, backoff))
        .build()
        .expect("its settings are in range");
    manager.add(controller).expect("it is not stopping");
    manager
        .add(Component::function("Zx-other", move |cx: &Context| {
            let (done, end) = bounded::<()>(0);
            let _guard = cx.on_cancel(move || drop(done));
            crossbeam_channel::select! {
                recv(told_to_fail) -> notice => if notice.is_ok() { return Err("no such device") },
                recv(end) -> _ => {}
            }
            Ok(())
        }))
        .expect("it is not stopping");
    Scene { clock, manager, stop: CancellationToken::new(), abort, under_way, release, fail }
}

/// Advances the clock while a manager ends: short grace periods while threads may still end, then the abort grace
/// once only stuck threads are left.
fn pass_time(clock: &ManualClock, state: State, cause: Cause, over: &AtomicBool) {
    // The driver, the threads of the pool and, beside a stuck listing, its watchdog sleep once they have nothing to do.
    let only_stuck_are_left = || match state {
        State::IgnoringCancellation => {
            threads("Zx-v").is_empty() && threads("Zx-other").is_empty() && clock.sleepers() == 3
        }
        State::StuckListing => {
            threads("Zx-v") == threads("Zx-vms") && threads("Zx-other").is_empty() && clock.sleepers() == 5
        }
        _ => false,
    };
    while !over.load(Ordering::SeqCst) {
        if only_stuck_are_left() {
            clock.advance(ABORT_GRACE);
        } else if cause != Cause::SecondSignal {
            clock.advance(SHORT);
        }
        thread::yield_now();
    }
}

fn end_by(
    cause: Cause,
    running: Running<Manager>,
    manager: &Manager,
    stop: &CancellationToken,
    abort: &CancellationToken,
    fail: &Sender<()>,
) -> Result<(), EndError> {
    if cause == Cause::Drop {
        drop(running);
        return Ok(());
    }
    let stopping = manager.clone();
    let _stopped = stop.on_cancel(move || stopping.stop());
    thread::scope(|scope| {
        let waiting = scope.spawn(move || running.join());
        match cause {
            Cause::Token => stop.cancel(),
            Cause::SecondSignal => {
                stop.cancel();
                abort.cancel();
            }
            Cause::FailureOfAnother => fail.send(()).expect("the other waits for it"),
            Cause::Drop => {}
        }
        waiting.join().expect("it does not panic")
    })
}

fn end(state: State, cause: Cause, grace: Duration) -> Result<(), EndError> {
    let over = AtomicBool::new(false);
    let Scene { clock, manager, stop, abort, under_way, release, fail } = scene(state, grace);
    let running = manager.start().expect("it starts");
    under_way.recv().expect("the manager is still busy");
    // A thread sets its name itself, after its start.
    for name in ["source-0-0-Zx-v", "0-Zx-other", "pool-timer-Zx"] {
        until("the thread has its name", || !threads(name).is_empty());
    }
    let outcome = thread::scope(|scope| {
        scope.spawn(|| pass_time(&clock, state, cause, &over));
        let outcome = end_by(cause, running, &manager, &stop, &abort, &fail);
        over.store(true, Ordering::SeqCst);
        outcome
    });
    // Every thread that can end has ended by now. The system lists a thread a little longer than its join takes.
    if state.is_stuck() {
        let expected = if state == State::StuckListing { "0-Zx-vms" } else { "pool-" };
        assert!(!threads(expected).is_empty(), "{state:?}, {cause:?}: {:?}", threads("-Z"));
        until("the threads have ended", || threads("Zx-other").is_empty());
    } else {
        until_threads_end("-Z");
    }
    drop(release);
    until_threads_end("-Z");
    drop(under_way);
    outcome
}

fn check(state: State, cause: Cause, outcome: &Result<(), EndError>) {
    let seen = format!("{state:?}, {cause:?}: {outcome:?}");
    if cause == Cause::Drop {
        return;
    }
    let failed = cause == Cause::FailureOfAnother;
    let stuck: &[&str] = match state {
        State::IgnoringCancellation => &["Zx-pool-"],
        State::StuckListing => &["Zx-vms-0"],
        _ => &[],
    };
    match outcome {
        Ok(()) => assert!(!failed && stuck.is_empty(), "{seen}"),
        Err(error) => {
            assert_eq!(error.component(), failed.then_some("Zx-other"), "{seen}");
            assert_eq!(error.still_running().len(), stuck.len(), "{seen}");
            let all = error.still_running().iter().zip(stuck).all(|(name, start)| name.starts_with(start));
            assert!(all, "{seen}");
        }
    }
}

fn row(cause: Cause, grace: Duration) {
    for state in STATES {
        let outcome = end(state, cause, grace);
        check(state, cause, &outcome);
    }
}

#[test]
fn a_token_ends_the_manager_in_every_state() {
    row(Cause::Token, SHORT);
}

#[test]
fn a_failure_of_another_component_ends_the_manager_in_every_state() {
    row(Cause::FailureOfAnother, SHORT);
}

#[test]
fn a_drop_ends_the_manager_in_every_state() {
    row(Cause::Drop, SHORT);
}

/// No grace period passes, so only the second signal can end it.
#[test]
fn a_second_signal_ends_the_manager_in_every_state() {
    row(Cause::SecondSignal, Duration::from_secs(3600));
}

/// A run that ends within the grace period is not aborted.
#[test]
fn a_run_that_ends_within_the_grace_is_not_aborted() {
    let Scene { manager, under_way, release, .. } = scene(State::IgnoringCancellation, Duration::from_secs(3600));
    let running = manager.start().expect("it starts");
    under_way.recv().expect("a run");
    manager.stop();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || running.join());
        until("the manager stops", || manager.status().doing == "stopping");
        drop(release);
        waiting.join().expect("it does not panic").expect("it ends well");
    });
}
