//! Where a controller's keys come from: pollers, and subscriptions to watches.

use std::sync::Arc;
use std::time::Duration;

use crate::crew::{Crew, StillRunning};
use crate::error::StartError;
use crate::poller::PollerHandle;
use crate::queue::{Key, WorkQueue};
use crate::wait::Gate;
use crate::watch::Subscription;

/// A source that runs.
pub(super) trait Source: Send {
    fn name(&self) -> &str;

    /// Open once its initial listing is in line.
    fn gate(&self) -> Arc<Gate>;

    /// Its thread.
    fn crew(&self) -> &Arc<Crew>;

    /// Names all keys that it knows. A poller knows none.
    fn resync(&self) {}

    /// `None`: it has no period.
    fn change_period(&self, _period: Duration) -> Option<Result<(), StartError>> {
        None
    }

    fn stop(&self);
    fn abort(&self);
    fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning>;
    fn detach(self: Box<Self>);
}

/// A source that is to be started, with the number it has in its controller.
pub(super) type Start<K> = Box<dyn FnOnce(&Target<'_, K>) -> Result<Box<dyn Source>, StartError> + Send>;

/// What a source feeds.
pub(super) struct Target<'a, K: Key> {
    pub(super) queue: &'a WorkQueue<K>,
    /// The name of the source.
    pub(super) name: String,
    pub(super) debounce: Option<(Duration, Duration)>,
}

impl Source for PollerHandle {
    fn name(&self) -> &str {
        PollerHandle::name(self)
    }

    fn gate(&self) -> Arc<Gate> {
        Arc::clone(self.listed())
    }

    fn crew(&self) -> &Arc<Crew> {
        self.crew()
    }

    fn change_period(&self, period: Duration) -> Option<Result<(), StartError>> {
        Some(PollerHandle::set_period(self, period))
    }

    fn stop(&self) {
        PollerHandle::stop(self);
    }

    fn abort(&self) {
        PollerHandle::abort(self);
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning> {
        PollerHandle::join_timeout(self, timeout)
    }

    fn detach(self: Box<Self>) {
        PollerHandle::detach(*self);
    }
}

impl Source for Subscription {
    fn name(&self) -> &str {
        Subscription::name(self)
    }

    fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.synced)
    }

    fn crew(&self) -> &Arc<Crew> {
        self.crew()
    }

    fn resync(&self) {
        Subscription::resync(self);
    }

    fn stop(&self) {
        Subscription::stop(self);
    }

    fn abort(&self) {
        Subscription::stop(self);
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), StillRunning> {
        Subscription::join_timeout(self, timeout)
    }

    fn detach(self: Box<Self>) {
        Subscription::detach(*self);
    }
}
