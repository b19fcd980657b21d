//! A thread that reports the end of a child process.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};

use homeostat::base::{StartError, ThreadOptions};
use homeostat::rt::{Joiner, shielded};

/// Calls `on_exit` once `child` has ended, on a new thread (`child-<pid>`). Available on Unix, except NetBSD, OpenBSD
/// and Redox.
///
/// Use this to enqueue the key of an ended process without polling. It installs no signal handler.
///
/// **It does not reap the child.** Call [`Child::wait`] or [`Child::try_wait`] after `on_exit`, for example in the run
/// that it enqueues. Until then, the ended child stays a zombie, even if its `Child` is dropped. Meanwhile, the system
/// does not reuse the process id, so a signal cannot reach another process. `on_exit` receives the exit status, or
/// `None` if the child has already been reaped elsewhere. A panic in `on_exit` is caught and logged.
///
/// The thread ends when `on_exit` returns. To end it earlier, kill the child. The returned handle joins it.
///
/// In a process that ignores SIGCHLD, the system reaps children itself. Then `on_exit` receives `None`, possibly only
/// after the last child has ended.
///
/// # Errors
///
/// If the system cannot start the thread. Then `on_exit` is not called.
///
/// # Examples
///
/// ```
/// use homeostat::{Enqueue, WorkQueue};
/// use homeostat_host::watch_child;
/// use std::process::Command;
///
/// let queue = WorkQueue::new();
/// let mut child = Command::new("true").spawn()?;
/// let ended = queue.clone();
/// let watch = watch_child(&child, move |_status| {
///     ended.enqueue_now("web");
/// })?;
///
/// let claim = queue.dequeue()?;
/// assert_eq!(*claim, "web");
/// assert!(child.wait()?.success());
/// claim.done();
/// watch.join();
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[doc(alias = "SIGCHLD")]
#[doc(alias = "waitpid")]
pub fn watch_child(
    child: &Child,
    on_exit: impl FnOnce(Option<ExitStatus>) + Send + 'static,
) -> Result<Joiner, StartError> {
    let pid = Pid::from_child(child);
    let name = format!("child-{}", pid.as_raw_nonzero());
    let wait = move || {
        let status = wait_for_exit(pid);
        shielded("the hook of a child process", || on_exit(status));
    };
    ThreadOptions::new().spawn(name.clone(), wait).map_err(|error| StartError::thread(&name, error))
}

/// Blocks until the process has ended, and leaves it unreaped. Returns `None` if it is not an unreaped child of this
/// process.
fn wait_for_exit(pid: Pid) -> Option<ExitStatus> {
    let unreaped = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    retry_on_intr(|| waitid(WaitId::Pid(pid), unreaped)).ok().flatten().map(|status| exit_status(&status))
}

/// Returns the same status as `Child::wait`: the exit code in the second byte, or the signal in the first byte, with a
/// bit for a core dump.
fn exit_status(status: &WaitIdStatus) -> ExitStatus {
    let core = if status.dumped() { 0x80 } else { 0 };
    let raw = match status.terminating_signal() {
        Some(signal) => signal | core,
        None => (status.exit_status().unwrap_or_default() & 0xff) << 8,
    };
    ExitStatus::from_raw(raw)
}
