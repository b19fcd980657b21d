//! The end of a program that has shown a tour.

use std::time::Duration;

use homeostat::{BoxError, Context, Manager, Running};

use crate::interrupt::wait_or_interrupt;

/// Stops the manager. If the tour has succeeded, waits a while first. Returns the first error.
pub(crate) fn stop_after(
    done: Result<(), BoxError>,
    stay: Duration,
    manager: &Manager,
    running: Running<Manager>,
) -> Result<(), BoxError> {
    if done.is_ok() && !stay.is_zero() {
        wait_or_interrupt(&Context::detached(), stay)?;
    }
    manager.stop();
    running.join()?;
    done
}
