//! A controller that is ended by its own run, listing or mapping. A test that hangs is killed.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use homeostat::controller::ControllerBuilder;
use homeostat::{
    Action, BoxError, Context, Controller, ControllerHandle, ManualClock, Reconciler, Running, Subscriber, Watch,
    WorkerPool,
};

use crate::support::HOUR;

type Own = Running<ControllerHandle<u32>>;

/// The ways to end a controller.
const ENDS: [fn(Own); 3] = [
    |own| drop(own.shutdown(Duration::ZERO)),
    drop,
    |own| {
        own.stop();
        drop(own.join());
    },
];

/// User code that ends its own controller, and reports that.
#[derive(Clone)]
struct Code {
    handles: Receiver<Own>,
    end: fn(Own),
    report: Sender<()>,
}

impl Code {
    fn call(&self, own: Own) {
        (self.end)(own);
        self.report.send(()).unwrap();
    }

    /// Does nothing without a handle.
    fn try_call(&self) {
        if let Ok(own) = self.handles.try_recv() {
            self.call(own);
        }
    }

    /// Returns a reconciler that keeps the reports open until it is dropped.
    fn idle(&self) -> impl Reconciler<u32> + use<> {
        let report = self.report.clone();
        move |_: &Context, _: &u32| {
            let _kept = &report;
            Ok::<_, BoxError>(Action::await_change())
        }
    }
}

/// The test's side of [`Code`], and the surroundings of its controller.
struct Stage {
    clock: ManualClock,
    pool: Running<WorkerPool>,
    own: Sender<Own>,
    reports: Receiver<()>,
}

impl Stage {
    fn new(end: fn(Own)) -> (Self, Code) {
        let clock = ManualClock::new();
        let pool = WorkerPool::builder().threads(2).clock(clock.clock()).start().unwrap();
        let ((own, handles), (report, reports)) = (unbounded(), unbounded());
        (Self { clock, pool, own, reports }, Code { handles, end, report })
    }

    fn start(&self, builder: ControllerBuilder<u32>) -> Own {
        let builder = builder.shutdown_grace(Duration::ZERO).clock(self.clock.clock());
        builder.build().unwrap().start(&self.pool).unwrap()
    }

    /// Waits until the code has ended the controller, and all its parts have been dropped.
    fn check(self) {
        assert_eq!(self.reports.iter().collect::<Vec<_>>(), [()]);
    }
}

#[test]
fn a_run_may_end_its_own_controller() {
    for end in ENDS {
        for own_threads in [false, true] {
            let (stage, code) = Stage::new(end);
            let reconcile = move |_: &Context, _: &u32| -> Result<Action, BoxError> {
                code.call(code.handles.recv()?);
                Ok(Action::await_change())
            };
            let builder = Controller::builder("vm", reconcile);
            let vms = stage.start(if own_threads { builder.own_threads(2) } else { builder });
            vms.enqueue(1);
            stage.own.send(vms).unwrap();
            stage.check();
        }
    }
}

/// The run waits for the other one, which ends at its abort.
#[test]
fn a_run_that_shuts_its_own_controller_down_waits_for_the_other_runs() {
    let (stage, code) = Stage::new(ENDS[0]);
    let (ended, (begin, begins)) = (AtomicBool::new(false), unbounded());
    let reconcile = move |cx: &Context, key: &u32| -> Result<Action, BoxError> {
        if *key == 1 {
            begin.send(())?;
            cx.token().wait();
            ended.store(true, SeqCst);
        } else {
            (code.end)(code.handles.recv()?);
            if ended.load(SeqCst) {
                code.report.send(())?;
            }
        }
        Ok(Action::await_change())
    };
    let vms = stage.start(Controller::builder("vm", reconcile).max_concurrent_reconciles(2));
    vms.enqueue(1);
    begins.recv().unwrap();
    vms.enqueue(2);
    stage.own.send(vms).unwrap();
    stage.check();
}

#[test]
fn a_listing_may_end_its_own_controller() {
    for end in ENDS {
        let (stage, code) = Stage::new(end);
        let builder = Controller::builder("vm", code.idle());
        let list = move |_: &Context| {
            code.call(code.handles.recv().unwrap());
            Ok::<_, Infallible>([1])
        };
        let vms = stage.start(builder.poll(HOUR, list));
        stage.own.send(vms).unwrap();
        stage.check();
    }
}

#[test]
fn a_mapping_may_end_its_own_controller() {
    for end in ENDS {
        for buffered in [false, true] {
            let (stage, code) = Stage::new(end);
            let builder = Controller::builder("vm", code.idle());
            let disks = Watch::<u32, u32>::builder().clock(stage.clock.clock()).push();
            let vms = stage.start(builder.subscribe(disks.watch(), move |queue| {
                let subscriber = Subscriber::to(queue, move |_| {
                    code.try_call();
                    [1]
                });
                if buffered { subscriber.buffered() } else { subscriber }
            }));
            stage.own.send(vms).unwrap();
            disks.set(1, 1);
            stage.check();
        }
    }
}

/// A thread of the pool calls the mapping.
#[test]
fn a_mapping_may_end_its_own_controller_in_a_resync() {
    for end in ENDS {
        let (stage, code) = Stage::new(end);
        let builder = Controller::builder("vm", code.idle());
        let disks = Watch::<u32, u32>::builder().clock(stage.clock.clock()).push();
        disks.replace_all([(1, 1)]);
        let mapping = move |_: &homeostat::Event<u32, u32>| {
            code.try_call();
            [1]
        };
        let vms = stage.start(builder.watch(disks.watch(), mapping).resync(HOUR));
        vms.wait(&1, Duration::MAX).unwrap();
        stage.own.send(vms).unwrap();
        stage.clock.advance(HOUR);
        stage.check();
    }
}
