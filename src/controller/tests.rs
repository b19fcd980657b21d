//! Controllers to which the system refuses threads.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::time::Duration;

use crate::base::thread::ThreadOptions;
use crate::queue::{Ending, KeyState};
use crate::{Action, BoxError, Context, Controller, Enqueue, EnqueueOutcome, Running, WorkQueue, WorkerPool};

/// The time limit of a failed test.
const PATIENCE: Duration = Duration::from_secs(30);

fn pool() -> Running<WorkerPool> {
    WorkerPool::builder().threads(1).start().unwrap()
}

/// Refuses the first thread.
fn refusing() -> ThreadOptions {
    ThreadOptions::new().refusing(Arc::new(AtomicUsize::new(1)))
}

#[test]
fn a_pool_without_a_thread_for_delays_does_not_start_nor_does_its_controller() {
    let error = WorkerPool::builder().thread_options(refusing()).start().unwrap_err();
    assert_eq!(error.to_string(), "the system cannot start thread pool-timer");
    let reconcile = |_: &Context, _: &char| Ok::<_, Infallible>(Action::await_change());
    let refused = Controller::builder("vm", reconcile).own_threads(1).thread_options(refusing()).build().unwrap();
    let handle = refused.handle();
    let error = refused.start(&pool()).unwrap_err();
    assert_eq!(error.to_string(), "the system cannot start thread vm-timer");
    assert_eq!(handle.enqueue('k'), EnqueueOutcome::Closed);
}

/// Sends its name when its thread ends.
struct EndOfThread(mpsc::Sender<String>, String);

impl Drop for EndOfThread {
    fn drop(&mut self) {
        self.0.send(self.1.clone()).unwrap();
    }
}

#[test]
fn all_earlier_threads_have_ended_if_the_system_refuses_one() {
    thread_local! {
        static END: std::cell::RefCell<Option<EndOfThread>> = const { std::cell::RefCell::new(None) };
    }
    for refused in ["vm-0", "vm-2"] {
        let pool = pool();
        let queue = WorkQueue::new();
        queue.enqueue('k');
        let reconcile = |_: &Context, _: &char| Ok::<_, Infallible>(Action::await_change());
        let start = |number, options: ThreadOptions| match number {
            0 => WorkerPool::builder().name("vm").threads(3).thread_options(options).start().map(drop),
            1 => {
                let workers = crate::Workers::new(reconcile).name("vm").threads(3).thread_options(options);
                workers.reconcile_timeout(PATIENCE).start(&queue).map(drop)
            }
            _ => {
                let vms = Controller::builder("vm", reconcile).own_threads(3).thread_options(options);
                vms.build().and_then(|vms| vms.start(&pool)).map(drop)
            }
        };
        for number in 0..3 {
            let (begins, begun) = mpsc::channel();
            let (ends, ended) = mpsc::channel();
            let hook = move |name: &str| {
                begins.send(name.to_owned()).unwrap();
                END.set(Some(EndOfThread(ends.clone(), name.to_owned())));
            };
            let error = start(number, ThreadOptions::refusing_named(refused).0.on_start(hook)).unwrap_err();
            assert_eq!(error.to_string(), format!("the system cannot start thread {refused}"));
            let (begun, ended): (std::collections::BTreeSet<_>, _) =
                (begun.try_iter().collect(), ended.try_iter().collect());
            assert_eq!(begun, ended);
            assert!(!begun.is_empty(), "the watchdog starts first");
        }
    }
}

#[test]
fn a_start_ends_the_delay_of_a_queue_without_a_timer_thread() {
    let (runs, ran) = mpsc::channel();
    let reconcile = move |_cx: &Context, key: &char| -> Result<Action, BoxError> {
        runs.send(*key)?;
        Ok(Action::await_change())
    };
    let no_thread = refusing();
    let controller = Controller::builder("quiet", reconcile).thread_options(no_thread).build().unwrap();
    let handle = controller.handle();
    assert_eq!(handle.queue().enqueue_after('d', Duration::from_millis(1)), EnqueueOutcome::Scheduled);
    assert!(matches!(handle.queue().state(&'d'), KeyState::Delayed(_)));
    let pool = pool();
    let _running = controller.start(&pool).unwrap();
    assert_eq!(ran.recv_timeout(PATIENCE), Ok('d'));
}

/// A claim has asked whether its key is suspended, and ends after the key was resumed and its run cancelled.
#[test]
fn a_key_resumed_and_cancelled_while_its_claim_waits_does_not_wait_forever() {
    let reconcile = |_: &Context, _: &char| Ok::<_, Infallible>(Action::await_change());
    let controller = Controller::builder("vm", reconcile).build().unwrap();
    let handle = controller.handle();
    handle.suspend('k');
    handle.enqueue('k');
    let claim = handle.queue().try_dequeue().unwrap();
    assert!(handle.state.suspended.has(claim.key()));
    handle.resume(&'k');
    handle.queue().cancel(&'k');
    let reasons = claim.reasons();
    claim.end(Ending::Defer(reasons, Duration::MAX));
    assert!(matches!(handle.queue().state(&'k'), KeyState::Ready(_)), "{:?}", handle.queue());
}
