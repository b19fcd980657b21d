//! The handle of a source: a poller or a watch.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::source_state::SourceState;
pub use super::source_state::SourceStatus;
use crate::base::error::StartError;
use crate::base::wait::Latch;

/// A handle to check the health of a source, to trigger a listing and to change the period. Cheap to clone. It neither
/// keeps the source running nor stops it, and stays valid after the source has been given to a
/// [`Manager`](crate::Manager) or has ended.
///
/// The handle of a running [`Poller`](crate::Poller) derefs to it. [`Watch::source`](crate::Watch::source),
/// [`ControllerHandle::sources`](crate::ControllerHandle::sources) and [`Manager::source`](crate::Manager::source)
/// return it too.
///
/// # Examples
///
/// ```
/// use homeostat::{Context, Manager, Poller};
/// use std::time::Duration;
///
/// let list = |_cx: &Context| Ok::<_, std::io::Error>([("disk-1", 10)]);
/// let disks = Poller::new(Duration::from_secs(3600), list).name("disks").watch()?;
/// let source = disks.source();
/// let manager = Manager::builder().build()?;
/// manager.add(disks)?;
/// assert!(source.trigger());
/// assert_eq!(manager.source("disks")?.status().failures, 0);
/// # Ok::<_, homeostat::StartError>(())
/// ```
#[derive(Clone)]
pub struct SourceHandle {
    name: Arc<str>,
    /// Set once the first listing is complete.
    synced: Arc<Latch>,
    pub(super) state: Arc<SourceState>,
}

impl SourceHandle {
    pub(crate) fn new(state: &Arc<SourceState>, synced: &Arc<Latch>) -> Self {
        Self { name: state.name().into(), synced: Arc::clone(synced), state: Arc::clone(state) }
    }

    /// Returns a handle of the same source with another name.
    pub(crate) fn named(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Returns a handle of the same source that counts as synced once `synced` is set.
    pub(crate) fn synced_by(self, synced: &Arc<Latch>) -> Self {
        Self { synced: Arc::clone(synced), ..self }
    }

    pub(crate) fn synced(&self) -> &Arc<Latch> {
        &self.synced
    }

    /// Returns the name of the source.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the current health.
    #[must_use]
    pub fn status(&self) -> SourceStatus {
        self.state.status(&self.name, self.synced.is_open())
    }

    /// Starts a listing now, independent of the schedule. Any number of calls during a listing cause one more. Returns
    /// whether the source can list on demand: pollers and watches of listings and directories can. A source that has
    /// ended ignores the call.
    ///
    /// ```
    /// use homeostat::{Poller, WorkQueue};
    /// use std::{convert::Infallible, time::Duration};
    ///
    /// let queue = WorkQueue::new();
    /// let hourly = Poller::new(Duration::from_secs(3600), |_cx| Ok::<_, Infallible>(["vm-1"])).first_after_period();
    /// let poller = hourly.start(&queue)?;
    /// poller.trigger();
    /// assert_eq!(*queue.dequeue()?, "vm-1");
    /// poller.shutdown(Duration::from_secs(1))?;
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    #[expect(clippy::must_use_candidate, reason = "it is called for what it does")]
    pub fn trigger(&self) -> bool {
        self.state.poller.get().inspect(|poller| poller.trigger()).is_some()
    }

    /// Sets the period. The next poll begins one `period` after this call. A poll that is already due is not postponed,
    /// and a running poll keeps its deadline. Returns at once; does nothing once the source has ended.
    ///
    /// # Errors
    ///
    /// If the period is zero, or if the source does not poll. The old period stays in force.
    ///
    /// ```
    /// use homeostat::{ManualClock, Poller, WorkQueue};
    /// use std::{convert::Infallible, time::Duration};
    ///
    /// let clock = ManualClock::new();
    /// let queue = WorkQueue::builder().clock(clock.clock()).build();
    /// let hourly = Poller::new(Duration::from_secs(3600), |_cx| Ok::<_, Infallible>(["vm-1"])).first_after_period();
    /// let poller = hourly.clock(clock.clock()).start(&queue)?;
    /// poller.set_period(Duration::from_secs(10))?;
    /// clock.advance(Duration::from_secs(10));
    /// assert_eq!(*queue.dequeue()?, "vm-1");
    /// poller.shutdown(Duration::ZERO)?;
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn set_period(&self, period: Duration) -> Result<(), StartError> {
        StartError::check_time("period", period)?;
        let poller = self.state.poller.get();
        let poller = poller.ok_or_else(|| StartError::named("source", &self.name, "has no period"))?;
        poller.set_period(period);
        Ok(())
    }
}

impl fmt::Debug for SourceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceHandle").field("status", &self.status()).finish_non_exhaustive()
    }
}
