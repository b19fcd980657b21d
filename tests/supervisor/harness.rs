//! A supervisor as a process under test: its file, its output, and whatever it has started.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// What comes has come long before this, on any machine; what has not come by then is missing.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service that runs until it is told to stop.
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

/// A line of standard output or standard error, and how many came before it.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) text: String,
}

impl Line {
    /// The cells of a row of the status table: columns are two spaces apart or more.
    pub(crate) fn cells(&self) -> Vec<&str> {
        self.text.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
    }

    fn begins(&self, name: &str) -> bool {
        self.text.strip_prefix(name).is_some_and(|rest| rest.starts_with(' '))
    }
}

/// A supervisor that runs. Dropped, it leaves no process behind, whatever has happened.
pub(crate) struct Run {
    child: Child,
    output: Receiver<String>,
    /// Lines that have come and that nobody has asked for yet.
    lines: Vec<Line>,
    count: usize,
    /// Carried, as an environment variable, by the supervisor and all that it starts.
    marker: String,
    folder: TempDir,
}

impl Run {
    /// Starts a supervisor on a file with this content, reading it often.
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
        // A long time to be stable: how long a run lasted must not matter on a slow machine.
        command.args(["--stable", "1h"]).args(options).arg(&file).env(name, value).env_remove("RUST_LOG");
        // One pipe for both, so that lines come in the order in which they were written.
        let (reader, writer) = std::io::pipe().unwrap();
        command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
        let child = command.spawn().unwrap();
        // Its copies of the pipe would keep the output from ending.
        drop(command);
        let (sender, output) = unbounded();
        forward(reader, sender);
        Self { child, output, lines: Vec::new(), count: 0, marker, folder }
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

    /// The supervisor's own process id.
    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Signals the supervisor.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.id(), signal).unwrap();
    }

    /// Waits for a line that contains `text`, and takes it out of the output. Lines may be asked for in any order.
    pub(crate) fn expect(&mut self, text: &str) -> Line {
        self.find(text, |line| line.text.contains(text))
    }

    /// Waits for the row of the status table that begins with `name`, and takes it out of the output.
    pub(crate) fn expect_row(&mut self, name: &str) -> Line {
        self.find(name, |line| line.begins(name))
    }

    fn find(&mut self, what: &str, fits: impl Fn(&Line) -> bool) -> Line {
        if let Some(index) = self.lines.iter().position(&fits) {
            return self.lines.remove(index);
        }
        loop {
            match self.output.recv_timeout(PATIENCE) {
                Ok(line) => self.keep(line),
                Err(error) => panic!("no line {what:?} ({error}); unasked:\n{}", self.unasked().join("\n")),
            }
            if let Some(line) = self.lines.pop_if(|line| fits(line)) {
                return line;
            }
        }
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

    /// Waits until the supervisor has ended and its output with it, so that no service can be left that writes there.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let deadline = now() + PATIENCE;
        while let Ok(line) = self.output.recv_deadline(deadline) {
            self.keep(line);
        }
        assert!(now() < deadline, "the output goes on:\n{}", self.unasked().join("\n"));
        self.child.wait().unwrap()
    }

    /// The lines that have come and were not asked for.
    pub(crate) fn unasked(&self) -> Vec<&str> {
        self.lines.iter().map(|line| line.text.as_str()).collect()
    }

    /// Every process that the supervisor has started, directly or not, and that lives.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        carriers(&self.marker).into_iter().filter(|pid| *pid != self.id()).collect()
    }

    /// The processes that belong to one service.
    pub(crate) fn processes_of(&self, service: &str) -> Vec<Pid> {
        let name = format!("HOMEOSTAT_SERVICE={service}");
        self.processes().into_iter().filter(|pid| carries(*pid, &name)).collect()
    }

    /// Waits until nothing that the supervisor has started is alive.
    pub(crate) fn no_orphans(&self) {
        until("no orphans", || self.processes().is_empty());
    }

    fn keep(&mut self, text: String) {
        self.lines.push(Line { number: self.count, text });
        self.count += 1;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Both fail if it has ended, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in self.processes() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Waits until `condition` holds that no event tells of.
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = now() + PATIENCE;
    while !condition() {
        assert!(now() < deadline, "waited for: {what}");
        pause();
    }
}

/// Whether this process is alive: there, and not a zombie.
pub(crate) fn lives(pid: Pid) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// Whether this process was halted by a signal.
pub(crate) fn is_halted(pid: Pid) -> bool {
    state(pid) == Some('T')
}

/// The letter behind the name in `/proc/<pid>/stat`.
fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Runs the supervisor to its end, and returns its exit code and standard error.
pub(crate) fn run_to_end(arguments: &[&OsStr]) -> (Option<i32>, String) {
    let output = Command::new(supervisor()).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// The live processes whose environment holds `variable`.
fn carriers(variable: &str) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| carries(*pid, variable)).collect()
}

/// A process that is dead has no environment, and one that is not ours has one that we may not read.
fn carries(pid: Pid, variable: &str) -> bool {
    let environ = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    environ.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
}

#[expect(clippy::disallowed_methods, reason = "a thread of the test's own, which ends with what it reads")]
fn forward(from: impl Read + Send + 'static, to: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                break;
            }
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "the limit of a wait for other processes, which know no held clock")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the step of a wait for what no event tells of")]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

/// The program under test, built as this test was: cargo does not build an example for a test that was named alone.
fn supervisor() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        // target[/triple]/profile/deps/test, and target/tmp.
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap();
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let name = |path: &Path| path.file_name().and_then(OsStr::to_str).unwrap().to_owned();
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--example", "supervisor", "--target-dir"]).arg(target);
        match &*name(profile) {
            "debug" => {}
            other => drop(cargo.args(["--profile", other])),
        }
        match profile.parent() {
            Some(parent) if parent != target => drop(cargo.args(["--target", &name(parent)])),
            _ => {}
        }
        let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
        assert!(built.success(), "{cargo:?}: {built}");
        profile.join("examples/supervisor")
    })
}
