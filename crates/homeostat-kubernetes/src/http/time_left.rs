//! The remaining time of connection attempts. Proxy, TCP and TLS share it.

use homeostat::base::Clock;
use homeostat::rt::Nanos;
use ureq::Error;
use ureq::unversioned::transport::time::Instant;
use ureq::unversioned::transport::{ConnectionDetails, NextTimeout};

/// Returns the remaining time of a connection attempt.
///
/// # Errors
///
/// Returns [`Error::Timeout`] if no time remains.
pub(super) fn time_left(details: &ConnectionDetails<'_>) -> Result<NextTimeout, Error> {
    check_time_left(remaining_at((details.current_time)(), details.now, details.timeout))
}

/// Returns how much of a timeout that began at `began` is left at `now`.
pub(super) fn remaining_at(now: Instant, began: Instant, mut timeout: NextTimeout) -> NextTimeout {
    use ureq::unversioned::transport::time::{Duration as Limit, Instant::Exact};

    if let (Limit::Exact(limit), Exact(began), Exact(now)) = (timeout.after, began, now) {
        timeout.after = limit.saturating_sub(now.saturating_duration_since(began)).into();
    }
    timeout
}

/// Returns the timeout if it has not passed. A socket would treat a timeout of zero as no timeout.
///
/// # Errors
///
/// Returns [`Error::Timeout`] if no time remains.
pub(super) fn check_time_left(timeout: NextTimeout) -> Result<NextTimeout, Error> {
    if timeout.after.is_zero() { Err(Error::Timeout(timeout.reason)) } else { Ok(timeout) }
}

/// Returns the time at which a timeout that begins now has passed.
pub(super) fn deadline(clock: &Clock, timeout: NextTimeout) -> Nanos {
    timeout.not_zero().map_or(Nanos::NEVER, |limit| clock.nanos().after(*limit))
}
