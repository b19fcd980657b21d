//! What signals do.

use std::{io, thread};

use homeostat::{CancellationToken, Manager};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::cli::say;

/// Calls `run` while another thread handles signals. That thread is no unit of the manager, because all units stop at the first
/// signal, and the second one has to be heard.
pub(crate) fn handled_during<T>(
    manager: &Manager,
    stop: &CancellationToken,
    abort: &CancellationToken,
    run: impl FnOnce() -> T,
) -> io::Result<T> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1])?;
    let handle = signals.handle();
    Ok(thread::scope(|scope| {
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
    }))
}
