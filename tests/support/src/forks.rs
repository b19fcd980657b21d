//! Processes that are forked without `exec`, as a daemon does that goes into the background.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::panic::{AssertUnwindSafe, catch_unwind};

use fork::{Fork, fork, waitpid};

/// A forked process with copies of all values of its parent.
pub struct ForkedProcess {
    id: i32,
    /// A byte ends the wait of the process.
    release: PipeWriter,
    report: PipeReader,
}

impl ForkedProcess {
    /// Forks a process that runs `code`. The argument of `code` blocks until [`end`](Self::end).
    pub fn start(code: impl FnOnce(&mut dyn FnMut()) -> Result<(), String>) -> Self {
        let ((mut released, release), (report, mut reporter)) = (pipe().unwrap(), pipe().unwrap());
        match fork().unwrap() {
            Fork::Child => {
                drop((release, report));
                let mut wait = || _ = released.read(&mut [0]);
                let ended = catch_unwind(AssertUnwindSafe(|| code(&mut wait)));
                let ended = ended.unwrap_or_else(|_| Err("it panicked".to_owned()));
                let text = ended.err().unwrap_or_else(|| "done".to_owned());
                let _ = reporter.write_all(text.as_bytes());
                // Drops nothing.
                std::process::exit(0);
            }
            Fork::Parent(id) => Self { id, release, report },
        }
    }

    /// Releases the process, and waits for its end. Fails if its code returned an error or panicked.
    pub fn end(self) {
        let Self { id, mut release, mut report } = self;
        // The end of the pipe is no signal: forks of other tests may have it open.
        let _ = release.write(&[0]);
        waitpid(id).unwrap();
        let mut text = [0; 1024];
        let length = report.read(&mut text).unwrap();
        assert_eq!(String::from_utf8_lossy(&text[..length]), "done", "in the forked process");
    }
}

/// Runs `code` in a forked process. Fails if it returns an error or panics there.
pub fn in_a_fork(code: impl FnOnce() -> Result<(), String>) {
    ForkedProcess::start(|_| code()).end();
}

/// Checks a condition.
///
/// # Errors
///
/// Returns `text` unless `condition` holds.
pub fn ensure(condition: bool, text: impl Into<String>) -> Result<(), String> {
    if condition { Ok(()) } else { Err(text.into()) }
}
