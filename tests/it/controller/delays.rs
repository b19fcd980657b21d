//! Changes and resyncs of delayed keys, on a held clock.

#![expect(clippy::expect_used, reason = "a helper of tests fails as a test does")]

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use homeostat::controller::ControllerBuilder;
use homeostat::watch::Push;
use homeostat::{
    Action, BoxError, Context, Controller, Enqueue, Exponential, ManualClock, Poller, Reasons, Running, Subscriber,
    Watch, WorkQueue, WorkerPool,
};
use homeostat_host::Directory;

use crate::stages::{Director, SECOND, stage};
use crate::support::{HOUR, held, take};
use homeostat::ControllerHandle;

type Key = &'static str;
type Outcome = Result<Action, BoxError>;
type Run = Box<dyn Fn(&Context, &Key) -> Outcome + Send + Sync>;
type Builder = ControllerBuilder<Key>;

/// The number of threads that sleep while the controller is idle: two of the pool and its timer thread.
const IDLE: usize = 3;

const NONE: [u64; 0] = [];

/// A controller with one watch, and the times and reasons of its runs.
struct Rig {
    clock: ManualClock,
    start: Instant,
    push: Push<Key, u32>,
    vms: Running<ControllerHandle<Key>>,
    runs: Receiver<(Duration, Reasons)>,
    _pool: Running<WorkerPool>,
}

impl Rig {
    fn new(outcome: impl Fn() -> Outcome + Send + Sync + 'static, settings: impl FnOnce(Builder) -> Builder) -> Self {
        let clock = ManualClock::new();
        let start = clock.now();
        let pool = WorkerPool::builder().threads(2).clock(clock.clock()).start().expect("there are threads");
        let push = Watch::builder().clock(clock.clock()).push();
        push.replace_all([("vm", 0)]);
        let (notice, runs) = unbounded();
        let reconcile: Run = Box::new(move |cx, _| {
            notice.send((cx.clock().now() - start, cx.reasons()))?;
            outcome()
        });
        let builder = Controller::builder("vm", reconcile).clock(clock.clock());
        let builder = builder.watch(push.watch(), |event| event.key().copied());
        let vms = settings(builder).build().expect("the settings are valid").start(&pool).expect("it starts");
        Self { clock, start, push, vms, runs, _pool: pool }
    }

    fn settle(&self) {
        self.clock.wait_for_sleepers(IDLE);
    }

    fn advance_to(&self, second: u64) {
        let end = self.start + Duration::from_secs(second);
        self.settle();
        while self.clock.now() < end {
            self.clock.advance(SECOND.min(end - self.clock.now()));
            self.settle();
        }
    }

    fn change(&self, value: u32) {
        self.settle();
        self.push.set("vm", value);
        self.settle();
    }

    /// Returns the seconds since the start at which runs began.
    fn times(&self) -> Vec<u64> {
        self.settle();
        self.runs.try_iter().map(|(at, _)| at.as_secs()).collect()
    }
}

fn steps(first: u64, most: u64) -> Exponential {
    Exponential::new(Duration::from_secs(first), Duration::from_secs(most)).jitter(0.0)
}

#[test]
fn a_debounced_change_does_not_wait_for_a_pending_requeue() {
    let rig = Rig::new(|| Ok(Action::requeue_after(HOUR)), |vms| vms.debounce(2 * SECOND, 5 * SECOND));
    assert_eq!(rig.times(), [0]);
    rig.advance_to(60);
    rig.change(1);
    rig.advance_to(61);
    assert_eq!(rig.times(), NONE, "it is not quiet yet");
    rig.advance_to(62);
    assert_eq!(rig.times(), [62]);
    // The next requeue counts from the end of this run.
    rig.advance_to(62 + 3600);
    assert_eq!(rig.times(), [62 + 3600]);
}

#[test]
fn endless_changes_run_at_the_latest_wait_although_the_key_waits_for_a_requeue() {
    let rig = Rig::new(|| Ok(Action::requeue_after(HOUR)), |vms| vms.debounce(2 * SECOND, 5 * SECOND));
    assert_eq!(rig.times(), [0]);
    for second in 60..72 {
        rig.advance_to(second);
        rig.change(u32::try_from(second).unwrap());
    }
    assert_eq!(rig.times(), [65, 70]);
}

/// The requeued run also covers the change, so the change does not delay it.
#[test]
fn a_debounced_change_puts_no_requeue_off() {
    let rig = Rig::new(|| Ok(Action::requeue_after(10 * SECOND)), |vms| vms.debounce(4 * SECOND, 60 * SECOND));
    assert_eq!(rig.times(), [0]);
    for second in [5, 8, 9] {
        rig.advance_to(second);
        rig.change(u32::try_from(second).unwrap());
    }
    rig.advance_to(12);
    assert_eq!(rig.times(), [10]);
}

#[test]
fn a_debounced_change_during_a_run_does_not_wait_for_its_requeue() {
    let (actors, director): (_, Director<()>) = stage();
    let outcome = move || {
        actors.enter(());
        Ok(Action::requeue_after(HOUR))
    };
    let rig = Rig::new(outcome, |vms| vms.debounce(2 * SECOND, 3 * SECOND));
    director.next();
    rig.push.set("vm", 1);
    // One thread of the pool is in the run.
    rig.clock.wait_for_sleepers(IDLE - 1);
    director.cue();
    director.cue();
    director.cue();
    rig.advance_to(1);
    // The changes still belong to the same burst, so each delays the run, up to the latest wait of the first change.
    rig.change(2);
    rig.advance_to(2);
    rig.change(3);
    rig.advance_to(4);
    assert_eq!(rig.times(), [0, 3]);
}

#[test]
fn a_debounced_change_ends_a_backoff_but_for_its_floor() {
    let rig = Rig::new(|| Err("no answer".into()), |vms| vms.debounce(2 * SECOND, 5 * SECOND).retry(steps(10, 10_000)));
    // Backoffs of 10 s, 20 s, 40 s, 80 s, 160 s.
    for second in [10, 30, 70, 150] {
        rig.advance_to(second);
    }
    assert_eq!(rig.times(), [0, 10, 30, 70, 150]);
    rig.change(1);
    rig.advance_to(155);
    rig.change(2);
    rig.advance_to(159);
    assert_eq!(rig.times(), NONE, "the floor holds");
    rig.advance_to(160);
    assert_eq!(rig.times(), [160]);
    assert_eq!(rig.vms.failing()[0].failures, 6);
    rig.advance_to(319);
    assert_eq!(rig.times(), NONE, "a change has brought the run forward: it backs off by the same step");
    rig.advance_to(320);
    assert_eq!(rig.times(), [320]);
}

#[test]
fn a_debounced_change_during_a_run_that_fails_is_not_held_by_the_backoff() {
    let (actors, director): (_, Director<()>) = stage();
    let outcome = move || {
        actors.enter(());
        Err("no answer".into())
    };
    let rig = Rig::new(outcome, |vms| vms.debounce(20 * SECOND, 50 * SECOND).retry(steps(10, 10_000)));
    for _ in 0..4 {
        director.cue();
    }
    rig.advance_to(149);
    assert_eq!(rig.times(), [0, 10, 30, 70]);
    // The fifth run has a backoff of 160 s.
    rig.clock.advance(SECOND);
    for _ in 0..5 {
        director.next();
    }
    rig.push.set("vm", 1);
    rig.clock.wait_for_sleepers(IDLE - 1);
    director.cue();
    director.cue();
    rig.advance_to(169);
    assert_eq!(rig.times(), [150]);
    rig.advance_to(170);
    assert_eq!(rig.times(), [170]);
}

/// This works without a controller too.
#[test]
fn a_debounced_subscription_to_a_bare_queue_keeps_its_latest_wait() {
    let (clock, queue) = held();
    let push = Watch::builder().clock(clock.clock()).push();
    push.synced();
    let calm = Subscriber::to_itself(&queue).debounced(2 * SECOND, 5 * SECOND);
    let _subscription = push.watch().subscribe(calm).unwrap();
    queue.enqueue("vm");
    take(&queue).requeue_after(HOUR);
    for value in 0..5 {
        push.set("vm", value);
        assert_eq!(queue.len(), 0);
        clock.advance(SECOND);
    }
    assert_eq!(*take(&queue), "vm");
}

#[test]
fn a_resync_runs_keys_that_wait_for_a_requeue() {
    let rig = Rig::new(|| Ok(Action::requeue_after(20 * 24 * HOUR)), |vms| vms.resync(60 * SECOND));
    assert_eq!(rig.times(), [0]);
    rig.advance_to(59);
    assert_eq!(rig.times(), NONE);
    rig.advance_to(60);
    let runs: Vec<_> = rig.runs.try_iter().collect();
    assert_eq!(runs, [(60 * SECOND, Reasons::RESYNC | Reasons::REQUEUE)]);
    rig.advance_to(120);
    assert_eq!(rig.times(), [120]);
}

#[test]
fn a_resync_leaves_a_backoff_and_a_debounced_change_alone() {
    let rig = Rig::new(|| Err("no answer".into()), |vms| vms.resync(60 * SECOND).retry(steps(10, 10_000)));
    rig.advance_to(149);
    assert_eq!(rig.times(), [0, 10, 30, 70], "the resync at 120 s changes nothing");
    rig.advance_to(150);
    assert_eq!(rig.times(), [150]);

    let rig = Rig::new(|| Ok(Action::await_change()), |vms| vms.resync(60 * SECOND).debounce(10 * SECOND, 30 * SECOND));
    rig.advance_to(55);
    rig.change(1);
    rig.advance_to(60);
    assert_eq!(rig.times(), [0]);
    rig.advance_to(65);
    assert_eq!(rig.times(), [65]);
}

#[test]
fn a_resync_does_not_run_a_suspended_key_and_keeps_the_minimum_interval() {
    let rig = Rig::new(|| Ok(Action::requeue_after(HOUR)), |vms| vms.resync(60 * SECOND).min_interval(100 * SECOND));
    rig.advance_to(60);
    assert_eq!(rig.times(), [0]);
    rig.advance_to(100);
    assert_eq!(rig.times(), [100]);
    rig.vms.suspend("vm");
    rig.advance_to(600);
    assert_eq!(rig.times(), NONE);
    rig.vms.resume(&"vm");
    assert_eq!(rig.times().len(), 1);
}

/// Returns a queue with one key, which waits for a requeue in an hour.
fn requeued<K: homeostat::Key + std::fmt::Debug>(key: K) -> (ManualClock, WorkQueue<K>) {
    let (clock, queue) = held();
    queue.enqueue(key);
    take(&queue).requeue_after(HOUR);
    (clock, queue)
}

/// Fails unless the poll after ten seconds runs the key, although nothing has changed.
fn assert_next_poll_resyncs<K: homeostat::Key + Sync + std::fmt::Debug, V: Send + Sync + 'static>(
    clock: &ManualClock,
    queue: &WorkQueue<K>,
    watch: &Watch<K, V>,
) {
    let _subscription = watch.subscribe(Subscriber::to_itself(queue).with_unchanged()).unwrap();
    clock.wait_for_sleepers(2);
    assert_eq!(queue.len(), 0);
    clock.advance(10 * SECOND);
    clock.wait_for_sleepers(2);
    assert!(take(queue).reasons().contains(Reasons::RESYNC));
}

#[test]
fn every_kind_of_resync_runs_keys_that_wait_for_a_requeue() {
    let (clock, queue) = requeued("vm");
    let push = Watch::builder().clock(clock.clock()).push();
    push.replace_all([("vm", 0)]);
    let all = Subscriber::to_itself(&queue).with_unchanged();
    let subscription = push.watch().subscribe(all).unwrap();
    assert_eq!(queue.len(), 0, "an initial list does not");
    let resyncs: [(&str, &dyn Fn()); 3] = [
        ("of the watch", &|| push.watch().resync()),
        ("of the subscription", &|| subscription.resync()),
        ("by a listing", &|| assert_eq!(push.replace_all([("vm", 0)]).unchanged, 1)),
    ];
    for (name, resync) in resyncs {
        resync();
        let claim = queue.try_dequeue().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(claim.reasons().contains(Reasons::RESYNC), "{name}");
        claim.requeue_after(HOUR);
    }
}

#[test]
fn an_unchanged_poll_runs_keys_that_wait_for_a_requeue() {
    let (clock, queue) = requeued("vm");
    let list = |_: &Context| -> Result<_, BoxError> { Ok([("vm", 0)]) };
    let watch = Poller::new(10 * SECOND, list).clock(clock.clock()).watch().unwrap();
    assert_next_poll_resyncs(&clock, &queue, watch.watch());
}

#[test]
fn an_unchanged_directory_poll_runs_keys_that_wait_for_a_requeue() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("vm"), "1").unwrap();
    let (clock, queue) = requeued(std::path::PathBuf::from("vm"));
    let watch = Directory::new(folder.path()).poll(10 * SECOND).clock(clock.clock()).watch().unwrap();
    assert_next_poll_resyncs(&clock, &queue, watch.watch());
}
