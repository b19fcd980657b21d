//! From the command line to the exit code: puts the parts together, and turns signals into what the supervisor does.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::Parser;
use crossbeam_channel::{Receiver, Sender, unbounded};
use homeostat::{Clock, Context, Exponential, Poller, WorkQueue, Workers};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::cli::{parse_duration, say};
use crate::config::Config;
use crate::supervisor::{Name, Supervisor};
use crate::unit::Rules;
use crate::watch::FileWatch;

/// Runs the services that a TOML file names, and keeps them as the file says.
#[derive(Debug, Parser)]
#[command(name = "supervisor", args_override_self = true, after_help = SIGNALS)]
struct Args {
    /// The file of services
    file: PathBuf,
    /// Only check the file
    #[arg(long)]
    check: bool,
    /// How often the file is looked at; an edit counts once two looks have found the same
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = parse_duration)]
    poll: Duration,
    /// The first delay before a restart; it doubles with each run that was not stable
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = parse_duration)]
    backoff: Duration,
    /// The longest delay before a restart
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    backoff_cap: Duration,
    /// A run this long is stable: it is followed by the next one at once, and the backoff begins anew
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    stable: Duration,
    /// How long stopping everything may take before all that is left is killed
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    grace: Duration,
    /// Stop everything after this time, as SIGTERM does
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    run_for: Option<Duration>,
}

const SIGNALS: &str = "\
Signals:
  INT, TERM, QUIT  stop everything, the last of the file first; once more: kill everything
  HUP              read the file now
  USR1             print the status table";

/// What the main thread waits for.
#[derive(Debug)]
pub(crate) enum Event {
    Signal(i32),
    /// Everything was told to stop, and no process is left.
    Quiet,
}

/// How long the system may take to end what has been killed.
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
        let count = config.services.len();
        say(&mut io::stdout(), &format!("{}: {count} services, no fault found\n", args.file.display()));
        return ExitCode::SUCCESS;
    }
    serve(&args, watch, config).unwrap_or_else(|error| {
        say(&mut io::stderr(), &format!("error: {error:#}\n"));
        ExitCode::FAILURE
    })
}

/// Supervises until everything has been stopped.
fn serve(args: &Args, watch: FileWatch, config: Config) -> anyhow::Result<ExitCode> {
    let (events, received) = unbounded();
    let signals = Signals::new([SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1])?;
    let signals_handle = signals.handle();
    let forwarder = forward(signals, events.clone())?;
    // Whoever started this program may have had SIGCHLD ignored, and then nobody could wait for a child.
    signal_hook::flag::register(SIGCHLD, Arc::default())?;

    let queue = WorkQueue::new();
    let backoff = Exponential::new(args.backoff, args.backoff_cap);
    let rules = Rules { backoff: backoff.clone(), stable: args.stable };
    let supervisor = Arc::new(Supervisor::new(queue.clone(), events, rules));
    let reconciler = Arc::clone(&supervisor);
    let mut workers = Workers::new(move |_cx: &Context, name: &Name| reconciler.reconcile(name))
        .name("supervisor")
        .threads(4)
        .retry(backoff)
        .start(&queue)?;
    let whole = Arc::new(AtomicBool::new(false));
    let mut poller = Poller::new(args.poll, look(watch, Arc::clone(&supervisor), Arc::clone(&whole))).start(&queue)?;
    supervisor.apply(config);

    let reread = || {
        whole.store(true, Ordering::Release);
        poller.trigger();
    };
    let all_gone = attend(&supervisor, &received, args, reread);
    poller.stop();
    workers.stop();
    // Neither can be made to return from a read of the file or a start that hangs; the end of the program ends it.
    if let Err(error) = workers.join_timeout(DEATH) {
        log::error!("{error}");
        workers.detach();
    }
    if let Err(error) = poller.join_timeout(DEATH) {
        log::error!("{error}");
        poller.detach();
    }
    signals_handle.close();
    // The forwarder has nothing to panic about; if it did, the exit code should still tell of the services.
    let _ = forwarder.join();
    say(&mut io::stdout(), &supervisor.table());
    Ok(if all_gone { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The poller's function: looks at the file, and lists what is out of step with it.
fn look(
    mut watch: FileWatch,
    supervisor: Arc<Supervisor>,
    whole: Arc<AtomicBool>,
) -> impl FnMut(&Context) -> Result<Vec<Name>, Infallible> + Send + 'static {
    move |_cx| {
        match watch.look(whole.swap(false, Ordering::AcqRel)) {
            Some(Ok(config)) => supervisor.apply(config),
            Some(Err(error)) => log::error!("{error} (the services go on as before)"),
            None => {}
        }
        Ok(supervisor.out_of_step())
    }
}

/// Where the main thread stands; what it waits for has a time limit in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Running,
    Stopping,
    Killing,
}

/// Does what signals ask for until no process is left. False: some could not be ended.
fn attend(supervisor: &Supervisor, events: &Receiver<Event>, args: &Args, reread: impl Fn()) -> bool {
    let clock = Clock::system();
    let mut mode = Mode::Running;
    let mut limit = args.run_for.map(|length| clock.now() + length);
    loop {
        let event = match limit {
            Some(limit) => events.recv_deadline(limit).ok(),
            None => events.recv().ok(),
        };
        match (event, mode) {
            (Some(Event::Quiet), _) => return true,
            (Some(Event::Signal(SIGUSR1)), _) => say(&mut io::stdout(), &supervisor.table()),
            (Some(Event::Signal(SIGHUP)), _) => reread(),
            (Some(Event::Signal(_)) | None, Mode::Running) => {
                log::info!("stopping everything");
                mode = Mode::Stopping;
                limit = Some(clock.now() + args.grace);
                supervisor.stop_in_order();
            }
            (Some(Event::Signal(_)) | None, Mode::Stopping) => {
                log::warn!("killing everything");
                mode = Mode::Killing;
                limit = Some(clock.now() + DEATH);
                supervisor.stop_at_once();
            }
            (Some(Event::Signal(_)), Mode::Killing) => {}
            (None, Mode::Killing) => {
                log::error!("still alive: {}", supervisor.alive().join(", "));
                return false;
            }
        }
    }
}

/// A thread that turns signals into events.
fn forward(mut signals: Signals, events: Sender<Event>) -> io::Result<JoinHandle<()>> {
    #[expect(clippy::disallowed_methods, reason = "the library starts its own threads only; this one is the example's")]
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            // The main thread has gone: nobody is left to act on it.
            if events.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    })
}
