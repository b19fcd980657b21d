//! Lets a tour wait for the work of its controllers.

use std::time::Duration;

use homeostat::{BoxError, Context};

/// Waits until `is_so` returns true. Fails after half a minute.
pub(crate) fn until(cx: &Context, mut is_so: impl FnMut() -> Result<bool, BoxError>) -> Result<(), BoxError> {
    for _ in 0..3000 {
        if is_so()? {
            return Ok(());
        }
        cx.sleep(Duration::from_millis(10))?;
    }
    Err("it has taken more than half a minute".into())
}
