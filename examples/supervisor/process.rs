//! One service as a process of the operating system, which leads its own process group.
//!
//! # The number of a group stays valid
//!
//! Process groups are signalled by number, and the system reuses numbers. The number is safe until the leader has been
//! reaped: even a dead leader keeps its process id, and so the number of the group. `watch_child` reports the end of a
//! leader before it is reaped. Then the rest of the group is killed, and the leader is reaped.
//!
//! A lock is held from before the kill until after the reaping, and all signals are sent under it. If a thread holds
//! the lock and finds no exit status, it may signal the group.
//!
//! Processes that the leader leaves in its group end soon after it. If the leader was asked to stop, they were asked
//! too, and on Linux they may use the rest of the time. Otherwise they are killed at once. A process that has left the
//! group (`setsid`, a job-controlling shell) cannot be reached: no portable call finds it.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use homeostat_host::watch_child;
use parking_lot::{Mutex, MutexGuard};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{self, Pid, Signal, WaitOptions};

use crate::check;
use crate::cli::say;
use crate::config::{Launch, Service};
use crate::group;

/// In the environment of every service: the process id of its supervisor.
pub(crate) const SUPERVISOR: &str = "HOMEOSTAT_SUPERVISOR";
/// In the environment of every service: its name.
pub(crate) const SERVICE: &str = "HOMEOSTAT_SERVICE";

/// After the whole group is dead, how long to wait for the end of the output.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The longest line that is copied in one piece, in bytes including its line break.
const LONGEST_LINE: u64 = 65_536;

/// A process and its group. Dropping it kills the group.
pub(crate) struct Process {
    leader: Pid,
    /// Locked while the group is signalled or the leader is reaped. See above.
    fate: Arc<Mutex<Fate>>,
}

#[derive(Debug, Default)]
struct Fate {
    /// Whether it was asked to end.
    told: bool,
    /// The exit status of the leader, once it has been reaped.
    exit: Option<ExitStatus>,
}

impl Process {
    /// Starts the process. Calls `on_exit` on another thread once it and its group have ended.
    pub(crate) fn start(service: &Service, on_exit: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let launch = &service.launch;
        let (output, writer) = io::pipe()?;
        let mut command = Command::new(&launch.command);
        command
            .args(&launch.args)
            .envs(&launch.env)
            .env(SUPERVISOR, std::process::id().to_string())
            .env(SERVICE, &*service.name)
            // A group in the background may not read from the terminal: it would be stopped.
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0);
        if let Some(directory) = &launch.directory {
            command.current_dir(directory);
        }
        let child = command.spawn().map_err(|error| explain(&error, launch))?;
        // The output ends only when all copies of the pipe are closed.
        drop(command);

        let process = Self { leader: Pid::from_child(&child), fate: Arc::default() };
        let (leader, fate) = (process.leader, Arc::clone(&process.fate));
        let (written, all_written) = bounded::<()>(0);
        let ended = move |status: Option<ExitStatus>| {
            settle(leader, status, &fate, &all_written);
            on_exit();
        };
        let name = Arc::clone(&service.name);
        let copy = move || {
            copy_lines(output, &name);
            drop(written);
        };
        let copying = spawn(format!("out-{}", service.name), copy);
        let threads = copying.and_then(|()| watch_child(&child, ended).map_err(io::Error::other));
        if let Err(error) = threads {
            let mut fate = process.fate.lock();
            sweep(leader);
            fate.exit = Some(reap(leader));
            drop(fate);
            return Err(error);
        }
        Ok(process)
    }

    /// Returns the process id of the leader, which is also the number of the group.
    pub(crate) fn id(&self) -> i32 {
        self.leader.as_raw_nonzero().get()
    }

    /// Returns the exit status of the leader. Once it is known, the whole group is dead or dying.
    pub(crate) fn exit(&self) -> Option<ExitStatus> {
        self.fate.lock().exit
    }

    /// Asks every process of the group to end.
    pub(crate) fn ask(&self, signal: Signal) -> io::Result<()> {
        let mut fate = self.fate.lock();
        fate.told = true;
        self.signal(&fate, signal)?;
        // Job control may have halted it. A halted process handles no other signal.
        self.signal(&fate, Signal::CONT)
    }

    /// Ends every process of the group.
    pub(crate) fn kill(&self) -> io::Result<()> {
        self.signal(&self.fate.lock(), Signal::KILL)
    }

    fn signal(&self, fate: &Fate, signal: Signal) -> io::Result<()> {
        if fate.exit.is_some() {
            return Ok(());
        }
        Ok(process::kill_process_group(self.leader, signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            log::error!("cannot kill process group {}: {error}", self.id());
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("leader", &self.id()).finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "the library starts its own threads only; these are the example's")]
fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name).spawn(body).map(drop)
}

/// Copies each line of a service's output to standard output, after the service's name. A line longer than
/// [`LONGEST_LINE`] becomes several lines.
fn copy_lines(output: impl Read, name: &str) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        say(&mut io::stdout(), &format!("[{name}] {}\n", text.trim_end_matches('\n')));
        line.clear();
    }
}

/// Kills the rest of the group after its leader has ended, and reaps the leader. `all_written` is disconnected at the
/// end of the output. Without a `status`, other code has reaped the leader.
fn settle(leader: Pid, status: Option<ExitStatus>, fate: &Mutex<Fate>, all_written: &Receiver<()>) {
    if status.is_none() {
        // The number may belong to another process now: there is nothing to signal or to reap.
        log::error!("process {} was reaped by somebody else", leader.as_raw_nonzero());
        fate.lock().exit = Some(ExitStatus::default());
        return;
    }
    let mut fate = fate.lock();
    if fate.told {
        MutexGuard::unlocked(&mut fate, || group::await_empty(leader));
    }
    sweep(leader);
    // A process that has left the group may keep the output open.
    let _ = MutexGuard::unlocked(&mut fate, || all_written.recv_timeout(LAST_WORDS));
    fate.exit = Some(reap(leader));
}

/// Names the missing directory or command: the system returns the same error for both.
fn explain(error: &io::Error, launch: &Launch) -> io::Error {
    let message = check::directory(launch).unwrap_or_else(|| format!("{}: {error}", launch.command));
    io::Error::new(error.kind(), message)
}

/// Kills the rest of the group.
///
/// One `kill` is enough. If a process is being forked, either it is already in the group and gets the signal, or its
/// parent gets the signal first and the fork fails.
fn sweep(leader: Pid) {
    match process::kill_process_group(leader, Signal::KILL) {
        // On some systems a dead leader is not a member of its group. Apple's systems do not allow signalling it.
        Ok(()) | Err(Errno::SRCH) => {}
        Err(Errno::PERM) if cfg!(target_vendor = "apple") => {}
        Err(error) => log::error!("cannot kill process group {}: {error}", leader.as_raw_nonzero()),
    }
}

/// Reaps the leader. The system may reuse the number of the group from now on.
fn reap(leader: Pid) -> ExitStatus {
    let reaped = retry_on_intr(|| process::waitpid(Some(leader), WaitOptions::empty()));
    if let Ok(Some((_, status))) = reaped {
        return ExitStatus::from_raw(status.as_raw());
    }
    log::error!("process {} was reaped by somebody else", leader.as_raw_nonzero());
    ExitStatus::default()
}
