//! Invalid settings are refused where they are made. The error names the setting and its value.

#![expect(clippy::unnecessary_wraps, reason = "reconcilers and listings return a result")]

use std::convert::Infallible;
use std::time::Duration;

use homeostat::controller::ControllerBuilder;
use homeostat::{
    Action, BoxError, Component, Context, Controller, Manager, Poller, StartError, Subscriber, Watch, WorkQueue,
    WorkerPool, Workers,
};

use crate::stages::SECOND;
use homeostat::base::StartErrorKind;

type Key = &'static str;
type Plain = ControllerBuilder<Key>;

fn plain(name: &str) -> Plain {
    Controller::builder(name, |_cx: &Context, _: &Key| Ok::<_, BoxError>(Action::await_change()))
}

fn list(_: &Context) -> Result<[(Key, u32); 1], Infallible> {
    Ok([("disk-1", 1)])
}

fn keys(_: &Context) -> Result<[Key; 1], Infallible> {
    Ok(["vm-1"])
}

#[track_caller]
fn refused<T>(outcome: Result<T, StartError>, expected: &str) {
    let error = outcome.map(drop).unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.kind(), StartErrorKind::InvalidSetting);
    assert!(std::error::Error::source(&error).is_none());
}

/// The system can never start a thread of that name.
#[test]
fn a_name_with_a_nul_character_is_refused_wherever_threads_have_it() {
    const NUL: &str = "a\0b";
    let rule = "name is \"a\\0b\", but must be free of NUL characters";
    let queue = WorkQueue::<Key>::new();
    let nothing = |_: &Context, _: &Key| Ok::<_, BoxError>(Action::await_change());
    refused(Workers::new(nothing).name(NUL).start(&queue), rule);
    refused(Poller::new(SECOND, keys).name(NUL).start(&queue), rule);
    refused(WorkerPool::builder().name(NUL).start(), rule);
    refused(plain(NUL).build(), rule);
    refused(Manager::builder().name(NUL).build(), rule);
    let manager = Manager::builder().build().unwrap();
    refused(manager.add(Component::function(NUL, |_: &Context| Ok::<_, Infallible>(()))), rule);
    refused(Poller::new(SECOND, list).name(NUL).watch(), rule);
    let watch = Watch::<Key, u32>::builder().push();
    refused(watch.watch().subscribe(Subscriber::to_itself(&queue).name(NUL)), rule);
    let refusal = std::panic::catch_unwind(|| WorkQueue::<Key>::builder().name(NUL).build()).unwrap_err();
    let refusal = refusal.downcast_ref::<String>().map(String::as_str);
    assert_eq!(refusal, Some("the name of a queue is \"a\\0b\", but must be free of NUL characters"));
}

#[test]
fn settings_of_a_manager() {
    refused(Manager::builder().threads(0).build(), "threads is 0, but must be at least 1");
    refused(Manager::builder().name("").build(), "name \"\" is empty");
    refused(WorkerPool::builder().threads(0).start(), "threads is 0, but must be at least 1");
    let most = format!("is {}, but must be at most 10,000", usize::MAX);
    refused(WorkerPool::builder().threads(usize::MAX).start(), &format!("threads {most}"));
    refused(WorkerPool::builder().spares(usize::MAX).start(), &format!("spares {most}"));
    refused(Manager::builder().threads(usize::MAX).build(), &format!("threads {most}"));
    let manager = Manager::builder().build().unwrap();
    manager.add(plain("vm").build().unwrap()).unwrap();
    let taken = "name \"vm\" is the name of another component of the manager";
    let by_another = |kind| format!("{taken}, a controller: give the {kind} another name");
    refused(manager.add(plain("vm").build().unwrap()), taken);
    let function = Component::function("vm", |_: &Context| Ok::<_, Infallible>(()));
    refused(manager.add(function), &by_another("function"));
    let poller = Component::poller("vm", Poller::new(SECOND, keys), &WorkQueue::new());
    refused(manager.add(poller), &by_another("poller"));
    refused(manager.watch::<Key, u32>("vm", || Poller::new(SECOND, list).watch()), &by_another("watch"));
    manager.watch::<Key, u32>("disks", || Poller::new(SECOND, list).watch()).unwrap();
    let by_a_watch = "name \"disks\" is the name of another component of the manager, a watch: \
                      give the controller another name";
    refused(manager.add(plain("disks").build().unwrap()), by_a_watch);
    let unnamed = "name \"\" is empty";
    refused(manager.add(Component::function("", |_: &Context| Ok::<_, Infallible>(()))), unnamed);
    refused(manager.watch::<Key, u32>("", || Poller::new(SECOND, list).watch()), unnamed);
    refused(manager.enqueue("disk", "disk-1"), "controller \"disk\" has not been added to the manager");
    refused(manager.enqueue("vm", 7_u64), "controller \"vm\" has keys of another type than u64");
    // The first component of this name is still in place.
    assert_eq!(manager.controller::<Key>("vm").unwrap().name(), "vm");
    let running = manager.start().unwrap();
    refused(manager.add(plain("vm").build().unwrap()), taken);
    manager.stop();
    running.join().unwrap();
    refused(manager.add(plain("disk").build().unwrap()), "manager \"manager\" is stopping");
}

/// A poller is checked when it is started.
#[test]
fn settings_of_a_component_that_is_started_later() {
    let manager = Manager::builder().build().unwrap();
    manager.add(Component::poller("vms", Poller::new(Duration::ZERO, keys), &WorkQueue::new())).unwrap();
    let error = manager.start().unwrap_err();
    assert_eq!(error.to_string(), "vms: period is 0ns, but must be longer than zero");
    let manager = Manager::builder().build().unwrap();
    let running = manager.start().unwrap();
    let poller = Component::poller("vms", Poller::new(Duration::ZERO, keys), &WorkQueue::new());
    refused(manager.add(poller), "period is 0ns, but must be longer than zero");
    refused(
        manager.watch::<Key, u32>("disks", || Poller::new(Duration::ZERO, list).watch()),
        "period is 0ns, but must be longer than zero",
    );
    manager.stop();
    running.join().unwrap();
}

#[test]
fn settings_of_a_controller() {
    refused(plain("").build(), "name \"\" is empty");
    let disks = Watch::<Key, u32>::push();
    for (build, expected) in [
        (plain("vm").max_concurrent_reconciles(0), "max_concurrent_reconciles is 0, but must be at least 1"),
        (plain("vm").own_threads(0), "own_threads is 0, but must be at least 1"),
        (plain("vm").reconcile_timeout(Duration::ZERO), "reconcile_timeout is 0ns, but must be longer than zero"),
        (plain("vm").sync_timeout(Duration::ZERO), "sync_timeout is 0ns, but must be longer than zero"),
        (plain("vm").debounce(Duration::ZERO, SECOND), "quiet is 0ns, but must be longer than zero"),
        (plain("vm").debounce(SECOND, SECOND / 2), "max_wait is 500ms, but must be no shorter than quiet"),
        (plain("vm").rate_limit(0.0, 1), "per_second is 0.0, but must be positive and finite"),
        (plain("vm").rate_limit(f64::NAN, 1), "per_second is NaN, but must be positive and finite"),
        (plain("vm").rate_limit(f64::INFINITY, 1), "per_second is inf, but must be positive and finite"),
        (plain("vm").rate_limit(1.0, 0), "burst is 0, but must be at least 1"),
        (plain("vm").resync(SECOND), "controller \"vm\" has a resync, but no watch"),
        (
            plain("vm").watch(disks.watch(), |event| event.key().copied()).resync(Duration::ZERO),
            "resync is 0ns, but must be longer than zero",
        ),
        (plain("vm").poll(Duration::ZERO, keys), "period is 0ns, but must be longer than zero"),
        (plain("vm").poller(Poller::new(SECOND, keys).jitter(2.0)), "jitter is 2.0, but must be between 0 and 1"),
    ] {
        refused(build.build(), expected);
    }
    assert!(plain("vm").debounce(SECOND, SECOND).build().is_ok());
}

#[test]
fn settings_of_a_running_controller() {
    let pool = WorkerPool::builder().threads(1).start().unwrap();
    let running = plain("vm").poll(SECOND, keys).build().unwrap().start(&pool).unwrap();
    refused(running.set_max_concurrent_reconciles(0), "max_concurrent_reconciles is 0, but must be at least 1");
    refused(running.set_resync(Some(Duration::ZERO)), "resync is 0ns, but must be longer than zero");
    refused(running.set_rate_limit(Some((-1.0, 1))), "per_second is -1.0, but must be positive and finite");
    refused(running.set_rate_limit(Some((1.0, 0))), "burst is 0, but must be at least 1");
    refused(running.set_period(Duration::ZERO), "period is 0ns, but must be longer than zero");
}

#[test]
fn settings_of_workers_and_watches() {
    let queue = WorkQueue::<Key>::new();
    let reconcile = |_: &Context, _: &Key| Ok::<_, Infallible>(Action::await_change());
    refused(Workers::new(reconcile).threads(0).start(&queue), "threads is 0, but must be at least 1");
    refused(Poller::new(Duration::ZERO, list).watch(), "period is 0ns, but must be longer than zero");
    let stopped = Watch::<Key, u32>::builder().name("disks").push();
    stopped.stop();
    let error = stopped.watch().subscribe(Subscriber::to_itself(&queue)).unwrap_err();
    assert_eq!(error.to_string(), "watch \"disks\" has been stopped");
    assert_eq!(error.kind(), StartErrorKind::Stopped);
    let vms = plain("vm").watch(stopped.watch(), |event| event.key().copied()).build().unwrap();
    let manager = Manager::builder().build().unwrap();
    manager.add(vms).unwrap();
    let error = manager.start().unwrap_err();
    assert_eq!(error.to_string(), "vm: watch \"disks\" has been stopped");
}
