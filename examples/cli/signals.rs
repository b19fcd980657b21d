//! A thread that handles signals while the program runs.

use std::io;
use std::thread;

use signal_hook::iterator::{Handle, Signals};

/// Ends the iteration over signals when it is dropped.
struct Closing(Handle);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Calls `run` while another thread calls `handle` with each signal. The other thread ends with `run`, even if `run`
/// panics.
///
/// # Errors
///
/// If the system starts no thread. Then `run` is not called.
pub(crate) fn handle_during<T>(
    mut signals: Signals,
    mut handle: impl FnMut(i32) + Send,
    run: impl FnOnce() -> T,
) -> io::Result<T> {
    let closing = Closing(signals.handle());
    thread::scope(|scope| {
        // Dropped before the scope waits for the thread.
        let _closing = closing;
        thread::Builder::new().name("signals".to_owned()).spawn_scoped(scope, move || {
            for signal in signals.forever() {
                handle(signal);
            }
        })?;
        Ok(run())
    })
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use signal_hook::consts::SIGUSR1;
    use signal_hook::iterator::Signals;

    use super::handle_during;

    #[test]
    fn a_panic_ends_the_thread_of_signals_too() {
        let signals = Signals::new([SIGUSR1]).unwrap();
        let run = || -> () { panic!("out of luck") };
        catch_unwind(AssertUnwindSafe(|| handle_during(signals, |_| {}, run))).unwrap_err();
    }
}
