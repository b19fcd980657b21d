//! Callbacks of cancelled tokens that block: the manager cancels, and still gives up in time. Its clock is held.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use homeostat::base::{EndError, Runnable};
use homeostat::manager::{Candidate, Leadership, ManagerBuilder, Term};
use homeostat::watch::SourceHandle;
use homeostat::{
    Action, BoxError, CancellationToken, Component, Context, Controller, Elector, Enqueue, Manager, ManualClock,
    Poller, Running, WorkQueue, Workers,
};

use parking_lot::Mutex;

use crate::support::{HOUR, SECOND};
use crate::until::until;

/// A callback that reports its thread, and blocks until the test has ended.
#[derive(Clone)]
struct Block {
    entered: Sender<String>,
    released: Receiver<()>,
}

impl Block {
    fn call(&self) {
        // The test may have ended.
        let _ = self.entered.send(thread::current().name().unwrap_or_default().to_owned());
        let _ = self.released.recv();
    }

    fn register(&self, token: &CancellationToken) {
        let block = self.clone();
        token.on_cancel(move || block.call()).detach();
    }

    /// Registers the callback, and waits for the cancellation.
    fn wait_in(&self, cx: &Context) -> Result<(), BoxError> {
        self.register(cx.token());
        let _ = self.entered.send(String::new());
        cx.token().wait();
        Ok(cx.check()?)
    }
}

struct Stage {
    /// Dropped first: the callbacks end then, also if the test fails.
    release: Sender<()>,
    block: Block,
    entered: Receiver<String>,
    clock: ManualClock,
}

impl Stage {
    fn new() -> Self {
        let ((enter, entered), (release, released)) = (unbounded(), unbounded());
        Self { release, block: Block { entered: enter, released }, entered, clock: ManualClock::new() }
    }

    fn manager(&self) -> ManagerBuilder {
        Manager::builder().clock(self.clock.clock()).threads(1).abort_grace(SECOND)
    }

    /// Lets time pass until the manager has given up this thread.
    #[track_caller]
    fn gives_up(self, running: Running<Manager>, thread: &str) -> EndError {
        until("the manager has given up", || {
            self.clock.advance(SECOND);
            running.run_status().threads.iter().any(|name| name == thread)
        });
        let error = running.join().unwrap_err();
        drop(self.release);
        error
    }

    /// Blocks until user code waits for its cancellation.
    fn begins(&self) {
        assert_eq!(self.entered.recv().unwrap(), "");
    }
}

/// Aborts a manager with a component whose callback blocks. The manager gives up the thread of the callback.
#[track_caller]
fn check(add: impl FnOnce(&Manager, &Stage), thread: &str) {
    let stage = Stage::new();
    let manager = stage.manager().build().unwrap();
    add(&manager, &stage);
    let running = manager.start().unwrap();
    stage.begins();
    manager.abort();
    assert_eq!(stage.entered.recv().unwrap(), thread);
    stage.gives_up(running, thread);
}

#[test]
fn a_manager_gives_up_a_callback_of_a_function() {
    let add = |manager: &Manager, stage: &Stage| {
        let block = stage.block.clone();
        manager.add(Component::function("hang", move |cx: &Context| block.wait_in(cx))).unwrap();
    };
    check(add, "hang-callbacks");
}

#[test]
fn a_manager_gives_up_a_callback_of_a_run() {
    let add = |manager: &Manager, stage: &Stage| {
        let block = stage.block.clone();
        let reconcile = move |cx: &Context, _: &u32| block.wait_in(cx).map(|()| Action::await_change());
        let vms = Controller::builder("vm", reconcile).clock(stage.clock.clock()).build().unwrap();
        vms.handle().enqueue(1);
        manager.add(vms).unwrap();
    };
    check(add, "vm-control-0");
}

#[test]
fn a_manager_gives_up_a_callback_of_a_listing_of_a_controller() {
    let add = |manager: &Manager, stage: &Stage| {
        let block = stage.block.clone();
        let reconcile = |_: &Context, _: &u32| Ok::<_, BoxError>(Action::await_change());
        let list = move |cx: &Context| block.wait_in(cx).map(|()| []);
        let vms = Controller::builder("vm", reconcile).clock(stage.clock.clock()).poll(HOUR, list).build().unwrap();
        manager.add(vms).unwrap();
    };
    check(add, "vm-source-0-callbacks");
}

#[test]
fn a_manager_gives_up_a_callback_of_a_listing() {
    let add = |manager: &Manager, stage: &Stage| {
        let block = stage.block.clone();
        let queue = WorkQueue::<u32>::builder().clock(stage.clock.clock()).build();
        let poller = Poller::new(HOUR, move |cx: &Context| block.wait_in(cx).map(|()| []));
        manager.add(Component::poller("disks", poller.clock(stage.clock.clock()), &queue)).unwrap();
    };
    check(add, "disks-callbacks");
}

#[test]
fn a_manager_gives_up_a_callback_of_workers() {
    let add = |manager: &Manager, stage: &Stage| {
        let block = stage.block.clone();
        let queue = WorkQueue::builder().clock(stage.clock.clock()).build();
        let reconcile = move |cx: &Context, _: &u32| block.wait_in(cx).map(|()| Action::await_change());
        queue.enqueue(1);
        manager.add(Component::running("work", Workers::new(reconcile).name("work").start(&queue).unwrap())).unwrap();
    };
    check(add, "work-callbacks");
}

#[test]
fn the_removal_of_a_component_gives_up_its_callback() {
    let stage = Stage::new();
    let manager = stage.manager().build().unwrap();
    let block = stage.block.clone();
    manager.add(Component::function("hang", move |cx: &Context| block.wait_in(cx))).unwrap();
    let running = manager.start().unwrap();
    stage.begins();
    let error = manager.remove("hang", Duration::ZERO).unwrap_err();
    assert!(error.still_running().contains(&"hang-callbacks".to_owned()), "{error}");
    drop(stage.release);
    manager.stop();
    running.join().unwrap();
}

/// An elector from a function that tries to lead.
struct Tries<F>(F);

impl<F: Fn(&Context) -> Result<ControlFlow<Term, Duration>, BoxError> + Clone + Send + Sync + 'static> Elector
    for Tries<F>
{
    fn candidate(&self) -> Box<Candidate> {
        let tries = self.0.clone();
        Box::new(move |cx: &Context| tries(cx).map_err(homeostat::manager::ElectorError::new))
    }
}

#[test]
fn a_manager_gives_up_a_callback_of_a_candidate() {
    let stage = Stage::new();
    let block = stage.block.clone();
    let elector = Tries(move |cx: &Context| block.wait_in(cx).map(|()| ControlFlow::Continue(SECOND)));
    let manager = stage.manager().elector(elector).build().unwrap();
    let running = manager.start().unwrap();
    stage.begins();
    manager.stop();
    assert_eq!(stage.entered.recv().unwrap(), "manager-elector-callbacks");
    stage.gives_up(running, "manager-elector-callbacks");
}

/// A leadership that is lost at its first check.
struct Lost;

impl Leadership for Lost {
    fn check(&mut self) -> Result<(), BoxError> {
        Err("another process leads".into())
    }
}

#[test]
fn a_manager_hears_of_a_lost_term_before_a_callback_of_the_elector() {
    let stage = Stage::new();
    let block = stage.block.clone();
    let elector = Tries(move |_: &Context| {
        let term = Term::new("row", Lost);
        block.register(term.lost());
        Ok(ControlFlow::Break(term))
    });
    let manager = stage.manager().elector(elector).build().unwrap();
    let running = manager.start().unwrap();
    assert_eq!(stage.entered.recv().unwrap(), "manager-elector-0");
    assert_eq!(stage.gives_up(running, "manager-elector-0").component(), Some("elector"));
}

/// Nothing stops this token before the function ends.
#[test]
fn a_manager_waits_for_a_callback_of_a_function_that_has_ended() {
    let stage = Stage::new();
    let manager = stage.manager().build().unwrap();
    let (keep, kept) = unbounded();
    let block = stage.block.clone();
    let function = move |cx: &Context| -> Result<(), BoxError> {
        block.register(cx.token());
        Ok(keep.send(cx.token().clone())?)
    };
    manager.add(Component::function("early", function)).unwrap();
    let running = manager.start().unwrap();
    assert_eq!(stage.entered.recv().unwrap(), "early-0");
    assert!(kept.recv().unwrap().is_cancelled());
    manager.abort();
    stage.gives_up(running, "early-0");
}

#[test]
fn a_second_join_on_a_thread_of_a_poller_returns() {
    let slot = Arc::<Mutex<Option<Running<SourceHandle>>>>::default();
    let (own, queue) = (Arc::clone(&slot), WorkQueue::<u32>::new());
    let ((tell, told), (go, going)) = (unbounded(), unbounded::<()>());
    let list = move |_cx: &Context| -> Result<Vec<u32>, BoxError> {
        going.recv()?;
        let mut running = own.lock().take().unwrap();
        let joined = [(); 2].map(|()| Runnable::join(&mut running).unwrap_err().to_string());
        tell.send(joined)?;
        Ok(vec![])
    };
    *slot.lock() = Some(Poller::new(HOUR, list).name("double").start(&queue).unwrap());
    go.send(()).unwrap();
    assert_eq!(told.recv().unwrap(), ["still running: double-0"; 2]);
}

/// A value of a thread. It counts the end of the thread.
struct CountsEnd(Arc<AtomicUsize>);

impl Drop for CountsEnd {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

thread_local! {
    static COUNTS_END: Cell<Option<CountsEnd>> = const { Cell::new(None) };
}

#[test]
fn a_join_joins_the_thread_of_a_callback() {
    let ended = Arc::<AtomicUsize>::default();
    for round in 1..=50 {
        let (queue, (tell, told), counter) = (WorkQueue::new(), unbounded(), Arc::clone(&ended));
        let reconcile = move |cx: &Context, _: &u32| -> Result<Action, BoxError> {
            let counts = CountsEnd(Arc::clone(&counter));
            let _called = cx.on_cancel(move || COUNTS_END.set(Some(counts)));
            tell.send(())?;
            cx.token().wait();
            Ok(Action::await_change())
        };
        let workers = Workers::new(reconcile).name("joined").start(&queue).unwrap();
        queue.enqueue(1);
        told.recv().unwrap();
        workers.abort();
        workers.join().unwrap();
        assert_eq!(ended.load(SeqCst), round);
    }
}
