//! A failure reaches the container of the component, with its cause.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use homeostat::base::{EndError, EndHook, Runnable, RunningStatus};
use homeostat::{
    Action, BoxError, CancellationToken, Component, Context, Controller, Elector, Manager, ManualClock, Running,
    WorkerPool,
};
use parking_lot::Mutex;

use crate::support::{HOUR, SECOND};
use crate::until::until;

#[derive(Debug)]
struct NoDevice(std::io::Error);

impl fmt::Display for NoDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such device")
    }
}

impl Error for NoDevice {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// Returns a function that fails once the sender is dropped.
fn breaking() -> (Component, Sender<()>) {
    let (go, gate) = bounded::<()>(0);
    let broken = Component::function("broken", move |_: &Context| {
        let _ = gate.recv();
        Err(NoDevice(std::io::Error::other("unplugged")))
    });
    (broken, go)
}

/// Returns a function that notes its end.
fn noting(notes: &Arc<Mutex<Vec<&'static str>>>) -> Component {
    let notes = Arc::clone(notes);
    Component::function("beside", move |cx: &Context| {
        cx.token().wait();
        notes.lock().push("ended");
        Ok::<_, Infallible>(())
    })
}

/// Returns the texts of an error and its sources.
fn chain(error: &(dyn Error + 'static)) -> Vec<String> {
    let mut texts = vec![error.to_string()];
    let mut next = error.source();
    while let Some(error) = next {
        texts.push(error.to_string());
        next = error.source();
    }
    texts
}

#[test]
fn the_failure_of_a_nested_manager_fails_all_around_it_with_its_cause() {
    let notes = Arc::default();
    let (broken, go) = breaking();
    let innermost = Manager::builder().name("innermost").build().unwrap();
    innermost.add(broken).unwrap();
    let inner = Manager::builder().name("inner").build().unwrap();
    inner.add(Component::running("innermost", innermost.start().unwrap())).unwrap();
    let outer = Manager::builder().name("outer").build().unwrap();
    outer.add(noting(&notes)).unwrap();
    outer.add(Component::running("inner", inner.start().unwrap())).unwrap();
    let running = outer.start().unwrap();
    drop(go);
    let error = running.join().unwrap_err();
    assert_eq!(error.component(), Some("inner"));
    assert_eq!(chain(&error), ["inner: innermost: broken: no such device", "unplugged"]);
    assert_eq!(*notes.lock(), ["ended"]);
    assert_eq!(error.still_running(), [""; 0]);
}

#[test]
fn a_nested_manager_that_fails_before_the_start_or_after_a_stop_is_heard() {
    let fails_at_its_stop = || {
        let inner = Manager::builder().name("inner").build().unwrap();
        inner
            .add(Component::function("broken", |cx: &Context| {
                cx.token().wait();
                Err("no such device")
            }))
            .unwrap();
        Component::running("inner", inner.start().unwrap())
    };
    let text = "inner: broken: no such device";

    let manager = Manager::builder().build().unwrap();
    manager.add(fails_at_its_stop()).unwrap();
    let running = manager.start().unwrap();
    manager.stop();
    assert_eq!(running.join().unwrap_err().to_string(), text, "stopped");

    let manager = Manager::builder().build().unwrap();
    manager.add(fails_at_its_stop()).unwrap();
    let running = manager.start().unwrap();
    manager.remove("inner", HOUR).unwrap();
    assert_eq!(running.join().unwrap_err().to_string(), text, "removed");

    let inner = Manager::builder().name("inner").build().unwrap();
    let (broken, go) = breaking();
    inner.add(broken).unwrap();
    let mut failed = inner.start().unwrap();
    drop(go);
    assert_eq!(failed.join_timeout(Duration::MAX).unwrap_err().to_string(), "broken: no such device");
    let manager = Manager::builder().build().unwrap();
    manager.add(Component::running("inner", failed)).unwrap();
    manager.add(Component::function("never", |_: &Context| -> Result<(), BoxError> { panic!("it starts") })).unwrap();
    assert_eq!(manager.start().unwrap_err().to_string(), text, "failed before the start");
}

#[test]
fn a_nested_manager_that_is_stopped_alone_is_no_failure() {
    let inner = Manager::builder().name("inner").build().unwrap();
    let outer = Manager::builder().build().unwrap();
    outer.add(Component::running("inner", inner.start().unwrap())).unwrap();
    let running = outer.start().unwrap();
    inner.stop();
    until("the outer manager has removed the inner one", || {
        outer.status().components.iter().all(|name| name != "inner")
    });
    outer.stop();
    running.join().unwrap();
}

/// Waits until the next alarm is in `time`, and advances to it.
fn advance_to_alarm(clock: &ManualClock, time: Duration) {
    until("the manager waits", || clock.next_alarm() == Some(clock.now() + time));
    clock.advance(time);
}

/// Otherwise an outer manager would give its leadership back while they still work.
#[test]
fn threads_that_a_nested_manager_gives_up_are_still_running_for_the_outer_one() {
    let clock = ManualClock::new();
    let held = || Manager::builder().clock(clock.clock()).threads(1).shutdown_grace(SECOND).abort_grace(SECOND);
    let (go_on, gate) = bounded::<()>(0);
    let inner = held().name("inner").build().unwrap();
    inner
        .add(Component::function("stuck", move |_: &Context| {
            let _ = gate.recv();
            Ok::<_, Infallible>(())
        }))
        .unwrap();
    let outer = held().name("outer").shutdown_grace(HOUR).abort_grace(HOUR).build().unwrap();
    let nested = inner.start().unwrap();
    let (end, ended) = bounded(1);
    nested.on_end(Arc::new(move || end.send(()).unwrap()));
    outer.add(Component::running("inner", nested)).unwrap();
    let running = outer.start().unwrap();
    let removed = std::thread::scope(|scope| {
        let removal = scope.spawn(|| outer.remove("inner", 30 * SECOND));
        advance_to_alarm(&clock, SECOND);
        advance_to_alarm(&clock, SECOND);
        ended.recv().unwrap();
        advance_to_alarm(&clock, 28 * SECOND);
        removal.join().unwrap()
    });
    assert_eq!(removed.unwrap_err().to_string(), "still running: stuck-0");
    outer.stop();
    for _ in 0..2 {
        advance_to_alarm(&clock, HOUR);
    }
    assert_eq!(running.join().unwrap_err().still_running(), ["stuck-0"]);
    drop(go_on);
}

/// Returns a running controller that fails because its watch stops before it is synced.
fn failing_controller(pool: &WorkerPool) -> Running<homeostat::ControllerHandle<u32>> {
    let watch = homeostat::Watch::<u32, u32>::builder().name("disks").push();
    let reconcile = |_: &Context, _: &u32| Ok::<_, Infallible>(Action::await_change());
    let vms = Controller::builder("vm", reconcile).watch(watch.watch(), |event| event.key().copied());
    let vms = vms.build().unwrap().start(pool).unwrap();
    watch.stop();
    vms
}

#[test]
fn the_failure_of_a_nested_controller_keeps_its_cause() {
    let pool = WorkerPool::builder().start().unwrap();
    let manager = Manager::builder().build().unwrap();
    manager.add(Component::running("nested", failing_controller(&pool))).unwrap();
    let error = manager.run(&CancellationToken::new()).unwrap_err();
    let cause = "nested: controller vm: disks ended before its first listing completed";
    assert_eq!((error.component(), error.to_string().as_str()), (Some("nested"), cause));
}

type WaitForEnd<T> = fn(Running<T>) -> Result<(), EndError>;

/// The ways to wait for an end.
fn ways<T: 'static>() -> [WaitForEnd<T>; 4] {
    [
        Running::join,
        |mut running| running.join_timeout(Duration::MAX),
        |running| running.shutdown(HOUR),
        |running| running.shutdown(Duration::MAX),
    ]
}

#[test]
fn each_way_to_wait_for_the_end_of_a_manager_returns_its_failure() {
    for wait in ways() {
        let manager = Manager::builder().build().unwrap();
        let (broken, go) = breaking();
        manager.add(broken).unwrap();
        let running = manager.start().unwrap();
        drop(go);
        let error = wait(running).unwrap_err();
        assert_eq!(error.component(), Some("broken"));
        assert_eq!(error.failure().unwrap().to_string(), "no such device");
        assert_eq!(chain(&error), ["broken: no such device", "unplugged"]);
    }
}

#[test]
fn each_way_to_wait_for_the_end_of_a_controller_returns_its_failure() {
    let pool = WorkerPool::builder().start().unwrap();
    for wait in ways() {
        let vms = failing_controller(&pool);
        until("the controller has failed", || vms.failure());
        let error = wait(vms).unwrap_err();
        assert_eq!(error.component(), Some("vm"));
        assert_eq!(error.to_string(), "controller vm: disks ended before its first listing completed");
    }
}

#[test]
fn a_shutdown_names_the_threads_that_a_manager_gives_up() {
    let (go_on, gate) = bounded::<()>(0);
    let manager = Manager::builder().shutdown_grace(Duration::ZERO).abort_grace(Duration::ZERO).build().unwrap();
    manager
        .add(Component::function("stuck", move |_: &Context| {
            let _ = gate.recv();
            Ok::<_, Infallible>(())
        }))
        .unwrap();
    let error = manager.start().unwrap().shutdown(Duration::ZERO).unwrap_err();
    assert_eq!((error.component(), error.still_running()), (None, &["stuck-0".to_owned()][..]));
    drop(go_on);
}

#[test]
fn a_stop_that_gives_up_names_the_controller_and_the_key_of_a_run_that_goes_on() {
    let logs = crate::stages::logs::Logs::of("vm-of-a-run-that-goes-on");
    let ((report, started), (go_on, gate)) = (bounded::<()>(1), bounded::<()>(0));
    let reconcile = move |_: &Context, _: &&str| {
        report.send(()).unwrap();
        let _ = gate.recv();
        Ok::<_, Infallible>(Action::await_change())
    };
    let manager = Manager::builder().shutdown_grace(Duration::ZERO).abort_grace(Duration::ZERO).build().unwrap();
    manager.add(Controller::builder("vm-of-a-run-that-goes-on", reconcile).build().unwrap()).unwrap();
    let running = manager.start().unwrap();
    manager.enqueue("vm-of-a-run-that-goes-on", "vm-1").unwrap();
    started.recv().unwrap();
    let error = running.shutdown(Duration::ZERO).unwrap_err();
    assert!(!error.still_running().is_empty());
    logs.wait_for(log::Level::Warn, "the run of \"vm-1\" ignores its cancellation, and still runs on manager-pool-");
    drop(go_on);
}

/// A user-defined component that contains another one.
struct Wrapper<R>(R);

impl<R: Runnable> Runnable for Wrapper<R> {
    fn stop(&self) {
        self.0.stop();
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), EndError> {
        self.0.join_timeout(timeout)
    }

    fn detach(&mut self) {
        self.0.detach();
    }

    fn status(&self) -> RunningStatus {
        self.0.status()
    }

    fn on_end(&self, hook: EndHook) {
        self.0.on_end(hook);
    }

    fn failure(&self) -> Option<Arc<BoxError>> {
        self.0.failure()
    }
}

#[test]
fn a_user_defined_container_passes_a_failure_on() {
    let pool = WorkerPool::builder().start().unwrap();
    let manager = Manager::builder().build().unwrap();
    manager.add(Component::running("wrapper", Wrapper(failing_controller(&pool)))).unwrap();
    let error = manager.run(&CancellationToken::new()).unwrap_err();
    assert_eq!(error.to_string(), "wrapper: controller vm: disks ended before its first listing completed");
}

/// A component. Each of its methods panics once.
struct Panicking {
    has_ended: AtomicBool,
    hook: Mutex<Option<EndHook>>,
    panics_in: &'static str,
}

impl Panicking {
    fn at(&self, method: &str) {
        assert!(method != self.panics_in, "out of luck in {method}");
    }
}

impl Runnable for Panicking {
    fn stop(&self) {
        self.has_ended.store(true, SeqCst);
        if let Some(hook) = &*self.hook.lock() {
            hook();
        }
        self.at("stop");
    }

    fn close(&self) {
        self.at("close");
    }

    fn join_timeout(&mut self, _timeout: Duration) -> Result<(), EndError> {
        self.at("join_timeout");
        if self.has_ended.load(SeqCst) { Ok(()) } else { Err(EndError::of_threads(["panicking"])) }
    }

    fn detach(&mut self) {
        self.at("detach");
    }

    fn status(&self) -> RunningStatus {
        RunningStatus::new("panicking", false, ["panicking"])
    }

    fn on_end(&self, hook: EndHook) {
        *self.hook.lock() = Some(hook);
        self.at("on_end");
    }

    fn failure(&self) -> Option<Arc<BoxError>> {
        self.at("failure");
        None
    }

    fn may_end(&self) -> bool {
        self.at("may_end");
        true
    }
}

#[test]
fn a_panic_in_a_method_of_a_component_keeps_no_other_component_from_its_stop() {
    for panics_in in ["stop", "close", "join_timeout", "detach", "on_end", "failure", "may_end"] {
        let notes = Arc::default();
        let manager = Manager::builder().shutdown_grace(Duration::ZERO).abort_grace(Duration::ZERO).build().unwrap();
        manager.add(noting(&notes)).unwrap();
        let part = Panicking { has_ended: AtomicBool::new(false), hook: Mutex::new(None), panics_in };
        manager.add(Component::running("panicking", part)).unwrap();
        let running = manager.start().unwrap();
        manager.stop();
        let ended = running.join();
        if panics_in == "join_timeout" {
            assert!(ended.unwrap_err().still_running().contains(&"panicking".to_owned()));
        } else {
            assert!(ended.is_ok() || ended.is_err_and(|error| error.component().is_none()), "{panics_in}");
        }
        until("the other component has ended", || !notes.lock().is_empty());
    }
}

#[test]
fn a_panic_of_an_elector_at_the_start_is_a_failure() {
    struct Panics;
    impl Elector for Panics {
        fn candidate(&self) -> Box<homeostat::manager::Candidate> {
            panic!("out of luck")
        }
    }
    let notes = Arc::default();
    let manager = Manager::builder().elector(Panics).build().unwrap();
    manager.add(noting(&notes)).unwrap();
    let error = manager.run(&CancellationToken::new()).unwrap_err();
    assert_eq!(error.to_string(), "elector: it panicked: out of luck");
    assert_eq!(*notes.lock(), ["ended"]);
}

#[test]
fn the_log_line_of_a_stop_says_that_the_caller_may_abort_the_manager_before_its_own_grace_period_ends() {
    let logs = crate::stages::logs::Logs::of("stopped-early");
    let manager = Manager::builder().name("stopped-early").build().unwrap();
    manager.start().unwrap().shutdown(SECOND).unwrap();
    logs.wait_for(log::Level::Info, "stopping; aborts after 30s, or earlier if its caller does");
}
