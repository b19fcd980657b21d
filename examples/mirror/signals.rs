//! The signals of the program.

use std::io;

use homeostat::{CancellationToken, Manager};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::cli::say;
use crate::signal_thread;

/// Begins to collect signals. From now on no signal ends the program by itself.
pub(crate) fn collect() -> io::Result<Signals> {
    Signals::new([SIGINT, SIGTERM, SIGUSR1])
}

/// Calls `run` while another thread handles signals. A component of the manager could not handle the second signal,
/// because the first one stops all components.
pub(crate) fn handled_during<T>(
    signals: Signals,
    manager: &Manager,
    stop: &CancellationToken,
    abort: &CancellationToken,
    run: impl FnOnce() -> T,
) -> io::Result<T> {
    let handle = |signal| match signal {
        SIGUSR1 => say(&mut io::stdout(), &manager.status().to_string()),
        _ if stop.is_cancelled() => {
            log::warn!("stopping at once");
            abort.cancel();
        }
        _ => {
            log::info!("stopping after the current copies");
            stop.cancel();
        }
    };
    signal_thread::handle_during(signals, handle, run)
}
