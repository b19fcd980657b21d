//! What signals do.

use std::{io, thread};

use homeostat::{CancellationToken, Manager};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::cli::say;

/// Starts to collect signals, so that none ends the program before it can be handled.
pub(crate) fn collect() -> io::Result<Signals> {
    Signals::new([SIGINT, SIGTERM, SIGUSR1])
}

/// Calls `run` while another thread handles signals. The manager stops all its units at the first signal, so a unit could not
/// handle the second one.
pub(crate) fn handled_during<T>(
    mut signals: Signals,
    manager: &Manager,
    stop: &CancellationToken,
    abort: &CancellationToken,
    run: impl FnOnce() -> T,
) -> T {
    let handle = signals.handle();
    thread::scope(|scope| {
        scope.spawn(move || {
            for signal in signals.forever() {
                match signal {
                    SIGUSR1 => say(&mut io::stdout(), &manager.status().to_string()),
                    _ if stop.is_cancelled() => {
                        log::warn!("stopping at once");
                        abort.cancel();
                    }
                    _ => {
                        log::info!("stopping once the files are finished that are being copied");
                        stop.cancel();
                    }
                }
            }
        });
        let ended = run();
        handle.close();
        ended
    })
}
