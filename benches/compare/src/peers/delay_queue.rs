//! tokio-util's `DelayQueue` behind a lock and a map. The consumer's thread is the current-thread runtime, so no key
//! is passed from a timer thread to the consumer. This is its cheapest use.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::time::{DelayQueue, delay_queue};

use super::{Delays, join};

pub(crate) struct Timer {
    pending: Arc<Mutex<Pending>>,
    runtime: Handle,
    consumer: JoinHandle<()>,
}

#[derive(Default)]
struct Pending {
    queue: DelayQueue<u64>,
    /// A key's earliest delay wins.
    due: HashMap<u64, (Instant, delay_queue::Key), RandomState>,
}

impl Pending {
    fn set(&mut self, key: u64, at: Instant) {
        match self.due.entry(key) {
            Entry::Occupied(known) if known.get().0 <= at => {}
            Entry::Occupied(mut known) => {
                let (due, id) = known.get_mut();
                *due = at;
                self.queue.reset_at(id, at);
            }
            Entry::Vacant(new) => {
                new.insert((at, self.queue.insert_at(key, at)));
            }
        }
    }

    /// Pending while nothing is delayed. The next delay wakes the task.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<u64> {
        match self.queue.poll_expired(cx) {
            Poll::Ready(Some(expired)) => {
                let key = expired.into_inner();
                self.due.remove(&key);
                Poll::Ready(key)
            }
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Delays for Timer {
    fn start(mut fire: impl FnMut(u64) -> bool + Send + 'static) -> Self {
        let pending = Arc::new(Mutex::new(Pending::default()));
        let (runtime, consumer) = super::kube::spawn_runtime({
            let pending = Arc::clone(&pending);
            async move { while fire(poll_fn(|cx| pending.lock().poll(cx)).await) {} }
        });
        Self { pending, runtime, consumer }
    }

    fn set(&self, key: u64, delay: Duration) {
        self.pending.lock().set(key, Instant::now() + delay);
    }

    /// A `DelayQueue` arms its timer on the thread that sets a delay, so that thread must be inside the runtime.
    fn while_setting(&self, setting: impl FnOnce(&Self)) {
        let _inside = self.runtime.enter();
        setting(self);
    }

    fn join(self) {
        join(self.consumer);
    }
}
