//! Operating system signals: a manager that runs until SIGINT or SIGTERM and prints its status at SIGUSR1, and a
//! component that reloads on SIGHUP.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::{Component, Manager};
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::end::End;
use crate::base::error::EndError;
use crate::base::thread::{Joiner, ThreadOptions, shielded, unless_it_panics};
use crate::base::time::Nanos;
use crate::base::wait::Monitor;
use crate::run::context::Context;
use crate::run::error::{BoxError, Chain};

impl Manager {
    /// Runs the manager until the process receives SIGINT (Ctrl-C) or SIGTERM. Feature `signals`, on Unix.
    ///
    /// Starts all components and blocks. The first signal stops the manager with its grace period, as
    /// [`stop`](Self::stop) does. Each further signal [aborts](Self::abort) it. Also returns after a component has
    /// failed or [`stop`](Self::stop) was called. Once this call has begun, these signals no longer end the process by
    /// themselves.
    ///
    /// On Linux, a SIGINT that was ignored before this call stays ignored. A shell starts a command that a script runs
    /// in the background (`cmd &`) like that. Such a program ends on SIGTERM only.
    ///
    /// Keys that wait at the stop do not run, and that is no error. To name such work, see
    /// [`ControllerHandle::queue`](crate::ControllerHandle::queue).
    ///
    /// SIGUSR1 writes the [status](Self::status) of the manager to standard error, as a table: `kill -USR1 <pid>`.
    ///
    /// A signal takes effect even if nobody reads standard error and its pipe is full: the table and the log lines
    /// about signals are written on another thread. All threads of a manager log, though. If your logger blocks, the
    /// components are stopped, but this call may not return.
    ///
    /// # Errors
    ///
    /// The errors of [`run`](Self::run). Returns [`EndError`] before the start if the signal handlers or their thread
    /// cannot be created.
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
    pub fn run_until_signal(&self) -> Result<(), EndError> {
        let failed = |error: io::Error| EndError::failed("signals", Arc::new(error.into()));
        let heard = [SIGINT, SIGTERM, SIGUSR1].into_iter().filter(|signal| *signal != SIGINT || !is_ignored(SIGINT));
        let mut signals = Signals::new(heard).map_err(failed)?;
        let (handle, stop, manager) = (signals.handle(), CancellationToken::new(), self.clone());
        let stopped = stop.clone();
        let watch = move || {
            let mut writer = None;
            for signal in signals.forever() {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
                let notice: SignalNotice = if signal == SIGUSR1 {
                    let manager = manager.clone();
                    Box::new(move || manager.print_status())
                } else if stopped.is_cancelled() {
                    manager.abort();
                    Box::new(move || log::warn!(signal = name; "{name} again: aborting what still runs"))
                } else {
                    stopped.cancel();
                    Box::new(move || log::info!(signal = name; "{name}: stopping"))
                };
                // The writer starts at the first signal.
                let (notices, _) = writer.get_or_insert_with(start_writer);
                // If the writer is stuck, further notices are lost.
                notices.change(|notices| {
                    if notices.waiting.len() < 8 {
                        notices.waiting.push_back(notice);
                    }
                });
            }
            if let Some((notices, end)) = writer {
                notices.change(|notices| notices.is_last = true);
                end();
            }
        };
        let watcher = ThreadOptions::default().spawn("signals".to_owned(), watch).map_err(failed)?;
        let outcome = self.run(&stop);
        handle.close();
        watcher.join();
        outcome
    }

    /// Writes the status to standard error.
    fn print_status(&self) {
        let status = self.status().to_string();
        if let Err(error) = io::stderr().lock().write_all(status.as_bytes()) {
            let manager = self.inner.settings.name.as_str();
            log::warn!(manager, error:%; "{manager}: the status cannot be written to standard error: {error}");
        }
    }
}

/// Writes a log line or a table about a signal. May block, and may panic: formatting a key is user code.
type SignalNotice = Box<dyn FnOnce() + Send>;

/// The notices that have not been written.
#[derive(Default)]
struct SignalNotices {
    waiting: VecDeque<SignalNotice>,
    /// Whether no other notice follows.
    is_last: bool,
}

/// Starts the thread that writes notices. Returns the notices, and a function that ends the thread after the last one.
/// If the system refuses the thread, notices are lost.
fn start_writer() -> (Arc<Monitor<SignalNotices>>, impl FnOnce()) {
    let clock = Clock::system();
    let (notices, ended) = (Monitor::of(clock.clone(), SignalNotices::default()), End::new(clock.clone()));
    let (received, part) = (Arc::clone(&notices), ended.part());
    let write = move || {
        let _part = part;
        let next = |notices: &mut SignalNotices| match notices.waiting.pop_front() {
            Some(notice) => Some(Some(notice)),
            None => notices.is_last.then_some(None),
        };
        while let Some(Some(notice)) = received.wait_for_some(Nanos::NEVER, next) {
            shielded("a notice about a signal", notice);
        }
    };
    let thread = ThreadOptions::default().spawn("signals-writer".to_owned(), write);
    let end = move || {
        // A stuck writer is left behind.
        if ended.wait_until_empty(clock.nanos().after(Duration::from_secs(1))) {
            thread.into_iter().for_each(Joiner::join);
        }
    };
    (notices, end)
}

/// Returns whether this process ignores a signal. False if the system does not say so.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

impl Component {
    /// Calls `reload` each time the process receives SIGHUP. Feature `signals`, on Unix.
    ///
    /// The calls never overlap, and run on the component's thread, `<name>-0`. Several signals during a call cause one
    /// more call. An error or a panic is logged and the component continues, so a mistake in a new configuration does
    /// not end the program. From this call on, SIGHUP no longer ends the process.
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
                shielded(component, || {
                    if let Err(error) = unless_it_panics(|| reload(cx).map_err(Into::into)) {
                        let error = Chain(&*error);
                        log::warn!(component, error:%; "{component}: the reload failed: {error}");
                    }
                });
            }
            Ok(())
        })
    }
}
