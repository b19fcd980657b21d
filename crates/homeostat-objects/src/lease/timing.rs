//! The times of a lease, and the relations that must hold between them.

use std::sync::Arc;
use std::time::Duration;

use crate::Client;
use homeostat::base::StartError;

/// The times of a lease, for a [`LeaseElector`](super::LeaseElector) or for [`Members`](crate::Members).
///
/// # Examples
///
/// ```
/// use homeostat_objects::{LeaseElector, LeaseTiming, MemoryClient};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// // A failover within some four seconds. The other times keep their proportion to the duration. The stop margin is
/// // then 0.4 s, so the manager needs `Manager::builder().abort_grace(Duration::from_millis(400))`.
/// let quick = LeaseTiming::new(Duration::from_secs(3));
/// let elector = LeaseElector::builder(Arc::new(MemoryClient::new()), "default", "backup").timing(quick).build()?;
///
/// let wrong = quick.renew_deadline(Duration::from_secs(20));
/// let elector = LeaseElector::builder(Arc::new(MemoryClient::new()), "default", "backup").timing(wrong);
/// let error = elector.build().unwrap_err();
/// assert_eq!(error.to_string(), "renew_deadline is 20s, but must be shorter than the lease duration");
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct LeaseTiming {
    pub(crate) duration: Duration,
    pub(crate) renew_deadline: Duration,
    pub(crate) retry: Duration,
    pub(crate) margin: Duration,
    pub(crate) call: Duration,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self::new(Duration::from_secs(15))
    }
}

impl LeaseTiming {
    /// The greatest share by which periods differ at random.
    pub(crate) const JITTER: f64 = 0.2;

    /// Returns the times of a lease with this duration, in whole seconds. Others take over a lease that they have seen
    /// unchanged for this time.
    ///
    /// The default duration is 15 s. The other times are shares of the duration: by default 10 s, 2 s, 2 s and 2.5 s,
    /// of which client-go has the first two.
    pub fn new(duration: Duration) -> Self {
        let part = duration / 15;
        Self { duration, renew_deadline: part * 10, retry: part * 2, margin: part * 2, call: duration / 6 }
    }

    /// Sets the time after which a leader or member that cannot renew its lease does no more work. Must be shorter than
    /// the lease duration: clocks may differ in speed by up to the ratio of the two. Default: two thirds of the
    /// duration.
    pub fn renew_deadline(self, deadline: Duration) -> Self {
        Self { renew_deadline: deadline, ..self }
    }

    /// Sets the time between two renewals. Jitter shortens it by up to a fifth. Candidates and members read more than
    /// twice in this time. Default: two fifteenths of the duration.
    pub fn retry_period(self, period: Duration) -> Self {
        Self { retry: period, ..self }
    }

    /// Sets the time before the deadline at which work is cancelled. For an elector, it must be at least the [abort
    /// grace](homeostat::manager::ManagerBuilder::abort_grace) of the manager. Default: two fifteenths of the duration;
    /// with the manager's default of 1 s, the duration must be at least 8 s.
    pub fn stop_margin(self, margin: Duration) -> Self {
        Self { margin, ..self }
    }

    /// Sets the time limit of one call, if the client [supports time limits](Client::with_timeout). Default: a sixth
    /// of the duration.
    pub fn call_timeout(self, timeout: Duration) -> Self {
        Self { call: timeout, ..self }
    }

    /// Returns the time between two reads of a candidate: less than half a period, so that a failover takes little more
    /// than a lease.
    pub(crate) fn poll(&self) -> Duration {
        self.retry.mul_f64(0.4)
    }

    /// Checks the times, and returns a client whose calls end in time.
    pub(crate) fn apply_to(&self, client: Arc<dyn Client>) -> Result<Arc<dyn Client>, StartError> {
        self.check()?;
        Ok(client.with_timeout(self.call).unwrap_or(client))
    }

    /// Checks the relations between the times.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let Self { duration, renew_deadline, retry, margin, call } = self;
        if duration.subsec_nanos() != 0 || duration.as_secs() == 0 || i32::try_from(duration.as_secs()).is_err() {
            return Err(StartError::setting("lease_duration", duration, "whole seconds, at least one"));
        }
        if renew_deadline >= duration {
            return Err(StartError::setting("renew_deadline", renew_deadline, "shorter than the lease duration"));
        }
        if retry.is_zero() {
            return Err(StartError::setting("retry_period", retry, "longer than zero"));
        }
        let work = renew_deadline.saturating_sub(*margin);
        // The first comparison is without the jitter, because the product may overflow.
        if *retry >= work || retry.mul_f64(1.0 + Self::JITTER) >= work {
            let rule = "shorter than the renew deadline minus the stop margin, even with 20 % jitter";
            return Err(StartError::setting("retry_period", retry, rule));
        }
        if call.is_zero() || *call >= work {
            let rule = "longer than zero, and shorter than the renew deadline minus the stop margin";
            return Err(StartError::setting("call_timeout", call, rule));
        }
        Ok(())
    }
}
