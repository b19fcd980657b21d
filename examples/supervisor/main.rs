//! A small process supervisor: it runs the services that a TOML file names, and keeps them as the file says.
//!
//! ```sh
//! cargo run --example supervisor -- examples/services.toml
//! ```
//!
//! Edit the file while it runs: services that appear are started, services that disappear are stopped, and one whose
//! command, arguments, environment or directory changed is stopped and started anew; a change of policy is adopted by
//! the process that runs. A broken file is one line in the log, and everything goes on as before.
//!
//! What dies is restarted as its policy says: at once after a stable run, otherwise after a backoff that doubles. Each
//! service leads a process group of its own, signals go to the group, and when the leader is gone what remains of its
//! group is killed. Each line of a service's output goes to the supervisor's standard output, behind the service's name; its
//! standard input is empty.
//!
//! It is no init: as the first process of a container, it needs one above it to reap what services have abandoned.
//!
//! | signal | effect |
//! |---|---|
//! | SIGINT, SIGTERM, SIGQUIT | stop everything, the last of the file first, and exit with 0; a second one kills at once |
//! | SIGHUP | read the file now |
//! | SIGUSR1 | print the status tables to standard output |
//!
//! Exit codes: 0 when everything was stopped, 1 when something survived even SIGKILL or the supervisor itself failed,
//! 2 when the file or the command line was bad at the start.
//!
//! # What `kill -9` of the supervisor leaves behind
//!
//! Nothing can be done in a process that is killed with SIGKILL: its services live on, unsupervised, and a new supervisor
//! does not know them; it would start each a second time. Every service carries the variables `HOMEOSTAT_SUPERVISOR` (the
//! supervisor's process id) and `HOMEOSTAT_SERVICE` (its name), and hands them down to what it starts. So on Linux, if
//! the supervisor was 1234, this ends every process that it left, in any group:
//!
//! ```sh
//! while pids=$(grep -slzx HOMEOSTAT_SUPERVISOR=1234 /proc/[0-9]*/environ | cut -d/ -f3 | grep .); do kill $pids; sleep 0.1; done
//! ```
//!
//! It looks until it finds no process: one that is just calling `exec` shows no environment, and one that has ended cannot be
//! killed. A service that writes without a supervisor gets SIGPIPE.
//!
//! (Linux could end a child together with its parent, by `PR_SET_PDEATHSIG`; but that has to be asked for between fork
//! and exec, which takes `unsafe`.) So do not kill a supervisor with SIGKILL by routine: SIGTERM, and SIGTERM once more
//! if it takes too long, leaves nothing behind.
//!
//! # How it is built
//!
//! | | |
//! |---|---|
//! | key | the name of a service |
//! | wanted | the last good file |
//! | controller | polls: reads the file, and names the services that are out of step with it |
//! | reconciler | [`Supervisor::reconcile`](supervisor::Supervisor::reconcile): starts, signals, waits for nothing |
//! | events | a thread per process waits for its death and enqueues the service's name |
//! | functions | one that stops the services; once none is left, it stops the manager |
//!
//! Waiting is the queue's: a reconciler that has asked a service to stop returns [`Action::requeue_after`] the time it
//! has, and is called earlier if the process dies earlier.
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

    // Nothing can be said if standard error is closed.
    let _ = writeln!(std::io::stderr(), "this example needs Unix: process groups and signals");
    std::process::ExitCode::FAILURE
}
