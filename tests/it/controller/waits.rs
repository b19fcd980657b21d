//! Waits for the changes that a controller's sources have accepted, and for their initial listings.

#![expect(clippy::expect_used, reason = "a helper of tests fails as a test does")]

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::unbounded;
use homeostat::controller::{ControllerBuilder, RunOutcome, WaitError};
use homeostat::watch::Push;
use homeostat::{
    Action, BoxError, Context, Controller, ControllerHandle, Event, ManualClock, Running, Subscriber, Watch,
    WorkerPool, terminal,
};
use parking_lot::Mutex;

use crate::stages::{Director, SECOND, stage};
use crate::support::HOUR;

type Key = &'static str;
type Outcome = Result<Action, BoxError>;
type Requeueing = ControllerBuilder<Key>;
type Setting = fn(Requeueing) -> Requeueing;

const LONG: Duration = Duration::from_secs(60);

#[expect(clippy::unnecessary_wraps, reason = "a reconciler returns a result")]
fn done(_: &Context, _: &Key) -> Outcome {
    Ok(Action::await_change())
}

fn held() -> (ManualClock, Running<WorkerPool>) {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(2).clock(clock.clock()).start().expect("there are threads");
    (clock, pool)
}

fn builder<R>(clock: &ManualClock, reconcile: R) -> ControllerBuilder<Key>
where
    R: Fn(&Context, &Key) -> Outcome + Send + Sync + 'static,
{
    Controller::builder("vm", reconcile).clock(clock.clock())
}

/// Starts a controller with one watch. The mapping of each change waits for a cue of the director.
fn with_staged_mapping(
    clock: &ManualClock,
    pool: &WorkerPool,
    reconcile: impl Fn(&Context, &Key) -> Outcome + Send + Sync + 'static,
) -> (Push<Key, u32>, Director<()>, Running<ControllerHandle<Key>>) {
    let vms = Watch::builder().clock(clock.clock()).push();
    vms.synced();
    let (mappings, director) = stage();
    let mapping = move |event: &Event<Key, u32>| {
        if event.key().is_some() {
            mappings.enter(());
        }
        event.key().copied()
    };
    let subscriber = move |queue: &_| Subscriber::to(queue, mapping).buffered();
    let running = builder(clock, reconcile).subscribe(vms.watch(), subscriber).build().unwrap().start(pool).unwrap();
    running.wait_synced(Duration::MAX).unwrap();
    (vms, director, running)
}

/// On real threads, only with the controller's own waits: when a wait returns, the change before it has been
/// reconciled.
#[test]
fn each_wait_after_a_change_sees_the_run_of_that_change() {
    let vms = Watch::<u32, u32>::push();
    vms.synced();
    let (store, seen) = (vms.watch().store(), Arc::new(Mutex::new(vec![0; 7])));
    let saw = Arc::clone(&seen);
    let reconcile = move |_: &Context, key: &u32| -> Outcome {
        saw.lock()[*key as usize] = *store.get(key).ok_or("it is stored before its key is run")?;
        Ok(Action::await_change())
    };
    let pool = WorkerPool::builder().threads(2).start().unwrap();
    let running = Controller::builder("vm", reconcile)
        .watch(vms.watch(), |event| event.key().copied())
        .build()
        .unwrap()
        .start(&pool)
        .unwrap();
    running.wait_synced(LONG).unwrap();
    for value in 1..=200 {
        let key = value % 7;
        vms.set(key, value);
        running.wait(&key, LONG).unwrap();
        assert_eq!(seen.lock()[key as usize], value, "the wait returned before the run");
    }
}

#[test]
fn a_wait_covers_a_change_whose_mapping_has_not_returned() {
    let (clock, pool) = held();
    let (vms, director, running) = with_staged_mapping(&clock, &pool, done);
    vms.set("vm", 1);
    vms.set("other", 1);
    director.next();
    assert_eq!(running.wait(&"vm", Duration::ZERO), Err(WaitError::Timeout), "one of its mappings still runs");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| running.wait(&"vm", Duration::MAX));
        // The sleepers are two pool threads, the timer thread and the waiter.
        clock.wait_for_sleepers(4);
        director.cue();
        director.next();
        // The change of the other key was accepted before the call too.
        clock.wait_for_sleepers(4);
        assert!(!waiting.is_finished());
        director.cue();
        assert_eq!(waiting.join().unwrap(), Ok(Some(RunOutcome::Succeeded)));
    });
}

/// An error that asks the controller when it is shown.
#[derive(Debug)]
struct Asking(Arc<OnceLock<ControllerHandle<Key>>>);

impl fmt::Display for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "synced: {:?}", self.0.get().unwrap().wait_synced(Duration::ZERO))
    }
}

impl std::error::Error for Asking {}

#[test]
fn the_error_of_a_run_is_shown_without_the_lock_of_the_waits() {
    let (clock, pool) = held();
    let (runs, run) = stage();
    let handle = Arc::<OnceLock<_>>::default();
    let (asked, is_first) = (handle.clone(), AtomicBool::new(true));
    let running = builder(&clock, move |_: &Context, _: &Key| -> Outcome {
        runs.enter(());
        if is_first.swap(false, SeqCst) {
            Ok(Action::await_change())
        } else {
            Err(terminal(Asking(asked.clone())).into())
        }
    });
    let running = running.build().unwrap().start(&pool).unwrap();
    handle.set((*running).clone()).unwrap();
    running.enqueue("vm");
    run.next();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| running.wait(&"vm", Duration::MAX));
        // The sleepers are one pool thread, the timer thread and the waiter.
        clock.wait_for_sleepers(3);
        // Only a run that begins after the call has an outcome for the wait.
        running.enqueue("vm");
        run.cue();
        run.next();
        run.cue();
        assert_eq!(waiting.join().unwrap(), Ok(Some(RunOutcome::Failed("synced: Ok(())".to_owned()))));
    });
}

/// Later changes do not delay the wait.
#[test]
fn a_wait_does_not_cover_changes_accepted_after_the_call() {
    let (clock, pool) = held();
    let (runs, run) = stage();
    let (vms, director, running) = with_staged_mapping(&clock, &pool, move |_: &Context, _: &Key| {
        runs.enter(());
        Ok(Action::await_change())
    });
    running.enqueue("vm");
    run.next();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| running.wait(&"vm", Duration::MAX));
        // The sleepers are one pool thread, the timer thread, the subscriber and the waiter.
        clock.wait_for_sleepers(4);
        vms.set("later", 1);
        director.next();
        run.cue();
        // The mapping of the other change has not returned.
        assert_eq!(waiting.join().unwrap(), Ok(None));
        director.cue();
        run.cue();
    });
}

#[test]
fn a_wait_covers_the_keys_of_a_poll_that_has_returned() {
    let (clock, pool) = held();
    let (actors, director) = stage();
    let list = move |_: &Context| -> Result<_, BoxError> {
        let actors = actors.clone();
        // The keys are handed over one by one, after the listing has returned.
        Ok(["first", "vm"].into_iter().inspect(move |key| {
            if *key == "vm" {
                actors.enter(());
            }
        }))
    };
    let running = builder(&clock, done).poll(10 * SECOND, list).build().unwrap().start(&pool).unwrap();
    director.next();
    director.cue();
    running.wait_synced(Duration::MAX).unwrap();
    running.wait(&"vm", Duration::MAX).unwrap();
    clock.wait_for_sleepers(4);
    clock.advance(10 * SECOND);
    director.next();
    assert_eq!(running.wait(&"vm", Duration::ZERO), Err(WaitError::Timeout));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| running.wait(&"vm", Duration::MAX));
        // The sleepers are two pool threads, the timer thread and the waiter.
        clock.wait_for_sleepers(4);
        director.cue();
        assert_eq!(waiting.join().unwrap(), Ok(Some(RunOutcome::Succeeded)));
    });
}

/// A debounce or a minimum interval delays a change, and the wait includes the delay. A requeue is no change.
#[test]
fn a_wait_covers_a_change_of_a_delayed_key() {
    let settings: [(&str, Setting); 2] = [
        ("debounce", |vms| vms.debounce(2 * SECOND, 5 * SECOND)),
        ("least interval", |vms| vms.min_interval(2 * SECOND)),
    ];
    for (name, setting) in settings {
        let (clock, pool) = held();
        let vms = Watch::builder().clock(clock.clock()).push();
        vms.replace_all([("vm", 0)]);
        let requeue: fn(&Context, &Key) -> Outcome = |_, _| Ok(Action::requeue_after(HOUR));
        let running = setting(builder(&clock, requeue).watch(vms.watch(), |event| event.key().copied()))
            .build()
            .unwrap()
            .start(&pool)
            .unwrap();
        running.wait_synced(Duration::MAX).unwrap();
        running.wait(&"vm", Duration::MAX).unwrap();
        clock.wait_for_sleepers(3);
        assert_eq!(running.wait(&"vm", Duration::ZERO), Ok(None), "{name}");
        vms.set("vm", 1);
        assert_eq!(running.wait(&"vm", Duration::ZERO), Err(WaitError::Timeout), "{name}");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| running.wait(&"vm", Duration::MAX));
            clock.wait_for_sleepers(4);
            assert!(!waiting.is_finished(), "{name}");
            clock.advance(2 * SECOND);
            assert_eq!(waiting.join().unwrap(), Ok(Some(RunOutcome::Requeued(HOUR))), "{name}");
        });
    }
}

/// A soft change does not end the delay of a requeue, so the wait includes that delay.
#[test]
fn a_wait_covers_a_soft_change_that_waits_for_a_requeue() {
    let (clock, pool) = held();
    let vms = Watch::builder().clock(clock.clock()).push();
    vms.replace_all([("vm", 0)]);
    let requeue = |_: &Context, _: &Key| -> Outcome { Ok(Action::requeue_after(HOUR)) };
    let controller = builder(&clock, requeue).subscribe(vms.watch(), |queue| Subscriber::to_itself(queue).soft());
    let running = controller.build().unwrap().start(&pool).unwrap();
    running.wait_synced(Duration::MAX).unwrap();
    running.wait(&"vm", Duration::MAX).unwrap();
    clock.wait_for_sleepers(3);
    assert_eq!(running.wait(&"vm", Duration::ZERO), Ok(None));
    vms.set("vm", 1);
    assert_eq!(running.wait(&"vm", Duration::ZERO), Err(WaitError::Timeout));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| running.wait(&"vm", Duration::MAX));
        clock.wait_for_sleepers(4);
        assert!(!waiting.is_finished());
        clock.advance(HOUR);
        assert_eq!(waiting.join().unwrap(), Ok(Some(RunOutcome::Requeued(HOUR))));
    });
}

#[test]
fn a_wait_ends_with_the_controller_although_a_mapping_still_runs() {
    let (clock, pool) = held();
    let (vms, director, running) = with_staged_mapping(&clock, &pool, done);
    vms.set("vm", 1);
    director.next();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| running.wait(&"vm", Duration::MAX));
        clock.wait_for_sleepers(4);
        running.stop();
        assert_eq!(waiting.join().unwrap(), Err(WaitError::Stopped));
    });
    director.cue();
}

#[test]
fn a_wait_covers_changes_that_predicates_refuse_and_mappings_that_panic() {
    let (clock, pool) = held();
    let vms = Watch::builder().clock(clock.clock()).push();
    vms.synced();
    let (notice, reported) = unbounded();
    let running = builder(&clock, done)
        .subscribe(vms.watch(), move |queue| {
            Subscriber::to(queue, move |event: &Event<Key, u32>| {
                let _ = notice.send(event.key().copied());
                assert_ne!(event.key(), Some(&"panics"));
                event.key().copied()
            })
        })
        .build()
        .unwrap()
        .start(&pool)
        .unwrap();
    running.wait_synced(Duration::MAX).unwrap();
    vms.set("panics", 1);
    vms.set("vm", 1);
    running.wait(&"panics", Duration::MAX).unwrap();
    assert_eq!(reported.try_iter().flatten().collect::<Vec<_>>(), ["panics", "vm"]);
}

#[test]
fn the_last_initial_listing_wakes_a_wait_for_them() {
    let (clock, pool) = held();
    let (vms, disks) = (Watch::builder().clock(clock.clock()).push(), Watch::builder().clock(clock.clock()).push());
    let controller = builder(&clock, done)
        .watch(vms.watch(), |event: &Event<Key, u32>| event.key().copied())
        .watch(disks.watch(), |event: &Event<Key, u32>| event.key().copied())
        .build()
        .unwrap();
    let handle = controller.handle();
    assert_eq!(handle.wait_synced(Duration::ZERO), Err(WaitError::NotStarted));
    let running = controller.start(&pool).unwrap();
    vms.replace_all([("vm", 1)]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| handle.wait_synced(HOUR));
        let until = scope.spawn(|| handle.wait_synced(SECOND));
        clock.wait_for_sleepers(3 + 2);
        clock.advance(SECOND);
        assert_eq!(until.join().unwrap(), Err(WaitError::NotSynced));
        assert_eq!(handle.wait(&"vm", Duration::ZERO), Err(WaitError::NotSynced));
        assert!(WaitError::NotSynced.to_string().contains("a push watch needs a call of `synced`"));
        assert!(!waiting.is_finished());
        disks.synced();
        assert_eq!(waiting.join().unwrap(), Ok(()));
    });
    assert!(handle.has_synced());
    running.shutdown(Duration::ZERO).unwrap();
    assert_eq!(handle.wait_synced(Duration::ZERO), Ok(()), "the listings have completed");
}

#[test]
fn a_wait_for_the_first_listings_tells_a_stop_from_a_failure() {
    let (clock, pool) = held();
    let start = |timeout| {
        let vms = Watch::<Key, u32>::builder().clock(clock.clock()).push();
        let controller = builder(&clock, done).watch(vms.watch(), |event| event.key().copied()).sync_timeout(timeout);
        (controller.build().unwrap().start(&pool).unwrap(), vms)
    };
    let (running, _vms) = start(HOUR);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| running.wait_synced(Duration::MAX));
        clock.wait_for_sleepers(4);
        running.stop();
        assert_eq!(waiting.join().unwrap(), Err(WaitError::Stopped));
    });
    drop(running);
    let (running, _vms) = start(SECOND);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let waited = running.wait_synced(Duration::MAX);
            (waited, running.failure().map(|failure| failure.to_string()))
        });
        clock.wait_for_sleepers(4);
        clock.advance(SECOND);
        let (waited, failure) = waiting.join().unwrap();
        assert_eq!(waited, Err(WaitError::Failed));
        assert!(failure.expect("the failure can be read after the wait").contains("no initial listing"));
    });
    assert_eq!(running.wait(&"vm", Duration::MAX), Err(WaitError::Failed));
}

#[test]
fn a_wait_continues_while_a_run_asks_to_be_tried_again() {
    let pool = WorkerPool::builder().threads(1).start().unwrap();
    let reconcile = |cx: &Context, _: &Key| -> Outcome {
        let tries = cx.attempt() <= 2;
        Ok(if tries { Action::retry_after(Duration::from_millis(1)) } else { Action::await_change() })
    };
    let running = Controller::builder("vm", reconcile).build().unwrap().start(&pool).unwrap();
    running.enqueue("vm-1");
    assert_eq!(running.wait(&"vm-1", LONG), Ok(Some(RunOutcome::Succeeded)));
    let runs = running.metrics().runs;
    assert_eq!((runs.requeues, runs.successes, runs.errors()), (2, 1, 0));
    assert!(running.failing().is_empty());
}

#[test]
fn a_wait_for_a_controller_that_was_never_started_says_what_to_call() {
    let clock = ManualClock::new();
    let controller = builder(&clock, done).build().unwrap();
    let handle = controller.handle();
    handle.enqueue("vm");
    for waited in [handle.wait(&"vm", Duration::ZERO).map(drop), handle.wait_synced(Duration::ZERO)] {
        let error = waited.unwrap_err();
        assert_eq!(error, WaitError::NotStarted);
        let text = error.to_string();
        assert!(text.starts_with("the controller has not been started: call its `start`"), "{text}");
    }
    drop(controller);
    assert_eq!(handle.wait_synced(Duration::ZERO), Err(WaitError::Stopped));
}
