//! The command line, the parts of the program, its signals and its exit code.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use crossbeam_channel::{Receiver, Sender, unbounded};
use homeostat::{CancellationToken, Clock, Component, Context, Controller, Exponential, Manager};
use homeostat_host::CrashLoopGuard;
use parking_lot::Mutex;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::check;
use crate::cli::{parse_duration, parse_period, say};
use crate::config::Config;
use crate::signal_thread;
use crate::supervisor::{Name, SERVICES, Supervisor};
use crate::unit::Rules;
use crate::watch::FileWatch;

/// Runs the services that a TOML file names, and keeps them as the file describes.
#[derive(Debug, Parser)]
#[command(name = "supervisor", version, args_override_self = true, after_help = SIGNALS)]
struct Args {
    /// The file of services
    file: PathBuf,
    /// Only check the file, and that its commands and directories exist
    #[arg(long)]
    check: bool,
    /// How often the file is read; an edit counts once two reads in a row have found the same content
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = parse_period)]
    poll: Duration,
    /// The first delay before a restart; it doubles with each run that was not stable
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = parse_duration)]
    backoff: Duration,
    /// The longest delay before a restart
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    backoff_cap: Duration,
    /// A run of at least this length is stable: the next run follows at once, and the backoff starts again
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    stable: Duration,
    /// How long stopping everything may take before all remaining processes are killed
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    grace: Duration,
    /// Stop everything after this time, like SIGTERM
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    run_for: Option<Duration>,
}

const SIGNALS: &str = "\
Signals:
  INT, TERM, QUIT  stop everything, the last of the file first; once more: kill everything
  HUP              read the file now
  USR1             print the status table";

/// An event while all services are being stopped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A second signal arrived.
    Hurry,
    /// No process remains.
    Quiet,
}

/// The longest wait until killed processes have ended.
const DEATH: Duration = Duration::from_secs(5);

pub(crate) fn main() -> ExitCode {
    let args = Args::parse();
    let filter = env_logger::Env::default().default_filter_or("warn,supervisor=info");
    env_logger::Builder::from_env(filter).format_timestamp_millis().init();
    let (watch, config) = match FileWatch::open(&args.file) {
        Ok(opened) => opened,
        Err(error) => {
            say(&mut io::stderr(), &format!("error: {error}\n"));
            return ExitCode::from(2);
        }
    };
    if args.check {
        return report(&args.file, &config);
    }
    serve(&args, watch, config).unwrap_or_else(|error| {
        say(&mut io::stderr(), &format!("error: {error:#}\n"));
        ExitCode::FAILURE
    })
}

/// Reports missing commands and directories of a well-formed file.
fn report(file: &Path, config: &Config) -> ExitCode {
    let faults = check::faults(config);
    for fault in &faults {
        say(&mut io::stderr(), &format!("error: {}: {fault}\n", file.display()));
    }
    if !faults.is_empty() {
        return ExitCode::from(2);
    }
    say(&mut io::stdout(), &format!("{}: {} services, no fault found\n", file.display(), config.services.len()));
    ExitCode::SUCCESS
}

/// Supervises until everything has been stopped.
fn serve(args: &Args, watch: FileWatch, config: Config) -> anyhow::Result<ExitCode> {
    // The parent of this program may have ignored SIGCHLD. Then no child could be waited for.
    signal_hook::flag::register(SIGCHLD, Arc::default())?;
    // From now on no signal ends the program before it can be handled.
    let signals = Signals::new([SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1])?;
    // `stop` stops the services. `stopped` stops the manager once no service remains.
    let (stop, stopped) = (CancellationToken::new(), CancellationToken::new());
    // The manager waits longer than the services may take.
    let manager = Manager::builder().name("supervisor").shutdown_grace(args.grace + 2 * DEATH).build()?;
    let (events, received) = unbounded();
    let backoff = Exponential::new(args.backoff, args.backoff_cap);
    // Without jitter, so that the log shows the delays as they are on the command line.
    let guard = CrashLoopGuard::new(args.stable, backoff.clone().jitter(0.0));
    let supervisor = Arc::new(Supervisor::new(manager.clone(), events.clone(), guard));
    let file = Arc::new(Mutex::new(watch));

    let polled = Arc::clone(&file);
    let (reconciler, listed) = (Arc::clone(&supervisor), Arc::clone(&supervisor));
    let services = Controller::builder(SERVICES, move |_cx: &Context, name: &Name| reconciler.reconcile(name))
        .max_concurrent_reconciles(4)
        .retry(Rules { backoff })
        .poll(args.poll, move |_cx| {
            read(&polled, &listed, false);
            Ok::<_, Infallible>(listed.out_of_step())
        });
    manager.add(services.build()?)?;
    // Apply before the first poll. Otherwise a service that the poll found first, and that failed, would be reconciled
    // once more.
    supervisor.apply(config);
    let (ending, stopping, ended) = (Arc::clone(&supervisor), stop.clone(), stopped.clone());
    let (run_for, grace) = (args.run_for.unwrap_or(Duration::MAX), args.grace);
    manager.add(Component::function("end", move |cx: &Context| {
        // The manager cancels this context only after a failure.
        let failed = stopping.clone();
        let _woken = cx.on_cancel(move || failed.cancel());
        let _ = Context::detached_with(Clock::system(), stopping.clone()).sleep(run_for);
        stopping.cancel();
        end(cx, &ending, &received, grace)?;
        ended.cancel();
        Ok::<_, String>(())
    }))?;

    let ended = with_signals(signals, &supervisor, &file, &events, &stop, || manager.run(&stopped))
        .context("cannot start a thread for signals")?;
    say(&mut io::stdout(), &supervisor.table());
    ended?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the file, and applies it.
fn read(file: &Mutex<FileWatch>, supervisor: &Supervisor, whole: bool) {
    // Hold the lock until the end, so that the newest content is applied last.
    let mut file = file.lock();
    match file.look(whole) {
        Some(Ok(config)) => supervisor.apply(config),
        Some(Err(error)) => log::error!("{error} (the services continue unchanged)"),
        None => {}
    }
}

/// Stops all services, and returns when no process remains.
///
/// # Errors
///
/// The names of services that survived SIGKILL.
fn end(cx: &Context, supervisor: &Supervisor, events: &Receiver<Event>, grace: Duration) -> Result<(), String> {
    if cx.is_cancelled() {
        // The controller has stopped, so no service can be stopped normally.
        log::warn!("killing everything");
        supervisor.stop_at_once();
        return Ok(());
    }
    log::info!("stopping everything");
    supervisor.stop_in_order();
    if events.recv_timeout(grace) == Ok(Event::Quiet) {
        return Ok(());
    }
    log::warn!("killing everything");
    supervisor.stop_at_once();
    let deadline = Clock::system().now() + DEATH;
    while let Ok(event) = events.recv_deadline(deadline) {
        if event == Event::Quiet {
            return Ok(());
        }
    }
    Err(format!("still alive: {}", supervisor.alive().join(", ")))
}

/// Calls `run` while another thread handles signals. A component of the manager could not do this, because the manager
/// stops all components at once.
fn with_signals<T>(
    signals: Signals,
    supervisor: &Supervisor,
    file: &Mutex<FileWatch>,
    events: &Sender<Event>,
    stop: &CancellationToken,
    run: impl FnOnce() -> T,
) -> io::Result<T> {
    let handle = |signal| match signal {
        SIGUSR1 => say(&mut io::stdout(), &supervisor.table()),
        SIGHUP => read(file, supervisor, true),
        // The receiver is gone only if no process remains.
        _ if stop.is_cancelled() => drop(events.send(Event::Hurry)),
        _ => stop.cancel(),
    };
    signal_thread::handle_during(signals, handle, run)
}
