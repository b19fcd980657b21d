//! A supervisor as a process under test: its file, its output, and its processes.

use std::ffi::OsStr;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::process::{Line, Program};
use crate::until::until;
use homeostat_test_support::example;

/// A service that runs until it is stopped.
pub(crate) fn idler(name: &str) -> String {
    service(name, "exec sleep 999", "")
}

/// A service that is a shell script.
pub(crate) fn service(name: &str, script: &str, more: &str) -> String {
    format!("[[service]]\nname = \"{name}\"\ncommand = \"sh\"\nargs = [\"-c\", '''{script}''']\n{more}\n")
}

/// Two services: one lacks its program, the other its directory.
pub(crate) const UNSTARTABLE: &str = r#"
[[service]]
name = "a"
command = "/no/such/program"

[[service]]
name = "b"
command = "true"
directory = "/no/such/place"
"#;

/// A running supervisor. Dropping it kills all its processes.
pub(crate) struct Run {
    program: Program,
    /// An environment variable of the supervisor and of all its processes.
    marker: String,
    folder: TempDir,
}

impl Run {
    /// Starts a supervisor on a file with this content, with a short period.
    pub(crate) fn start(content: &str) -> Self {
        Self::start_with(content, &["--poll", "20ms"])
    }

    /// Starts a supervisor on a file with this content.
    pub(crate) fn start_with(content: &str, options: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("services.toml");
        fs::write(&file, content).unwrap();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let marker = format!("HOMEOSTAT_TEST={}", folder.path().join(number.to_string()).display());
        let (name, value) = marker.split_once('=').unwrap();
        let mut command = Command::new(supervisor());
        // No run is stable, so that its length does not matter on a slow machine.
        command.args(["--stable", "1h"]).args(options).arg(&file).env(name, value).env_remove("RUST_LOG");
        Self { program: Program::start(command), marker, folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Replaces the file, in one step.
    pub(crate) fn edit(&self, content: &str) {
        let new = self.folder().join("new");
        fs::write(&new, content).unwrap();
        fs::rename(&new, self.folder().join("services.toml")).unwrap();
    }

    /// Waits until `service` is started, and returns its process id.
    pub(crate) fn started(&mut self, service: &str) -> Pid {
        let line = self.expect(&format!(" {service}: started as pid "));
        let (_, rest) = line.text.split_once(" pid ").unwrap();
        rest.split(' ').next().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw).unwrap()
    }

    /// Asks for the status table, and returns a service's row.
    pub(crate) fn row(&mut self, service: &str) -> Line {
        self.signal(Signal::USR1);
        let head = self.expect_row("NAME").number;
        self.find(service, |line| line.number > head && line.begins(service))
    }

    /// Returns all living processes that the supervisor has started, directly or not.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        carriers(&self.marker).into_iter().filter(|pid| *pid != self.id()).collect()
    }

    /// Returns the processes of one service.
    pub(crate) fn processes_of(&self, service: &str) -> Vec<Pid> {
        let name = format!("HOMEOSTAT_SERVICE={service}");
        self.processes().into_iter().filter(|pid| carries(*pid, &name)).collect()
    }

    /// Waits until no process of the supervisor is alive.
    pub(crate) fn no_orphans(&self) {
        until("no orphans", || self.processes().is_empty());
    }
}

impl Deref for Run {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for Run {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.program.kill();
        for pid in self.processes() {
            // It may have ended.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Returns whether this process is alive and not a zombie.
pub(crate) fn lives(pid: Pid) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// Returns whether a signal has halted this process.
pub(crate) fn is_halted(pid: Pid) -> bool {
    state(pid) == Some('T')
}

/// Returns the letter after the name in `/proc/<pid>/stat`.
fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Runs the supervisor to its end, and returns its exit code and standard error.
pub(crate) fn run_to_end(arguments: &[&OsStr]) -> (Option<i32>, String) {
    let output = Command::new(supervisor()).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Returns the living processes with `variable` in their environment.
fn carriers(variable: &str) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| carries(*pid, variable)).collect()
}

/// A dead process has no environment, and the environment of another user's process is not readable.
fn carries(pid: Pid, variable: &str) -> bool {
    let environ = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    environ.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
}

fn supervisor() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| example!("supervisor"))
}
