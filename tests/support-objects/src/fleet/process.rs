//! The process of a worker. It ends with the thread that started it, even if that thread is killed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{Orders, WORKER};
use homeostat_test_support::forwarder::Forwarder;

/// The process of a worker. Dropping it kills it.
///
/// Its outputs are files without a name, so nothing is left of them.
pub(super) struct WorkerProcess {
    pub(super) name: String,
    child: Child,
    /// The worker stops in order when this is dropped.
    input: Option<ChildStdin>,
    output: File,
    errors: File,
    pub(super) state: WorkerState,
    /// Its network, which all of its connections pass.
    pub(super) network: Forwarder,
    /// The time at which the network works again. `None` if it works.
    pub(super) faulty_until: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerState {
    Running,
    /// It is paused until this time.
    Paused(u64),
    /// It stops in order.
    Ending,
    Killed,
    /// It has ended by itself.
    Ended,
}

impl WorkerProcess {
    /// Starts a worker: a process that runs the test with this full name.
    pub(super) fn start(test: &str, orders: &Orders, network: Forwarder) -> Self {
        let (output, errors) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(WORKER, orders.to_text());
        command.stdin(Stdio::piped()).stdout(output.try_clone().unwrap()).stderr(errors.try_clone().unwrap());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start setpriv (Debian: util-linux): {error}"));
        let input = child.stdin.take();
        let (name, state) = (orders.name.clone(), WorkerState::Running);
        Self { name, child, input, output, errors, state, network, faulty_until: None }
    }

    /// Kills the process (`kill -9`), and waits for its end.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.state = WorkerState::Killed;
    }

    /// Pauses the process until this time. Then it must be [resumed](Self::resume).
    pub(super) fn pause_until(&mut self, time: u64) {
        self.signal(Signal::STOP);
        self.state = WorkerState::Paused(time);
    }

    pub(super) fn resume(&mut self) {
        self.signal(Signal::CONT);
        self.state = WorkerState::Running;
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Tells the worker to stop in order.
    pub(super) fn end(&mut self) {
        drop(self.input.take());
        self.state = WorkerState::Ending;
    }

    /// Returns the status of a process that has ended by itself since the last call.
    pub(super) fn newly_ended(&mut self) -> Option<ExitStatus> {
        if matches!(self.state, WorkerState::Killed | WorkerState::Ended) {
            return None;
        }
        let status = self.child.try_wait().unwrap()?;
        self.state = WorkerState::Ended;
        Some(status)
    }

    /// Returns the record that the worker has written so far.
    pub(super) fn record(&self) -> String {
        content(&self.output)
    }

    /// Returns the log of the worker.
    pub(super) fn log(&self) -> String {
        content(&self.errors)
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a file without a change of the position at which the worker writes.
fn content(file: &File) -> String {
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}
