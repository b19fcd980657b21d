//! kube-runtime's public scheduler. Requests arrive through a channel, as in a controller. `hold_unless` delays keys
//! that are being processed, as in kube-runtime's own runner.

use std::collections::HashSet;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use kube_runtime::scheduler::{ScheduleRequest, Scheduler, scheduler};
use tokio::runtime::{Builder, Handle};
use tokio::time::Instant;

use super::{Delays, join};

type Requests<K> = UnboundedReceiver<ScheduleRequest<K>>;

/// Both ends on one thread, inside a runtime.
pub(crate) struct Line<K> {
    requests: UnboundedSender<ScheduleRequest<K>>,
    scheduler: Pin<Box<Scheduler<K, Requests<K>>>>,
    processing: HashSet<K, foldhash::fast::RandomState>,
}

impl<K: Eq + Hash + Clone> Line<K> {
    pub(crate) fn new() -> Self {
        let (requests, receiver) = unbounded();
        Self { requests, scheduler: Box::pin(scheduler(receiver)), processing: HashSet::default() }
    }

    pub(crate) fn enqueue(&self, message: K) {
        self.enqueue_after(message, Duration::ZERO);
    }

    pub(crate) fn enqueue_after(&self, message: K, delay: Duration) {
        // This fails only without the scheduler, which `self` holds.
        let _ = self.requests.unbounded_send(ScheduleRequest { message, run_at: Instant::now() + delay });
    }

    pub(crate) async fn take(&mut self) -> K {
        let Self { scheduler, processing, .. } = self;
        let taken = scheduler.as_mut().hold_unless(|key| !processing.contains(key)).next().await;
        let key = taken.expect("the scheduler ends with its requests, and this holds their sender");
        processing.insert(key.clone());
        key
    }

    pub(crate) fn done(&mut self, key: &K) {
        self.processing.remove(key);
    }

    /// Lets the scheduler take the sent requests. None of them is due.
    pub(crate) fn settle(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let polled = self.scheduler.as_mut().hold_unless(|_| false).poll_next_unpin(&mut cx);
        assert!(matches!(polled, Poll::Pending), "a scheduler that holds everything back gave a key");
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(future)
}

/// Runs `future` on a current-thread runtime on a new thread.
pub(super) fn spawn_runtime(future: impl Future<Output = ()> + Send + 'static) -> (Handle, JoinHandle<()>) {
    let runtime = runtime();
    (runtime.handle().clone(), thread::spawn(move || runtime.block_on(future)))
}

fn runtime() -> tokio::runtime::Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime without I/O needs nothing of the system")
}

pub(crate) struct Timer {
    requests: UnboundedSender<ScheduleRequest<u64>>,
    consumer: JoinHandle<()>,
}

impl Delays for Timer {
    fn start(mut fire: impl FnMut(u64) -> bool + Send + 'static) -> Self {
        let (requests, receiver) = unbounded();
        let held = requests.clone();
        let (_, consumer) = spawn_runtime(async move {
            let (scheduler, processing) = (Box::pin(scheduler(receiver)), HashSet::default());
            let mut line = Line { requests: held, scheduler, processing };
            loop {
                let key = line.take().await;
                let go_on = fire(key);
                line.done(&key);
                if !go_on {
                    return;
                }
            }
        });
        Self { requests, consumer }
    }

    fn set(&self, key: u64, delay: Duration) {
        // This fails only after the consumer has ended.
        let _ = self.requests.unbounded_send(ScheduleRequest { message: key, run_at: Instant::now() + delay });
    }

    fn join(self) {
        join(self.consumer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_process_is_held_and_runs_again() {
        block_on(async {
            let mut line = Line::new();
            line.enqueue(1_u64);
            line.enqueue(1);
            let taken = line.take().await;
            assert_eq!(taken, 1);
            line.enqueue(1);
            line.enqueue(2);
            let other = line.take().await;
            assert_eq!(other, 2);
            line.done(&1);
            assert_eq!(line.take().await, 1);
        });
    }
}
