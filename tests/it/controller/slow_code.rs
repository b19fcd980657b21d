//! User code that blocks, although a deadline or the end of a delay has caused it, delays no key of another controller.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use homeostat::base::Runnable;
use homeostat::controller::ControllerBuilder;
use homeostat::{
    Action, BoxError, Context, Controller, ControllerHandle, Enqueue, Key, Manager, Running, WorkQueue, WorkerPool,
    Workers,
};
use homeostat_test_support::logs::Logs;

use crate::support::MS;
use crate::until::until;

/// User code that reports its thread, and blocks until the test drops the other end.
#[derive(Clone)]
struct Slow(Sender<String>, Receiver<()>);

impl Slow {
    fn block(&self) {
        // The test may have ended.
        let _ = self.0.send(thread::current().name().unwrap_or_default().to_owned());
        let _ = self.1.recv();
    }

    /// Waits for the end of the test, with a callback that blocks on another thread when the context is cancelled.
    /// Returns early if the context is cancelled already: the callback may have run on this thread.
    fn wait_in(&self, cx: &Context) {
        let called = self.clone();
        let _unblock = cx.on_cancel(unless_here(move || called.block()));
        if !cx.is_cancelled() {
            let _ = self.1.recv();
        }
    }
}

/// Returns a function that does nothing on this thread, and calls `call` on another one.
fn unless_here(call: impl FnOnce()) -> impl FnOnce() {
    let here = thread::current().id();
    move || {
        if thread::current().id() != here {
            call();
        }
    }
}

/// A key that blocks when its last copy is dropped.
#[derive(Clone)]
struct LastCopy(#[expect(dead_code, reason = "dropped")] Arc<SlowDrop>);

struct SlowDrop(Slow);

impl Drop for SlowDrop {
    fn drop(&mut self) {
        self.0.block();
    }
}

/// A key that blocks when it is shown, except on the threads that run it.
#[derive(Clone)]
struct Shown(Slow);

macro_rules! equal_keys {
    ($($key:ty),*) => {$(
        impl PartialEq for $key {
            fn eq(&self, _: &Self) -> bool {
                true
            }
        }
        impl Eq for $key {}
        impl std::hash::Hash for $key {
            fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
        }
    )*};
}

equal_keys!(LastCopy, Shown);

impl fmt::Debug for LastCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("last copy")
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !["pool-0", "pool-1"].contains(&thread::current().name().unwrap_or_default()) {
            self.0.block();
        }
        f.write_str("shown")
    }
}

/// A pool with a controller that runs each key once a millisecond.
struct Stage {
    /// Dropped first: the slow code ends then, also if the test fails.
    release: Sender<()>,
    slow: Slow,
    entered: Receiver<String>,
    runs: Receiver<u32>,
    prompt: Running<ControllerHandle<u32>>,
    pool: Running<WorkerPool>,
}

impl Stage {
    fn new() -> Self {
        let pool = WorkerPool::builder().threads(2).start().unwrap();
        let ((report, runs), (enter, entered), (release, released)) = (unbounded(), unbounded(), unbounded());
        let reconcile = move |_: &Context, key: &u32| -> Result<Action, BoxError> {
            report.send(*key)?;
            Ok(Action::requeue_after(MS))
        };
        let prompt = Controller::builder("prompt", reconcile).build().unwrap().start(&pool).unwrap();
        Self { release, slow: Slow(enter, released), entered, runs, prompt, pool }
    }

    fn start<K: Key + Sync + fmt::Debug>(&self, slow: ControllerBuilder<K>) -> Running<ControllerHandle<K>> {
        slow.build().unwrap().start(&self.pool).unwrap()
    }

    /// Runs a delayed key while the slow code blocks on one of `threads`.
    #[track_caller]
    fn check(self, threads: &[&str]) {
        let thread = self.entered.recv().unwrap();
        assert!(threads.contains(&thread.as_str()), "{thread}");
        self.prompt.enqueue(7);
        // The second run comes after a delay.
        assert_eq!([self.runs.recv(), self.runs.recv()], [Ok(7), Ok(7)]);
        drop(self.release);
        self.prompt.shutdown(Duration::MAX).unwrap();
    }
}

/// A run that ends once the slow code may end.
fn waits<K>(slow: &Slow) -> impl Fn(&Context, &K) -> Result<Action, BoxError> + Send + Sync + use<K> {
    let slow = slow.clone();
    move |_, _| {
        let _ = slow.1.recv();
        Ok(Action::await_change())
    }
}

#[test]
fn a_slow_cancellation_of_a_run_delays_no_other_controller() {
    let stage = Stage::new();
    let slow = stage.slow.clone();
    let vms = stage.start(
        Controller::builder("vm", move |cx: &Context, _: &u32| -> Result<Action, BoxError> {
            slow.wait_in(cx);
            Ok(Action::requeue_after(MS))
        })
        .reconcile_timeout(MS),
    );
    vms.enqueue(1);
    stage.check(&["pool-0-deadline", "pool-1-deadline"]);
}

#[test]
fn a_slow_cancellation_of_a_run_delays_no_other_deadline_of_workers() {
    let ((enter, entered), (release, released), (report, cancelled)) = (unbounded(), unbounded::<()>(), unbounded());
    let (slow, queue) = (Slow(enter, released), WorkQueue::new());
    let reconcile = move |cx: &Context, key: &u32| -> Result<Action, BoxError> {
        if *key == 1 {
            slow.wait_in(cx);
        } else {
            cx.token().wait();
            report.send(*key)?;
        }
        Ok(Action::requeue_after(MS))
    };
    let workers = Workers::new(reconcile).name("late").threads(2).reconcile_timeout(MS).start(&queue).unwrap();
    queue.enqueue(1);
    let thread = entered.recv().unwrap();
    assert!(["late-0-deadline", "late-1-deadline"].contains(&thread.as_str()), "{thread}");
    queue.enqueue(2);
    // The second run begins after a delay, and its deadline is a new one.
    assert_eq!([cancelled.recv(), cancelled.recv()], [Ok(2), Ok(2)]);
    drop(release);
    workers.shutdown(Duration::MAX).unwrap();
}

#[test]
fn a_slow_cancellation_of_a_poll_delays_no_other_controller() {
    let stage = Stage::new();
    let slow = stage.slow.clone();
    let _vms = stage.start(Controller::builder("vm", waits::<u32>(&stage.slow)).poll(10 * MS, move |cx: &Context| {
        slow.wait_in(cx);
        Ok::<_, BoxError>([])
    }));
    stage.check(&["vm-source-0-0-deadline"]);
}

#[test]
fn a_slow_debug_of_an_overdue_key_delays_no_other_controller() {
    let _logs = Logs::of("slow debug");
    let stage = Stage::new();
    let vms = stage.start(Controller::builder("vm", waits(&stage.slow)).reconcile_timeout(MS));
    vms.enqueue(Shown(stage.slow.clone()));
    stage.check(&["pool-0-deadline", "pool-1-deadline"]);
}

#[test]
fn a_slow_drop_of_a_forgotten_key_delays_no_other_controller() {
    let stage = Stage::new();
    let reconcile = |_: &Context, _: &LastCopy| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    let vms = stage.start(Controller::builder("vm", reconcile).min_interval(10 * MS));
    vms.enqueue(LastCopy(Arc::new(SlowDrop(stage.slow.clone()))));
    stage.check(&["pool-0", "pool-1"]);
}

#[test]
fn a_slow_drop_of_keys_of_a_failed_controller_delays_no_other_controller() {
    let stage = Stage::new();
    let waits_too = stage.slow.clone();
    let vms = stage.start(Controller::builder("vm", waits(&stage.slow)).sync_timeout(20 * MS).poll(
        Duration::MAX,
        move |_| {
            let _ = waits_too.1.recv();
            Ok::<_, BoxError>([])
        },
    ));
    vms.enqueue(LastCopy(Arc::new(SlowDrop(stage.slow.clone()))));
    stage.check(&["vm-control-0"]);
    until("the controller has failed", || vms.failure().is_some());
}

#[test]
fn a_slow_hook_at_the_end_of_a_failed_controller_delays_no_other_controller() {
    let stage = Stage::new();
    let (slow, waits_too) = (stage.slow.clone(), stage.slow.clone());
    let list = move |_: &Context| {
        let _ = waits_too.1.recv();
        Ok::<_, BoxError>([])
    };
    let vms = Controller::builder("vm", waits::<u32>(&stage.slow)).sync_timeout(20 * MS).poll(Duration::MAX, list);
    let vms = stage.start(vms);
    vms.on_end(Arc::new(move || slow.block()));
    stage.check(&["vm-control-0"]);
}

/// A reconciler whose run ends at its deadline. `call` is called at the deadline, on another thread.
fn ends_at_its_deadline(
    call: impl Fn() + Clone + Send + Sync + 'static,
) -> impl Fn(&Context, &u32) -> Result<Action, BoxError> + Send + Sync {
    move |cx, _| {
        let (say, said) = unbounded();
        let call = unless_here(call.clone());
        let at_deadline = move || {
            say.send(()).unwrap();
            call();
        };
        cx.on_cancel(at_deadline).detach();
        said.recv()?;
        Ok(Action::requeue_after(MS))
    }
}

#[test]
fn a_manager_gives_up_a_callback_that_hangs_after_its_run_has_ended() {
    let ((enter, entered), (release, released)) = (unbounded(), unbounded::<()>());
    let slow = Slow(enter, released);
    let call = move || slow.block();
    let manager = Manager::builder().threads(1).abort_grace(MS).build().unwrap();
    let vms = Controller::builder("vm", ends_at_its_deadline(call)).reconcile_timeout(MS);
    let vms = vms.build().unwrap();
    let handle = vms.handle();
    manager.add(vms).unwrap();
    let running = manager.start().unwrap();
    handle.enqueue(1);
    let thread = entered.recv().unwrap();
    let error = running.shutdown(Duration::ZERO).unwrap_err();
    assert!(error.still_running().contains(&thread), "{thread}: {error}");
    drop(release);
}

#[test]
fn a_callback_at_a_deadline_may_end_its_controller_and_its_pool() {
    let ((give, given), (report, ended)) = (unbounded(), unbounded());
    let call = move || {
        if let Ok((vms, pool)) = given.try_recv() {
            let (vms, pool): (Running<ControllerHandle<u32>>, Running<WorkerPool>) = (vms, pool);
            let outcomes = [vms.shutdown(Duration::MAX), pool.shutdown(Duration::MAX)];
            report.send(outcomes.map(|outcome| outcome.map_err(|error| error.still_running().to_vec()))).unwrap();
        }
    };
    let pool = WorkerPool::builder().threads(1).start().unwrap();
    let vms = Controller::builder("vm", ends_at_its_deadline(call)).reconcile_timeout(MS);
    let vms = vms.build().unwrap().start(&pool).unwrap();
    let handle = ControllerHandle::clone(&vms);
    give.send((vms, pool)).unwrap();
    handle.enqueue(1);
    // Only the thread of the callback goes on.
    assert_eq!(ended.recv().unwrap(), [Ok(()), Err(vec!["pool-0-deadline".to_owned()])]);
}
