//! Operating system signals: a manager that runs until SIGINT or SIGTERM and prints its status at SIGUSR1, and a component that
//! reloads on SIGHUP.

use std::io::{self, Write};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::{Component, Manager, ManagerError};
use crate::base::cancel::CancellationToken;
use crate::base::thread::{ThreadOptions, shielded};
use crate::run::context::Context;
use crate::run::error::{BoxError, Chain};

impl Manager {
    /// Runs the manager until the process receives SIGINT (Ctrl-C) or SIGTERM. Feature `signals`, on Unix.
    ///
    /// Starts all components and blocks. The first signal stops the manager with its grace period, as [`stop`](Self::stop) does.
    /// Each further signal [aborts](Self::abort) it. Also returns after a component has failed or [`stop`](Self::stop) was
    /// called. Once this call has begun, these signals no longer end the process by themselves.
    ///
    /// SIGUSR1 writes the [status](Self::status) of the manager to standard error, as a table: `kill -USR1 <pid>`.
    ///
    /// # Errors
    ///
    /// The errors of [`run`](Self::run). Returns [`ManagerError`] before the start if the signal handlers or their thread cannot
    /// be created.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use homeostat::{Component, Context, Manager};
    /// use std::time::Duration;
    ///
    /// let manager = Manager::builder().build()?;
    /// manager.add(Component::function("beat", |cx: &Context| {
    ///     while cx.sleep(Duration::from_secs(1)).is_ok() {
    ///         println!("alive");
    ///     }
    ///     Ok::<_, std::io::Error>(())
    /// }))?;
    /// manager.run_until_signal()?;
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    #[doc(alias = "SetupSignalHandler")]
    #[doc(alias = "ctrl_c")]
    pub fn run_until_signal(&self) -> Result<(), ManagerError> {
        let failed = |error: io::Error| ManagerError::of("signals", error);
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1]).map_err(failed)?;
        let (handle, stop, manager) = (signals.handle(), CancellationToken::new(), self.clone());
        let stopped = stop.clone();
        let watch = move || {
            for signal in signals.forever() {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
                if signal == SIGUSR1 {
                    manager.print_status();
                } else if stopped.is_cancelled() {
                    log::warn!(signal = name; "{name} again: aborting what still runs");
                    manager.abort();
                } else {
                    log::info!(signal = name; "{name}: stopping");
                    stopped.cancel();
                }
            }
        };
        let thread = ThreadOptions::default().spawn("signals".to_owned(), watch).map_err(failed)?;
        let ended = self.run(&stop);
        handle.close();
        thread.join();
        ended
    }

    /// Writes the status to standard error. Formatting a key is user code.
    fn print_status(&self) {
        shielded("the status of a manager", || {
            let status = self.status().to_string();
            if let Err(error) = io::stderr().lock().write_all(status.as_bytes()) {
                let manager = self.inner.name.as_str();
                log::warn!(manager, error:%; "{manager}: the status cannot be written to standard error: {error}");
            }
        });
    }
}

impl Component {
    /// Calls `reload` each time the process receives SIGHUP. Feature `signals`, on Unix.
    ///
    /// The calls never overlap, and run on the component's thread, `<name>-0`. Several signals during a call cause one more call.
    /// An error is logged and the component continues, so a mistake in a new configuration does not end the program. From this
    /// call on, SIGHUP no longer ends the process.
    ///
    /// If the signal handler cannot be installed, the component fails when it starts, and so the manager fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat::{BoxError, Component, Manager};
    ///
    /// let manager = Manager::builder().build()?;
    /// manager.add(Component::on_reload("configuration", |_cx| {
    ///     let text = std::fs::read_to_string("/etc/appliance.toml")?;
    ///     println!("{} bytes of new configuration", text.len());
    ///     Ok::<_, BoxError>(())
    /// }))?;
    /// # Ok::<_, BoxError>(())
    /// ```
    #[doc(alias = "SIGHUP")]
    pub fn on_reload<E: Into<BoxError>>(
        name: impl Into<String>,
        mut reload: impl FnMut(&Context) -> Result<(), E> + Send + 'static,
    ) -> Self {
        let name = name.into();
        let component = name.clone();
        let signals = Signals::new([SIGHUP]);
        Self::function(name, move |cx| -> io::Result<()> {
            let component = component.as_str();
            let mut signals = signals?;
            let handle = signals.handle();
            let _close = cx.on_cancel(move || handle.close());
            for _ in signals.forever() {
                log::info!(component; "{component}: SIGHUP: reloading");
                if let Err(error) = reload(cx) {
                    let error = error.into();
                    let error = Chain(&*error);
                    log::warn!(component, error:%; "{component}: the reload failed: {error}");
                }
            }
            Ok(())
        })
    }
}
