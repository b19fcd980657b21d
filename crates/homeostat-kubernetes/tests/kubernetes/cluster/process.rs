//! The processes of a cluster. None outlives the thread that started it, even if that thread is killed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A server process. The kernel kills it when the thread that started it ends.
pub(crate) struct Process {
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// Describes a process without starting it. Its output goes to a file with its name in the directory.
    pub(super) fn new(program: PathBuf, arguments: Vec<String>, directory: &Path) -> Self {
        let name = program.file_name().unwrap().to_str().unwrap();
        let log = directory.join(format!("{name}.log"));
        Self { program, arguments, log, child: None }
    }

    /// Starts the process.
    ///
    /// Call this from the test's thread, because the process ends with the thread.
    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none(), "{} runs already", self.program.display());
        let log = || OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&self.program).args(&self.arguments);
        command.stdin(Stdio::null()).stdout(log()).stderr(log());
        self.child = Some(command.spawn().expect("setpriv of Debian's package util-linux starts the servers"));
    }

    /// Kills the process (`kill -9`), and waits for its end.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("a started process");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops the process at once with SIGSTOP. Its connections stay open.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues a paused process.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("a started process");
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    /// Returns the end of the process's output, if it has ended by itself.
    pub(super) fn failure(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().unwrap()?;
        self.child = None;
        Some(format!("{} ended with {status}: {}", self.program.display(), self.output()))
    }

    /// Returns the end of the process's output.
    pub(super) fn output(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A temporary directory. It is removed on drop. If this process is killed, a helper process removes it.
pub(crate) struct Directory {
    path: PathBuf,
    /// Removes the directory when its input ends.
    remover: Child,
    input: Option<ChildStdin>,
}

impl Directory {
    /// Creates a directory below `parent`.
    pub(crate) fn new(parent: &Path) -> io::Result<Self> {
        fs::create_dir_all(parent)?;
        let path = tempfile::Builder::new().prefix("cluster-").tempdir_in(parent)?.keep();
        // Killed servers may still write for a moment.
        let script = r#"cat; until rm -rf -- "$1"; do sleep 0.1; done"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "remover"]).arg(&path).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut remover = command.spawn()?;
        let input = remover.stdin.take();
        Ok(Self { path, remover, input })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file that appears complete at once, and returns its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let (path, new) = (self.path.join(name), self.path.join(format!("{name}.new")));
        fs::write(&new, content).unwrap();
        fs::rename(new, &path).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.remover.wait();
    }
}

/// Opens a file that processes lock.
pub(crate) fn lock_file(path: &Path) -> File {
    OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path).unwrap()
}
