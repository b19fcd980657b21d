//! What signals do.

use std::io;

use homeostat::{CancellationToken, Context, Manager, Unit};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::cli::say;

/// A function that waits for signals. Added first it is stopped last, and so hears the second signal.
pub(crate) fn unit(manager: &Manager, stop: &CancellationToken, abort: &CancellationToken) -> io::Result<Unit> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1])?;
    let (manager, stop, abort) = (manager.clone(), stop.clone(), abort.clone());
    Ok(Unit::function("signals", move |cx: &Context| {
        let handle = signals.handle();
        let _closed = cx.on_cancel(move || handle.close());
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
        Ok::<_, io::Error>(())
    }))
}
