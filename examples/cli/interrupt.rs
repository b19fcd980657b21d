//! Waits for the end of a program, and reports it.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use homeostat::{BoxError, Context};

use crate::cli::say;

/// Returns the exit code of a program. Prints its error.
pub(crate) fn exit_code(ended: Result<(), BoxError>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&mut io::stderr(), &format!("error: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Waits for this long, or until Ctrl-C.
#[expect(clippy::print_stdout, reason = "the user must know how to end the program")]
pub(crate) fn wait_or_interrupt(cx: &Context, stay: Duration) -> Result<(), BoxError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted))?;
    println!("Going on for {stay:?}; Ctrl-C ends it.");
    let end = cx.clock().now() + stay;
    while cx.clock().now() < end && !interrupted.load(Ordering::Relaxed) {
        cx.sleep(Duration::from_millis(100))?;
    }
    Ok(())
}
