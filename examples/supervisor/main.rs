//! A small process supervisor. It runs the services in a TOML file and keeps them as the file describes.
//!
//! ```sh
//! cargo run --example supervisor -- examples/services.toml
//! ```
//!
//! Try this while it runs:
//!
//! - Edit the file. New services start, removed services stop. If the command, arguments, environment or directory of a
//!   service changed, it is stopped and started again; a running process adopts all other settings. A broken file is
//!   reported in one log line, and the services continue.
//! - Kill a service. After a stable run it restarts at once, otherwise after a backoff that doubles each time.
//! - Send the supervisor SIGUSR1 for its status tables, and SIGINT (Ctrl-C) to stop it.
//!
//! Each service leads its own process group. Signals go to the whole group, and the group is killed once its leader has
//! ended. Each line of output is printed after the name of its service. Standard input is empty.
//!
//! The supervisor is not an init: as the first process of a container, it needs an init above it to reap abandoned
//! processes.
//!
//! | signal | effect |
//! |---|---|
//! | SIGINT, SIGTERM, SIGQUIT | stop all services, starting with the last in the file, and exit with 0; a second signal kills at once |
//! | SIGHUP | read the file now |
//! | SIGUSR1 | print the status tables to standard output |
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | all services were stopped |
//! | 1 | a process survived SIGKILL, or the supervisor failed |
//! | 2 | the file or the command line was invalid at the start |
//!
//! # After `kill -9` of the supervisor
//!
//! The services continue without a supervisor. A new supervisor does not know them, and would start each of them a
//! second time. On Linux, if the supervisor was process 1234, this command ends all processes that it left, in any
//! group:
//!
//! ```sh
//! while pids=$(grep -slzx HOMEOSTAT_SUPERVISOR=1234 /proc/[0-9]*/environ | cut -d/ -f3 | grep .); do kill $pids; sleep 0.1; done
//! ```
//!
//! Every service has the variables `HOMEOSTAT_SUPERVISOR` (the supervisor's process id) and `HOMEOSTAT_SERVICE` (its
//! name), and passes them to its children. The loop runs until no process is found, because a process shows no
//! environment while it calls `exec`. A service that writes output without a supervisor gets SIGPIPE.
//!
//! (Linux can end a child together with its parent, with `PR_SET_PDEATHSIG`. It must be requested between fork and
//! exec, which needs `unsafe`.) Do not use SIGKILL routinely: SIGTERM, and a second SIGTERM if it takes too long, leave
//! nothing behind.
//!
//! # How it is built
//!
//! | part | here |
//! |---|---|
//! | key | the name of a service |
//! | desired state | the last valid file |
//! | controller | polls: reads the file, and lists services that differ from it |
//! | reconciler | [`Supervisor::reconcile`](supervisor::Supervisor::reconcile): starts and signals, never waits |
//! | events | [`watch_child`](homeostat_host::watch_child) enqueues a service when its process ends |
//! | restarts | [`CrashLoopGuard`](homeostat_host::CrashLoopGuard) delays the restart of a service that keeps ending |
//! | functions | one stops the services; once all processes have ended, it stops the manager |
//!
//! The queue does the waiting. After a stop signal the reconciler returns [`Action::requeue_after`] with the time that
//! the service has, and runs earlier if the process ends earlier.
//!
//! [`Action::requeue_after`]: homeostat::Action::requeue_after

#[cfg(unix)]
mod check;
#[cfg(unix)]
#[path = "../cli/mod.rs"]
mod cli;
#[cfg(unix)]
mod config;
#[cfg(unix)]
mod group;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod run;
#[cfg(unix)]
#[path = "../cli/signals.rs"]
mod signal_thread;
#[cfg(unix)]
mod supervisor;
#[cfg(unix)]
mod table;
#[cfg(unix)]
mod unit;
#[cfg(unix)]
mod watch;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    run::main()
}

#[cfg(not(unix))]
fn main() -> std::process::ExitCode {
    use std::io::Write;

    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "this example needs Unix: process groups and signals");
    std::process::ExitCode::FAILURE
}
