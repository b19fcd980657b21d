//! A controller whose queue cannot start its timer thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

use crate::base::thread::ThreadOptions;
use crate::{Action, BoxError, Context, Controller, WorkerPool};

/// The time limit of a failed test.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn retries_a_refused_timer_thread_of_an_idle_queue() {
    let (runs, ran) = mpsc::channel();
    let reconcile = move |_cx: &Context, _key: &char| -> Result<Action, BoxError> {
        runs.send(())?;
        Ok(Action::requeue_after(Duration::from_millis(1)))
    };
    let controller = Controller::builder("quiet", reconcile).build().unwrap();
    let refusals = Arc::new(AtomicUsize::new(3));
    let options = ThreadOptions::new().refusing(Arc::clone(&refusals));
    controller.handle().queue().shared.set_threads(&options);
    let pool = WorkerPool::builder().threads(1).start().unwrap();
    let running = controller.start(&pool).unwrap();

    running.enqueue('d');
    for run in 1..=2 {
        ran.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("run {run}: {error}"));
    }
    assert_eq!(refusals.load(SeqCst), 0);
}
