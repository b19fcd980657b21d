//! Resyncs run on the threads of the pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use homeostat::controller::ControllerBuilder;
use homeostat::watch::Push;
use homeostat::{Action, BoxError, Context, Controller, Event, ManualClock, Reasons, Running, Watch, WorkerPool};

use crate::stages::stage;
use crate::support::HOUR;

type Key = &'static str;

/// A run's controller, key and reasons.
type Ran = (&'static str, Key, Reasons);

fn start(threads: usize) -> (ManualClock, Running<WorkerPool>, Push<Key, u32>) {
    let clock = ManualClock::new();
    let pool = WorkerPool::builder().threads(threads).clock(clock.clock()).start().unwrap();
    let vms = Watch::builder().clock(clock.clock()).push();
    vms.replace_all([("vm-1", 1)]);
    (clock, pool, vms)
}

/// Creates a controller that reports its runs.
fn reporting(name: &'static str, clock: &ManualClock, report: &Sender<Ran>) -> ControllerBuilder<Key> {
    let report = report.clone();
    let reconcile = move |cx: &Context, key: &Key| -> Result<Action, BoxError> {
        report.send((name, *key, cx.reasons()))?;
        Ok(if *key == "busy" { Action::requeue_after(Duration::ZERO) } else { Action::await_change() })
    };
    Controller::builder(name, reconcile).clock(clock.clock()).resync(HOUR)
}

fn until_resynced(ran: &Receiver<Ran>, controller: &str) {
    while ran.recv().is_ok_and(|(name, _, reasons)| name != controller || !reasons.contains(Reasons::RESYNC)) {}
}

#[test]
fn a_slow_mapping_of_a_resync_delays_no_other_controller() {
    let (clock, pool, vms) = start(2);
    let (mappings, director) = stage();
    let mapping = move |event: &Event<Key, u32>| {
        if matches!(event, Event::Unchanged { .. }) {
            mappings.enter(());
        }
        event.key().copied()
    };
    let (report, ran) = unbounded();
    let slow = reporting("slow", &clock, &report).watch(vms.watch(), mapping);
    let slow = slow.build().unwrap().start(&pool).unwrap();
    slow.wait(&"vm-1", Duration::MAX).unwrap();
    clock.wait_for_sleepers(3);
    clock.advance(HOUR);
    director.next();
    // A thread of the pool is in the mapping until the end.
    let quick = reporting("quick", &clock, &report).watch(vms.watch(), |event| event.key().copied());
    let quick = quick.build().unwrap().start(&pool).unwrap();
    quick.wait_synced(Duration::MAX).unwrap();
    quick.wait(&"vm-1", Duration::MAX).unwrap();
    clock.wait_for_sleepers(2);
    clock.advance(HOUR);
    until_resynced(&ran, "quick");
    // The second resync of the slow controller follows its first one.
    director.cue();
    director.next();
    director.cue();
    until_resynced(&ran, "slow");
}

#[test]
fn a_controller_that_always_has_a_ready_key_is_resynced() {
    let (clock, pool, vms) = start(1);
    let (report, ran) = unbounded();
    let controller = reporting("vm", &clock, &report).watch(vms.watch(), |event| event.key().copied());
    let controller = controller.build().unwrap().start(&pool).unwrap();
    controller.wait(&"vm-1", Duration::MAX).unwrap();
    controller.enqueue("busy");
    while ran.recv().unwrap().1 != "busy" {}
    clock.advance(HOUR);
    until_resynced(&ran, "vm");
}

/// Neither the rate nor the suspension of all keys delays a resync for ever. The keys wait.
#[test]
fn a_resync_needs_no_token_and_waits_for_the_end_of_a_suspension() {
    let (clock, pool, vms) = start(1);
    let (report, ran) = unbounded();
    let resynced = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&resynced);
    let mapping = move |event: &Event<Key, u32>| {
        if matches!(event, Event::Unchanged { .. }) {
            count.fetch_add(1, SeqCst);
        }
        event.key().copied()
    };
    let controller = reporting("vm", &clock, &report).watch(vms.watch(), mapping).rate_limit(1e-9, 1);
    let controller = controller.build().unwrap().start(&pool).unwrap();
    assert_eq!(ran.recv().unwrap().1, "vm-1");
    clock.wait_for_sleepers(2);
    clock.advance(HOUR);
    clock.wait_for_sleepers(2);
    assert_eq!(resynced.load(SeqCst), 1);
    controller.suspend_all();
    clock.advance(HOUR);
    clock.wait_for_sleepers(2);
    assert_eq!(resynced.load(SeqCst), 1);
    controller.resume_all();
    clock.wait_for_sleepers(2);
    assert_eq!((resynced.load(SeqCst), ran.len()), (2, 0));
    controller.set_rate_limit(None).unwrap();
    until_resynced(&ran, "vm");
}
