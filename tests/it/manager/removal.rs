//! Components that are removed from a manager.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use homeostat::base::{EndError, EndHook, Runnable, RunningStatus};
use homeostat::run::WorkersControl;
use homeostat::{
    Action, BoxError, Component, Context, Controller, EnqueueOutcome, Manager, ManualClock, Poller, Running, Shutdown,
    Subscriber, Watch, WorkQueue, Workers,
};

use crate::support::{HOUR, SECOND, with_stop_hook};
use crate::until::until;

const LONG: Duration = Duration::from_secs(60);

#[expect(clippy::unnecessary_wraps, reason = "a reconciler returns a result")]
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature of a reconciler")]
fn idle(_: &Context, _: &u32) -> Result<Action, BoxError> {
    Ok(Action::await_change())
}

fn controller(name: &str) -> Controller<u32> {
    Controller::builder(name, idle).build().unwrap()
}

/// Returns a function that waits for its cancellation, and reports its end.
fn function(name: &str) -> (Component, Receiver<()>) {
    let (ends, ended) = unbounded();
    let function = Component::function(name, move |cx: &Context| {
        cx.token().wait();
        ends.send(()).unwrap();
        Ok::<_, Infallible>(())
    });
    (function, ended)
}

#[test]
fn a_component_of_each_kind_can_be_removed_and_added_again_under_its_name() {
    let manager = Manager::builder().build().unwrap();
    let running = manager.start().unwrap();
    let queue = WorkQueue::<u32>::new();
    for _ in 0..3 {
        let (function, ended) = function("function");
        manager.add(function).unwrap();
        manager.add(controller("vm")).unwrap();
        manager.add(Component::poller("poller", Poller::new(HOUR, |_| Ok::<_, Infallible>([1])), &queue)).unwrap();
        let list = |_: &Context| Ok::<_, Infallible>([(1, 1)]);
        manager.add(Poller::new(HOUR, list).name("watch").watch().unwrap()).unwrap();
        let vms = manager.controller::<u32>("vm").unwrap();
        vms.enqueue(1);
        vms.wait(&1, LONG).unwrap();
        for name in ["function", "vm", "poller", "watch"] {
            assert!(manager.remove(name, LONG).unwrap(), "{name}");
            assert!(!manager.remove(name, LONG).unwrap(), "{name}");
        }
        ended.try_recv().unwrap();
        assert_eq!(vms.enqueue(2), EnqueueOutcome::Closed);
        assert!(manager.controller::<u32>("vm").is_err() && manager.source("watch").is_err());
        assert!(manager.status().controllers.is_empty() && manager.live().is_ok());
    }
    manager.stop();
    running.join().unwrap();
}

#[test]
fn a_component_can_be_removed_before_the_start() {
    let manager = Manager::builder().build().unwrap();
    let vms = controller("vm");
    let handle = vms.handle();
    manager.add(vms).unwrap();
    assert!(manager.remove("vm", Duration::ZERO).unwrap());
    assert_eq!(handle.enqueue(1), EnqueueOutcome::Closed);
    manager.add(controller("vm")).unwrap();
    let running = manager.start().unwrap();
    manager.stop();
    running.join().unwrap();
    assert!(manager.remove("vm", Duration::ZERO).unwrap(), "it has ended with the manager");
    assert!(!manager.remove("vm", Duration::ZERO).unwrap());
}

#[test]
fn a_removed_component_that_does_not_end_is_named_and_awaited() {
    let manager = Manager::builder().build().unwrap();
    let running = manager.start().unwrap();
    let (go_on, held) = unbounded::<()>();
    let stuck = move |_: &Context| {
        let _ = held.recv();
        Ok::<_, Infallible>(())
    };
    manager.add(Component::function("stuck", stuck)).unwrap();
    let error = manager.remove("stuck", Duration::ZERO).unwrap_err();
    assert_eq!(error.to_string(), "still running: stuck-0");
    let (again, ended) = function("stuck");
    manager.add(again).unwrap();
    drop(go_on);
    assert!(manager.remove("stuck", LONG).unwrap(), "the new component of this name");
    ended.try_recv().unwrap();
    manager.stop();
    running.join().unwrap();
}

/// The second caller comes while the component is being removed.
#[test]
fn two_removals_of_one_component_get_the_same_answer() {
    for ends in [true, false] {
        let clock = ManualClock::new();
        let manager = Manager::builder().clock(clock.clock()).threads(1).build().unwrap();
        let running = manager.start().unwrap();
        let (go_on, held) = unbounded::<()>();
        let stuck = move |_: &Context| {
            let _ = held.recv();
            Ok::<_, Infallible>(())
        };
        // These are the manager's driver, the idle pool thread and the idle watchdog.
        clock.wait_for_sleepers(3);
        manager.add(Component::function("stuck", stuck)).unwrap();
        clock.wait_for_sleepers(3);
        let answers = thread::scope(|scope| {
            let manager = &manager;
            let removals = [(HOUR, 4), (SECOND, 5)].map(|(grace, sleepers)| {
                let removal = scope.spawn(move || manager.remove("stuck", grace));
                // The caller has stopped the component, and waits.
                clock.wait_for_sleepers(sleepers);
                removal
            });
            if ends {
                drop(go_on);
            } else {
                // The shorter grace period counts for both.
                clock.advance(SECOND);
            }
            removals.map(|removal| removal.join().unwrap())
        });
        for answer in answers.map(|answer| answer.map_err(|error| error.to_string())) {
            assert_eq!(answer, if ends { Ok(true) } else { Err("still running: stuck-0".to_owned()) });
        }
        manager.stop();
        running.join().unwrap();
    }
}

/// Every removal returns, and every component ends, in every interleaving.
#[test]
fn removals_while_the_manager_stops_or_aborts_are_answered() {
    for abort in [false, true] {
        let manager = Manager::builder().abort_grace(HOUR).build().unwrap();
        let running = manager.start().unwrap();
        let removed = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            for number in 0..3 {
                let (manager, removed) = (&manager, Arc::clone(&removed));
                scope.spawn(move || {
                    let name = format!("vm-{number}");
                    while manager.add(controller(&name)).is_ok() {
                        assert!(manager.remove(&name, LONG).unwrap());
                        removed.fetch_add(1, SeqCst);
                    }
                });
            }
            until("three components are removed", || removed.load(SeqCst) >= 3);
            if abort {
                manager.abort();
            } else {
                manager.stop();
            }
            running.join().unwrap();
        });
    }
}

/// The stop of one component blocks in a hook.
#[test]
fn a_stop_that_takes_long_delays_no_other_removal() {
    const GRACE: Duration = Duration::from_secs(15);
    let clock = ManualClock::new();
    let manager = Manager::builder().clock(clock.clock()).threads(1).build().unwrap();
    let running = manager.start().unwrap();
    let start = clock.now();
    let (stopping, stops) = unbounded();
    let (go_on, goes_on) = unbounded::<()>();
    let (let_end, ended) = unbounded::<()>();
    let wait = move || {
        stopping.send(()).unwrap();
        let _ = goes_on.recv();
    };
    manager.add(with_stop_hook("busy", wait, unbounded().1)).unwrap();
    manager.add(with_stop_hook("one", || {}, ended.clone())).unwrap();
    manager.add(with_stop_hook("other", || {}, ended)).unwrap();
    let manager = &manager;
    thread::scope(|scope| {
        let busy = scope.spawn(|| manager.remove("busy", HOUR));
        stops.recv().unwrap();
        let removals = ["one", "other"].map(|name| scope.spawn(move || manager.remove(name, GRACE)));
        until("both wait for their ends", || clock.next_alarm() == Some(start + GRACE));
        // The sleepers are the manager's driver, the pool's thread, its watchdog and these two removals.
        clock.wait_for_sleepers(5);
        drop(let_end);
        assert_eq!(removals.map(|removal| removal.join().unwrap().unwrap()), [true, true]);
        assert!(!busy.is_finished());
        drop(go_on);
        assert!(busy.join().unwrap().unwrap());
    });
    manager.stop();
    running.join().unwrap();
}

/// A controller `vm` with one active run, which ends at its abort once it may.
struct StuckRun {
    reports: Receiver<&'static str>,
    go_on: Sender<()>,
}

impl StuckRun {
    fn start(manager: &Manager, clock: &ManualClock) -> Self {
        let ((report, reports), (go_on, held)) = (unbounded(), unbounded());
        let reconcile = move |cx: &Context, _: &u32| -> Result<Action, BoxError> {
            report.send("begins")?;
            cx.token().wait();
            report.send("is aborted")?;
            let _ = held.recv();
            Ok(Action::await_change())
        };
        let controller = Controller::builder("vm", reconcile).clock(clock.clock()).build().unwrap();
        let vms = controller.handle();
        manager.add(controller).unwrap();
        vms.enqueue(1);
        assert_eq!(reports.recv(), Ok("begins"));
        Self { reports, go_on }
    }

    /// Lets the grace period of the removal pass, and checks that it aborts the run and does not wait for it.
    #[track_caller]
    fn assert_given_up(&self, clock: &ManualClock, removal: ScopedJoinHandle<'_, Result<bool, EndError>>) {
        clock.advance(SECOND);
        assert_eq!(self.reports.recv(), Ok("is aborted"));
        let answer = removal.join().unwrap();
        let Err(still) = answer else { panic!("{answer:?}") };
        // The control task may still be ending.
        assert!(still.still_running().contains(&"manager-pool-0".to_owned()), "{still}");
    }
}

/// Returns a manager with a long grace period and one thread.
fn patient(clock: &ManualClock, grace: Duration) -> Manager {
    let manager = Manager::builder().clock(clock.clock()).threads(1).shutdown_grace(grace).abort_grace(HOUR);
    manager.build().unwrap()
}

fn wait_for_alarm(clock: &ManualClock, at: Instant) {
    until("the alarm is set", || clock.next_alarm() == Some(at));
}

#[test]
fn a_removal_keeps_its_grace_when_the_manager_stops_or_aborts() {
    for (abort, grace) in [(false, HOUR), (false, Duration::MAX), (true, HOUR)] {
        let clock = ManualClock::new();
        let manager = patient(&clock, grace);
        let running = manager.start().unwrap();
        let stuck = StuckRun::start(&manager, &clock);
        thread::scope(|scope| {
            let removal = scope.spawn(|| manager.remove("vm", SECOND));
            wait_for_alarm(&clock, clock.now() + SECOND);
            if abort {
                manager.abort();
            } else {
                manager.stop();
            }
            until("the manager stops", || manager.status().doing == "stopping");
            stuck.assert_given_up(&clock, removal);
        });
        drop(stuck.go_on);
        running.join().unwrap();
    }
}

/// The second removal comes while the first one stops its component, and then the stop of the manager.
#[test]
fn a_removal_that_comes_just_before_the_stop_of_the_manager_keeps_its_grace() {
    let clock = ManualClock::new();
    let manager = patient(&clock, Duration::MAX);
    let running = manager.start().unwrap();
    let stuck = StuckRun::start(&manager, &clock);
    let ((stopping, stops), (let_stop, may_stop)) = (unbounded(), unbounded::<()>());
    let wait = move || {
        stopping.send(()).unwrap();
        let _ = may_stop.recv();
    };
    manager.add(with_stop_hook("busy", wait, unbounded().1)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| manager.remove("busy", HOUR).unwrap());
        stops.recv().unwrap();
        let removal = scope.spawn(|| manager.remove("vm", SECOND));
        // The manager's driver, the pool's timer thread, and the second removal.
        clock.wait_for_sleepers(3);
        manager.stop();
        drop(let_stop);
        wait_for_alarm(&clock, clock.now() + SECOND);
        stuck.assert_given_up(&clock, removal);
    });
    drop(stuck.go_on);
    running.join().unwrap();
}

/// The start of a controller calls the function that makes the subscriber.
#[test]
fn removing_a_component_whose_start_never_ends_returns_its_name() {
    let clock = ManualClock::new();
    let manager = patient(&clock, HOUR);
    let running = manager.start().unwrap();
    let ((starting, starts), (go_on, held)) = (unbounded(), unbounded::<()>());
    let watch = Watch::<u32, u32>::builder().clock(clock.clock()).push();
    let subscriber = move |queue: &WorkQueue<u32>| {
        starting.send(()).unwrap();
        let _ = held.recv();
        Subscriber::to_itself(queue)
    };
    let vms = Controller::builder("vm", idle).clock(clock.clock()).subscribe(watch.watch(), subscriber);
    let vms = vms.build().unwrap();
    thread::scope(|scope| {
        let adding = scope.spawn(|| manager.add(vms));
        starts.recv().unwrap();
        let removal = scope.spawn(|| manager.remove("vm", SECOND));
        // The manager's driver, the pool's thread, its watchdog, and the removal.
        clock.wait_for_sleepers(4);
        manager.abort();
        wait_for_alarm(&clock, clock.now() + HOUR);
        clock.advance(HOUR);
        let error = running.join().unwrap_err();
        assert_eq!(error.still_running(), ["vm"]);
        let answer = removal.join().unwrap();
        assert_eq!(answer.unwrap_err().to_string(), "still running: vm");
        drop(go_on);
        adding.join().unwrap().unwrap_err();
    });
}

/// A user-defined component: two sets of workers.
struct Pair([Running<WorkersControl>; 2]);

impl Runnable for Pair {
    fn stop(&self) {
        self.0.iter().for_each(Running::stop);
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), EndError> {
        let first = self.0[0].join_timeout(timeout);
        self.0[1].join_timeout(timeout).and(first)
    }

    fn detach(&mut self) {
        self.0.iter_mut().for_each(Runnable::detach);
    }

    fn status(&self) -> RunningStatus {
        let [one, other] = self.0.each_ref().map(Runnable::status);
        RunningStatus::new(
            "pair",
            one.phase != homeostat::base::RunningPhase::Running,
            one.threads.into_iter().chain(other.threads),
        )
    }

    fn on_end(&self, hook: EndHook) {
        self.0.iter().for_each(|workers| workers.on_end(Arc::clone(&hook)));
    }

    fn may_end(&self) -> bool {
        true
    }
}

fn pair(queues: &[WorkQueue<u32>; 2]) -> Pair {
    Pair(queues.each_ref().map(|queue| Workers::new(idle).start(queue).unwrap()))
}

#[test]
fn a_user_defined_component_is_stopped_removed_and_may_end() {
    let manager = Manager::builder().shutdown_grace(Duration::MAX).build().unwrap();
    let running = manager.start().unwrap();
    let queues = [WorkQueue::new(), WorkQueue::new()];
    manager.add(Component::running("pair", pair(&queues))).unwrap();
    assert!(manager.remove("pair", Duration::MAX).unwrap());
    manager.add(Component::running("pair", pair(&queues))).unwrap();
    let [one, other] = &queues;
    one.shutdown(Shutdown::Discard);
    other.shutdown(Shutdown::Discard);
    // It ends by itself, so its name becomes free.
    until("the name is free", || manager.add(Component::running("pair", pair(&queues))).is_ok());
    manager.stop();
    running.join().unwrap();
}
