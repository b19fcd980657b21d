//! The delivery of events to one subscriber: predicates, mapping, counters and logs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::event::EventKind;
use super::event_buffer::NextEvent;
use super::subscriber::Subscriber;
use crate::base::group::Attendance;
use crate::base::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::base::thread::{Panic, panic_message};
use crate::base::wait::Latch;
use crate::queue::Key;

/// The event counters of a subscription.
#[derive(Debug, Default)]
pub(super) struct DeliveryCounts {
    pub(super) delivered: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) panics: AtomicU64,
}

/// A subscriber with its counters. Owned by the delivering thread.
pub(super) struct Delivery<K, T> {
    pub(super) name: String,
    pub(super) subscriber: Subscriber<K, T>,
    pub(super) counts: Arc<DeliveryCounts>,
    /// Set once the whole initial list has been delivered.
    pub(super) synced: Arc<Latch>,
    /// Ends the subscription when it is dropped. Last field, so that the mapping drops first. `None` if the subscriber
    /// has its own thread.
    pub(super) attendance: Option<Attendance>,
}

impl<K: Key + Sync, T: Send + Sync + 'static> Delivery<K, T> {
    /// Passes an event to the predicates and the mapping. A panic in them is logged and counted, and skips only this
    /// event.
    pub(super) fn deliver(&mut self, next: &NextEvent<K, T>) {
        let name = self.name.as_str();
        let kind = next.event.kind();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.subscriber.deliver(next)));
        let counter = match outcome {
            Ok(Some(tally)) => {
                let keys = tally.total();
                log::trace!(subscription = name, event:% = kind, keys; "{name}: an event ({kind}) was delivered, keys: {keys}");
                &self.counts.delivered
            }
            Ok(None) => &self.counts.refused,
            Err(panic) => {
                let message = panic_message(&*panic);
                log::error!(
                    subscription = name, event:% = kind, panic = message;
                    "{name}: the subscriber panicked at an event ({kind}), which is skipped: {message}"
                );
                &self.counts.panics
            }
        };
        counter.fetch_add(1, SeqCst);
        if kind == EventKind::Synced {
            self.synced.set(true);
        }
    }

    /// Logs and counts a panic in the `Clone` of a key. The events of that key are skipped.
    pub(super) fn report_key_panic(&self, panic: &Panic) {
        let (subscription, message) = (self.name.as_str(), panic_message(&**panic));
        log::error!(
            subscription, panic = message;
            "{subscription}: a key panicked when it was cloned, its events are skipped: {message}"
        );
        self.counts.panics.fetch_add(1, SeqCst);
    }
}
