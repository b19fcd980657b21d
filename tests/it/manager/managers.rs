//! Managers: start and stop order, failures, leadership, late additions, refusals and the status table.

#![expect(clippy::expect_used, reason = "a helper of tests fails as a test does")]

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{bounded, unbounded};
use homeostat::manager::{Candidate, Leadership, Term};
use homeostat::watch::PushMessage;
use homeostat::{
    Action, BoxError, CancellationToken, Component, Context, Controller, ControllerHandle, Elector, EnqueueOutcome,
    Manager, ManualClock, Poller, Watch, WorkerPool,
};
use parking_lot::Mutex;

use crate::stages::SECOND;
use crate::support::with_stop_hook;
use crate::until::until;

type Key = &'static str;

fn controller(name: &str) -> Controller<Key> {
    let reconcile = |_: &Context, _: &Key| Ok::<_, BoxError>(Action::await_change());
    Controller::builder(name, reconcile).build().expect("its settings are in range")
}

/// Returns a function that notes its begin and its end.
fn noting(name: &'static str, notes: &Arc<Mutex<Vec<String>>>) -> Component {
    let notes = Arc::clone(notes);
    Component::function(name, move |cx: &Context| {
        notes.lock().push(format!("{name} begins"));
        cx.token().wait();
        notes.lock().push(format!("{name} ends"));
        Ok::<_, Infallible>(())
    })
}

#[test]
fn components_are_stopped_in_reverse_without_waiting_for_each_other() {
    let notes = Arc::<Mutex<Vec<&str>>>::default();
    // The grace period does not end, because no time passes.
    let manager = Manager::builder().clock(ManualClock::new().clock()).build().unwrap();
    let (go, gone) = bounded::<()>(0);
    for name in ["first", "second", "third"] {
        let of_stops = Arc::clone(&notes);
        manager.add(with_stop_hook(name, move || of_stops.lock().push(name), gone.clone())).unwrap();
    }
    let ended = Arc::clone(&notes);
    manager.at_end(move || ended.lock().push("the end"));
    let running = manager.start().unwrap();
    manager.stop();
    until("three components have noted their stop", || notes.lock().len() >= 3);
    drop(go);
    running.join().unwrap();
    assert_eq!(*notes.lock(), ["third", "second", "first", "the end"]);
    assert_eq!(manager.status().doing, "ended");
}

#[test]
fn all_components_stop_at_once_and_each_has_its_own_grace_period() {
    let clock = ManualClock::new();
    let manager = Manager::builder().clock(clock.clock()).threads(2).shutdown_grace(10 * SECOND).abort_grace(SECOND);
    let manager = manager.build().unwrap();
    let (entered, runs) = unbounded();
    let (go, gone) = bounded::<()>(0);
    let reconcile = move |cx: &Context, key: &Key| -> Result<Action, BoxError> {
        entered.send((*key, "begins"))?;
        let _ = gone.recv();
        entered.send((*key, if cx.is_cancelled() { "is aborted" } else { "ends" }))?;
        Ok(Action::await_change())
    };
    let vms = Controller::builder("vm", reconcile).clock(clock.clock());
    manager.add(vms.build().unwrap()).unwrap();
    let (free, caught) = bounded::<()>(0);
    let hang = move |_: &Context| {
        let _ = caught.recv();
        Ok::<_, Infallible>(())
    };
    manager.add(Component::function("hang", hang)).unwrap();
    let vms = manager.controller::<Key>("vm").unwrap();
    let running = manager.start().unwrap();
    for key in ["vm-1", "vm-2"] {
        vms.enqueue(key);
    }
    assert_eq!(runs.recv().unwrap(), ("vm-1", "begins"));
    manager.stop();
    // The second key waits for the first, so only the stop ends this wait. Waiters are notified before the queue is
    // closed.
    assert!(vms.wait(&"vm-2", Duration::MAX).is_err());
    until("the queue is closed", || vms.enqueue("vm-3") == EnqueueOutcome::Closed);
    drop(go);
    // The iterator ends when the controller ends, because the controller then drops its reconciler.
    assert_eq!(runs.iter().collect::<Vec<_>>(), [("vm-1", "ends")]);
    // These are the manager's driver, and the pool's two workers and timer thread.
    clock.wait_for_sleepers(4);
    clock.advance(10 * SECOND);
    clock.wait_for_sleepers(4);
    clock.advance(SECOND);
    let error = running.join().unwrap_err();
    assert_eq!((error.component(), error.still_running()), (None, &["hang-0".to_owned()][..]));
    drop(free);
}

/// No thread would run its keys.
#[test]
fn a_controller_that_is_refused_or_never_started_takes_no_keys() {
    let is_closed = |vms: &ControllerHandle<Key>| {
        assert_eq!(vms.enqueue("vm-1"), EnqueueOutcome::Closed);
        assert!(vms.wait(&"vm-1", Duration::MAX).is_err());
    };
    let manager = Manager::builder().build().unwrap();
    manager.add(controller("vm")).unwrap();
    let first = manager.controller::<Key>("vm").unwrap();
    let (second, third) = (controller("vm"), controller("late"));
    let handles = [second.handle(), third.handle()];
    manager.add(second).unwrap_err();
    is_closed(&handles[0]);
    assert_eq!(first.enqueue("vm-1"), EnqueueOutcome::Queued);
    let running = manager.start().unwrap();
    first.wait(&"vm-1", Duration::MAX).unwrap();
    manager.stop();
    running.join().unwrap();
    manager.add(third).unwrap_err();
    is_closed(&handles[1]);

    let dropped = controller("vm").handle();
    is_closed(&dropped);
    let idle = Manager::builder().build().unwrap();
    idle.add(controller("vm")).unwrap();
    let vms = idle.controller::<Key>("vm").unwrap();
    assert_eq!(vms.enqueue("vm-1"), EnqueueOutcome::Queued);
    drop(idle);
    is_closed(&vms);

    let pool = WorkerPool::builder().clock(ManualClock::new().clock()).start().unwrap();
    let failed = controller("vm");
    let vms = failed.handle();
    failed.start(&pool).unwrap_err();
    is_closed(&vms);
}

#[test]
fn a_watch_or_a_function_that_is_refused_has_ended() {
    let manager = Manager::builder().build().unwrap();
    manager.add(controller("vm")).unwrap();
    let list = |_: &Context| Ok::<_, Infallible>([("disk-1", 1_u32)]);
    let polled = Poller::new(3600 * SECOND, list).name("vm").watch().unwrap();
    let watch = polled.watch().clone();
    manager.add(polled).unwrap_err();
    assert!(watch.is_stopped());
    let (_sender, receiver) = unbounded::<PushMessage<Key, u32>>();
    let watched = Watch::builder().name("vm").from_receiver(receiver).unwrap();
    let watch = watched.watch().clone();
    manager.add(watched).unwrap_err();
    assert!(watch.is_stopped());
    let (sender, receiver) = bounded::<()>(0);
    manager.add(Component::function("vm", move |_: &Context| Ok::<_, BoxError>(sender.send(())?))).unwrap_err();
    assert!(receiver.recv().is_err(), "it is dropped uncalled");
}

#[test]
fn the_first_failure_stops_the_rest_and_is_returned() {
    let notes = Arc::default();
    let manager = Manager::builder().build().unwrap();
    manager.add(noting("other", &notes)).unwrap();
    manager.add(controller("vm")).unwrap();
    manager.add(Component::function("short", |_: &Context| Ok::<_, Infallible>(()))).unwrap();
    manager.add(Component::function("broken", |_: &Context| Err("no such device"))).unwrap();
    let error = manager.run(&CancellationToken::new()).unwrap_err();
    assert_eq!((error.component(), error.to_string().as_str()), (Some("broken"), "broken: no such device"));
    assert_eq!(notes.lock().last().map(String::as_str), Some("other ends"));

    let manager = Manager::builder().build().unwrap();
    manager
        .add(Component::function("broken", |_: &Context| -> Result<(), BoxError> { panic!("out of luck") }))
        .unwrap();
    let error = manager.run(&CancellationToken::new()).unwrap_err();
    assert_eq!(error.to_string(), "broken: it panicked: out of luck");
}

#[test]
fn a_controller_that_fails_fails_the_manager() {
    let watch = Watch::<Key, u32>::push();
    let reconcile = |_: &Context, _: &Key| Ok::<_, BoxError>(Action::await_change());
    let vms = Controller::builder("vm", reconcile).watch(watch.watch(), |event| event.key().copied()).build().unwrap();
    let manager = Manager::builder().build().unwrap();
    manager.add(vms).unwrap();
    watch.stop();
    let error = manager.run(&CancellationToken::new()).unwrap_err();
    assert_eq!(error.component(), Some("vm"));
}

#[test]
fn invalid_requests_are_refused_by_name() {
    let manager = Manager::builder().build().unwrap();
    manager.add(controller("vm")).unwrap();
    let error = manager.add(controller("vm")).unwrap_err();
    assert_eq!(error.to_string(), "name \"vm\" is the name of another component of the manager");
    let error = manager.enqueue("disk", "disk-1").unwrap_err();
    assert_eq!(error.to_string(), "controller \"disk\" has not been added to the manager");
    let error = manager.controller::<u64>("vm").unwrap_err();
    assert_eq!(error.to_string(), "controller \"vm\" has keys of another type than u64");
    assert_eq!(manager.enqueue("vm", "vm-1").unwrap(), EnqueueOutcome::Queued);

    let list = |_: &Context| Ok::<_, Infallible>([("disk-1", 1_u32)]);
    let start = || Poller::new(3600 * SECOND, list).watch();
    let disks = manager.watch::<Key, u32>("disks", start).unwrap();
    assert!(disks.store().wait_synced(Duration::MAX));
    assert!(manager.watch::<Key, u32>("disks", start).unwrap().store().has_synced());
    let other = |_: &Context| Ok::<_, Infallible>([("disk-1", 1_u64)]);
    let error = manager.watch::<Key, u64>("disks", || Poller::new(SECOND, other).watch()).unwrap_err();
    assert_eq!(error.to_string(), "watch \"disks\" has keys or values of another type");

    let running = manager.start().unwrap();
    let error = manager.start().unwrap_err();
    assert_eq!(error.to_string(), "manager \"manager\" has already been started");
    manager.add(controller("disk")).unwrap();
    let disk = manager.controller::<Key>("disk").unwrap();
    disk.enqueue("disk-1");
    disk.wait(&"disk-1", Duration::MAX).unwrap();
    manager.stop();
    running.join().unwrap();
    assert!(disks.is_stopped());
    let error = manager.add(controller("late")).unwrap_err();
    assert_eq!(error.to_string(), "manager \"manager\" is stopping");
    assert_eq!(disk.enqueue("disk-1"), EnqueueOutcome::Closed);
}

#[test]
fn a_component_that_cannot_be_started_ends_the_earlier_ones() {
    let notes = Arc::default();
    let manager = Manager::builder().build().unwrap();
    manager.add(noting("first", &notes)).unwrap();
    let stopped = Watch::<Key, u32>::push();
    stopped.stop();
    let reconcile = |_: &Context, _: &Key| Ok::<_, BoxError>(Action::await_change());
    let vms = Controller::builder("vm", reconcile).watch(stopped.watch(), |event| event.key().copied());
    manager.add(vms.build().unwrap()).unwrap();
    manager.add(noting("never", &notes)).unwrap();
    let error = manager.start().unwrap_err();
    assert_eq!(error.component(), Some("vm"));
    assert_eq!(*notes.lock(), ["first begins", "first ends"]);
}

/// An elector that leads once `lead` is cancelled, until `lost` is true. It sets `resigned` when dropped.
#[derive(Clone)]
struct ScriptedElector {
    lead: CancellationToken,
    lost: Arc<Mutex<bool>>,
    resigned: Arc<Mutex<bool>>,
}

impl ScriptedElector {
    fn new() -> Self {
        Self { lead: CancellationToken::new(), lost: Arc::default(), resigned: Arc::default() }
    }
}

impl Elector for ScriptedElector {
    fn candidate(&self) -> Box<Candidate> {
        let (lead, lost, resigned) = (self.lead.clone(), Arc::clone(&self.lost), Arc::clone(&self.resigned));
        Box::new(move |cx: &Context| {
            let cancelled = cx.token().clone();
            let wake = lead.child();
            let own = wake.clone();
            let _guard = cancelled.on_cancel(move || own.cancel());
            wake.wait();
            cx.check()?;
            let leadership = Self { lead: lead.clone(), lost: Arc::clone(&lost), resigned: Arc::clone(&resigned) };
            Ok(ControlFlow::Break(Term::new("told", leadership)))
        })
    }
}

impl Leadership for ScriptedElector {
    fn check(&mut self) -> Result<(), BoxError> {
        if *self.lost.lock() { Err("somebody else has it".into()) } else { Ok(()) }
    }
}

impl Drop for ScriptedElector {
    fn drop(&mut self) {
        *self.resigned.lock() = true;
    }
}

#[test]
fn controllers_and_leading_functions_wait_for_the_leadership() {
    let clock = ManualClock::new();
    let notice = ScriptedElector::new();
    let (lead, lost, resigned) = (notice.lead.clone(), Arc::clone(&notice.lost), Arc::clone(&notice.resigned));
    let manager = Manager::builder().clock(clock.clock()).threads(1).elector(notice).build().unwrap();
    let (report, reported) = unbounded();
    let function = report.clone();
    manager
        .add(
            Component::function("janitor", move |cx: &Context| {
                function.send("janitor")?;
                cx.token().wait();
                Ok::<_, BoxError>(())
            })
            .when_leading(),
        )
        .unwrap();
    let reconcile = move |_: &Context, key: &Key| -> Result<Action, BoxError> {
        report.send(*key)?;
        Ok(Action::await_change())
    };
    manager.add(Controller::builder("vm", reconcile).clock(clock.clock()).build().unwrap()).unwrap();
    manager.enqueue("vm", "vm-1").unwrap();
    let running = manager.start().unwrap();
    std::thread::scope(|scope| {
        let run = scope.spawn(move || running.join());
        // These are the manager's driver, the pool thread and its timer thread.
        clock.wait_for_sleepers(3);
        assert_eq!((reported.len(), manager.is_leading()), (0, false));
        assert_eq!(manager.status().doing, "running, another process leads");
        assert!(manager.ready().is_ok(), "{}", manager.ready());
        lead.cancel();
        let mut seen = [reported.recv().unwrap(), reported.recv().unwrap()];
        seen.sort_unstable();
        assert_eq!(seen, ["janitor", "vm-1"]);
        // The elector's thread sleeps too.
        clock.wait_for_sleepers(4);
        assert_eq!((manager.is_leading(), *resigned.lock()), (true, false));
        *lost.lock() = true;
        clock.advance(SECOND);
        let error = run.join().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "elector: the leadership of told is lost");
        assert!(!manager.is_leading());
    });
}

#[test]
fn the_leadership_is_given_back_at_the_end() {
    let notice = ScriptedElector::new();
    notice.lead.cancel();
    let resigned = Arc::clone(&notice.resigned);
    let manager = Manager::builder().abort_grace(3600 * SECOND).elector(notice).build().unwrap();
    let running = manager.start().unwrap();
    until("the manager leads", || manager.is_leading());
    let at_end = Arc::clone(&resigned);
    manager
        .add(Component::function("last", move |cx: &Context| {
            cx.token().wait();
            assert!(!*at_end.lock());
            Ok::<_, Infallible>(())
        }))
        .unwrap();
    manager.stop();
    running.join().unwrap();
    assert!(*resigned.lock());
}

#[test]
fn a_campaign_ends_with_the_manager() {
    let notice = ScriptedElector::new();
    let manager = Manager::builder().elector(notice).build().unwrap();
    let running = manager.start().unwrap();
    drop(running);
    assert_eq!(manager.status().doing, "ended");
}

/// An elector with candidates that may block until they are cancelled.
struct PatientElector(ScriptedElector);

impl Elector for PatientElector {
    fn candidate(&self) -> Box<Candidate> {
        self.0.candidate()
    }

    fn longest_call(&self) -> Duration {
        Duration::MAX
    }
}

#[test]
fn a_campaign_without_a_limit_ends_with_the_manager() {
    let manager = Manager::builder().elector(PatientElector(ScriptedElector::new())).build().unwrap();
    let (ends, ended) = unbounded();
    manager.at_end(move || ends.send(()).unwrap());
    let running = manager.start().unwrap();
    manager.stop();
    running.join().unwrap();
    assert_eq!((ended.len(), manager.status().doing), (1, "ended"));
}

#[test]
fn the_status_table_shows_states_runs_and_failures() {
    let clock = ManualClock::new();
    let manager = Manager::builder().clock(clock.clock()).threads(1).name("appliance").build().unwrap();
    let (entered, seen) = unbounded();
    let reconcile = move |cx: &Context, key: &Key| -> Result<Action, BoxError> {
        if *key == "bad" {
            return Err("no answer".into());
        }
        entered.send(())?;
        cx.token().wait();
        Ok(Action::await_change())
    };
    let vms = Controller::builder("vm", reconcile).clock(clock.clock()).reconcile_timeout(5 * SECOND).build().unwrap();
    manager.add(vms).unwrap();
    let stop = CancellationToken::new();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| manager.run(&stop));
        manager.enqueue("vm", "bad").unwrap();
        clock.wait_for_sleepers(3);
        for key in ["slow", "next"] {
            manager.enqueue("vm", key).unwrap();
        }
        seen.recv().unwrap();
        // These are the manager's driver and the timer thread.
        clock.wait_for_sleepers(2);
        clock.advance(3 * SECOND);
        let table = manager.status().to_string();
        let expected = "\
appliance: running
controller  phase       active    ready  delayed  failing   parked       runs   errors
vm          running        1/1        2        0        1        0          1        1
vm: \"slow\" has been running for 3s on appliance-pool-0
vm: \"next\" has been waiting for 3s
vm: \"bad\" is failing, failed once: no answer
";
        assert_eq!(table, expected);
        assert!(manager.live().is_ok() && manager.ready().is_ok());
        stop.cancel();
        manager.abort();
        run.join().unwrap().unwrap();
    });
}
