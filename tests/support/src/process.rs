//! An example as a process under test: its output and its end.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::process::{Pid, Signal, kill_process};

/// The longest wait for a line. On any machine an expected line arrives long before.
const PATIENCE: Duration = Duration::from_secs(60);

/// A line of standard output or standard error, and its number.
#[derive(Debug)]
pub struct Line {
    /// The number of the line in the output.
    pub number: usize,
    /// The line without its end.
    pub text: String,
}

impl Line {
    /// Splits a row of a status table into its cells. Columns are at least two spaces apart.
    pub fn cells(&self) -> Vec<&str> {
        self.text.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
    }

    /// Returns whether the line is a row of a status table with this name.
    pub fn begins(&self, name: &str) -> bool {
        self.text.strip_prefix(name).is_some_and(|rest| rest.starts_with(' '))
    }
}

/// A process. Dropping it kills it.
pub struct Program {
    child: Child,
    output: Receiver<String>,
    /// Lines that no test has taken yet.
    lines: Vec<Line>,
    count: usize,
}

impl Program {
    /// Starts a process.
    pub fn start(mut command: Command) -> Self {
        // One pipe for both outputs keeps their lines in order.
        let (reader, writer) = std::io::pipe().unwrap();
        command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
        let child = command.spawn().unwrap();
        // The output ends only when all copies of the pipe are closed.
        drop(command);
        let (sender, output) = unbounded();
        forward(reader, sender);
        Self { child, output, lines: Vec::new(), count: 0 }
    }

    /// Returns its process id.
    pub fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal to it.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.id(), signal).unwrap();
    }

    /// Waits for a line that contains `text`, and takes it. Lines may be taken in any order.
    pub fn expect(&mut self, text: &str) -> Line {
        self.find(text, |line| line.text.contains(text))
    }

    /// Waits for the row of a status table that begins with `name`, and takes it.
    pub fn expect_row(&mut self, name: &str) -> Line {
        self.find(name, |line| line.begins(name))
    }

    /// Waits for a line that `fits` accepts, and takes it. A failure names it as `what`.
    pub fn find(&mut self, what: &str, fits: impl Fn(&Line) -> bool) -> Line {
        if let Some(index) = self.lines.iter().position(&fits) {
            return self.lines.remove(index);
        }
        let deadline = now() + PATIENCE;
        loop {
            match self.output.recv_deadline(deadline) {
                Ok(line) => self.keep(line),
                Err(error) => panic!("no line {what:?} ({error}); unasked:\n{}", self.unasked().join("\n")),
            }
            if let Some(line) = self.lines.pop_if(|line| fits(line)) {
                return line;
            }
        }
    }

    /// Waits until the process and its output have ended. Then no other process writes there.
    pub fn ended(&mut self) -> ExitStatus {
        let deadline = now() + PATIENCE;
        while let Ok(line) = self.output.recv_deadline(deadline) {
            self.keep(line);
        }
        assert!(now() < deadline, "more output:\n{}", self.unasked().join("\n"));
        self.child.wait().unwrap()
    }

    /// Returns the lines that no test has taken.
    pub fn unasked(&self) -> Vec<&str> {
        self.lines.iter().map(|line| line.text.as_str()).collect()
    }

    /// Kills the process, and waits for its end.
    pub fn kill(&mut self) {
        // Both fail if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn keep(&mut self, text: String) {
        self.lines.push(Line { number: self.count, text });
        self.count += 1;
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
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

/// The examples of a package of their own, which compiles few crates.
const FIRST: [&str; 2] = ["quickstart", "directories"];

/// The other examples that need no features. The rest is built with all features.
const WITHOUT_FEATURES: [&str; 2] = ["supervisor", "mirror"];

/// Builds an example with the profile of this test, and returns its path.
///
/// Cargo does not build examples for a single test target.
#[macro_export]
macro_rules! example {
    ($name:expr) => {
        // Only integration tests have this variable.
        $crate::process::built_example($name, ::std::env!("CARGO_TARGET_TMPDIR"))
    };
}

/// Builds an example for [`example!`]. `temporary` is the folder for files of integration tests.
///
/// Each example has one set of features in all tests: a build with another set would replace the program while a test
/// starts it.
pub fn built_example(name: &str, temporary: &str) -> PathBuf {
    // target[/triple]/profile/deps/test, and target/tmp.
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let target = Path::new(temporary).parent().unwrap();
    let last = |path: &Path| path.file_name().and_then(OsStr::to_str).unwrap().to_owned();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--example", name]);
    cargo.arg("--target-dir").arg(target);
    if FIRST.contains(&name) {
        cargo.args(["--package", "homeostat-first-examples"]);
    } else if WITHOUT_FEATURES.contains(&name) {
        cargo.args(["--package", "homeostat-examples"]);
    } else {
        // As CI builds the tests of all other packages, so that the libraries are not built again.
        cargo.args(["--workspace", "--exclude", "homeostat", "--all-features"]);
    }
    match &*last(profile) {
        "debug" => {}
        other => drop(cargo.args(["--profile", other])),
    }
    match profile.parent() {
        Some(parent) if parent != target => drop(cargo.args(["--target", &last(parent)])),
        _ => {}
    }
    // The variables of the test's own package: with them, Cargo builds `ring` anew, and all that depends on it.
    for (variable, _) in std::env::vars_os() {
        if variable.to_str().is_some_and(|name| name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_")) {
            cargo.env_remove(variable);
        }
    }
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
    assert!(built.success(), "{cargo:?}: {built}");
    profile.join("examples").join(name)
}
