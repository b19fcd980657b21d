//! The times of a lease, and the relations that must hold between them.

use std::time::Duration;

use homeostat::base::StartError;

/// The times of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTiming {
    /// The time after which candidates take over a lease that they have seen unchanged.
    pub(crate) duration: Duration,
    /// The time after which a leader that could not renew its lease no longer leads.
    pub(crate) renew_deadline: Duration,
    /// The time between two renewals.
    pub(crate) retry: Duration,
    /// The time before the deadline at which work is cancelled.
    pub(crate) margin: Duration,
    /// The time limit of one call.
    pub(crate) call: Duration,
}

impl Default for LeaseTiming {
    /// The defaults of client-go for the first three.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
            margin: Duration::from_secs(2),
            call: Duration::from_millis(2500),
        }
    }
}

impl LeaseTiming {
    /// The greatest share by which periods differ at random.
    pub(crate) const JITTER: f64 = 0.2;

    /// Returns the time between two reads of a candidate: less than half a period, so that a failover takes little more
    /// than a lease.
    pub(crate) fn poll(&self) -> Duration {
        self.retry.mul_f64(0.4)
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
