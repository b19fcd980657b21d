//! Waits for a while, or for Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use homeostat::{BoxError, Context};

/// Waits for this long, or until Ctrl-C.
#[expect(clippy::print_stdout, reason = "the user must know how to end the program")]
pub(crate) fn wait_or_interrupt(cx: &Context, stay: Duration) -> Result<(), BoxError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted))?;
    println!("Running for {stay:?}; press Ctrl-C to stop.");
    let end = cx.clock().now() + stay;
    while cx.clock().now() < end && !interrupted.load(Ordering::Relaxed) {
        cx.sleep(Duration::from_millis(100))?;
    }
    Ok(())
}
