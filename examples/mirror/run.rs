//! The command line, the parts of the program, and its exit code.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser;
use homeostat::{CancellationToken, Component, Context, Exponential, Manager};
use homeostat_host::{Directory, FileState};

use crate::cli::{parse_duration, parse_period, say};
use crate::trees::Trees;
use crate::{dirs, files};

/// Keeps one directory equal to another.
#[derive(Debug, Parser)]
#[command(name = "mirror", version, args_override_self = true, after_help = SIGNALS)]
struct Args {
    /// The directory to copy
    source: PathBuf,
    /// The directory to keep equal to it; all other files in it are deleted
    target: PathBuf,
    /// How often both are listed
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = parse_period)]
    poll: Duration,
    /// How often every entry is checked, to find changes that the listings missed
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_period)]
    resync: Duration,
    /// End when both are equal
    #[arg(long)]
    once: bool,
    /// Stop after this time, like SIGTERM
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    run_for: Option<Duration>,
    /// The delay before the first retry; it doubles with each failure
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = parse_duration)]
    backoff: Duration,
    /// The longest such delay
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    backoff_cap: Duration,
    /// The limit of each copy, in bytes per second
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// How long current copies may take after a stop
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    grace: Duration,
}

const SIGNALS: &str = "\
Signals:
  INT, TERM  finish the files that are being copied, and stop; once more: stop at once
  USR1       print the status table";

pub(crate) fn main() -> ExitCode {
    let args = Args::parse();
    let filter = env_logger::Env::default().default_filter_or("warn,mirror=info");
    env_logger::Builder::from_env(filter).format_timestamp_millis().init();
    let fail = |error: &anyhow::Error, code| {
        say(&mut io::stderr(), &format!("error: {error:#}\n"));
        ExitCode::from(code)
    };
    match roots(&args.source, &args.target) {
        Ok((source, target)) => mirror(&args, source, target).unwrap_or_else(|error| fail(&error, 1)),
        Err(error) => fail(&error, 2),
    }
}

/// Returns both directories, and creates the target if it is missing. Refuses a directory inside
/// the other one.
fn roots(source: &Path, target: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let usable = |path: &Path, what: &str| {
        fs::read_dir(path).and_then(|_| path.canonicalize()).with_context(|| format!("{what} {}", path.display()))
    };
    let source = usable(source, "the source")?;
    // Check before the target is created: a wrong command line must leave nothing behind in the
    // source.
    let there = target.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    let above = there.canonicalize().with_context(|| format!("the target {}", target.display()))?;
    if above.starts_with(&source) {
        bail!("the target {} is in the source, or the source itself", target.display());
    }
    fs::create_dir_all(target).with_context(|| format!("the target {}", target.display()))?;
    let target = usable(target, "the target")?;
    if source.starts_with(&target) {
        bail!("the source {} is in the target, where it would be deleted", source.display());
    }
    Ok((source, target))
}

/// Mirrors until it is stopped.
fn mirror(args: &Args, source: PathBuf, target: PathBuf) -> anyhow::Result<ExitCode> {
    #[cfg(unix)]
    let signals = crate::signals::collect()?;
    let abort = CancellationToken::new();
    let stop = abort.child();
    let manager = Manager::builder().name("mirror").shutdown_grace(args.grace).abort_on(&abort).build()?;
    let listed = |name: &str, root: &Path| {
        manager.watch(name, || Directory::new(root).recursive().poll(args.poll).name(name).watch())
    };
    let (wanted, seen) = (listed("source", &source)?, listed("target", &target)?);
    let within = wanted.store().index(|path: &PathBuf, _: &FileState| path.parent().map(Path::to_owned));
    let trees =
        Trees { source, target, wanted: wanted.store(), seen: seen.store(), within, patience: args.backoff_cap };
    let retry = Exponential::new(args.backoff, args.backoff_cap);
    manager.add(dirs::controller(&wanted, &seen, &trees).retry(retry.clone()).resync(args.resync).build()?)?;
    manager.add(files::controller(&wanted, &seen, &trees, args.rate).retry(retry).resync(args.resync).build()?)?;

    let equal = Arc::new(AtomicBool::new(false));
    let (looked_at, now_equal, ended, once, poll) =
        (trees.clone(), Arc::clone(&equal), stop.clone(), args.once, args.poll);
    manager.add(Component::function("sync", move |cx: &Context| {
        let mut said = None;
        loop {
            let entries = looked_at.equal();
            now_equal.store(entries.is_some(), Ordering::Release);
            if let Some(count) = entries.as_ref().map(HashMap::len).filter(|_| entries != said) {
                log::info!("in sync, entries: {count}");
                said = entries;
                if once {
                    ended.cancel();
                }
            }
            if cx.sleep(poll).is_err() {
                return Ok::<_, Infallible>(());
            }
        }
    }))?;
    if let Some(length) = args.run_for {
        let stop = stop.clone();
        manager.add(Component::function("limit", move |cx: &Context| {
            if cx.sleep(length).is_ok() {
                stop.cancel();
            }
            Ok::<_, Infallible>(())
        }))?;
    }

    log::info!("{} is kept equal to {}", trees.target.display(), trees.source.display());
    #[cfg(unix)]
    let ended = crate::signals::handled_during(signals, &manager, &stop, &abort, || manager.run(&stop))
        .context("cannot start a thread for signals")?;
    #[cfg(not(unix))]
    let ended = manager.run(&stop);
    say(&mut io::stdout(), &manager.status().to_string());
    ended?;
    if abort.is_cancelled() {
        bail!("aborted");
    }
    if args.once && !equal.load(Ordering::Acquire) {
        bail!("stopped before all was equal");
    }
    Ok(ExitCode::SUCCESS)
}
