//! Runs a command until it ends, reaches its time limit or is no longer wanted.

use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read};
#[cfg(unix)]
use std::os::fd::AsFd as Pollable;
#[cfg(windows)]
use std::os::windows::io::AsHandle as Pollable;
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use homeostat::base::{CancellationToken, Clock, ThreadOptions};
use homeostat::rt::{Monitor, Nanos};

/// How often to check a process that has closed its output, and one that may still print.
const CHECK_INTERVALS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(50)];
/// How long to read the output after a process has ended. A child that it left behind may keep the output open.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);
/// The largest size of each output in bytes.
const MOST_OUTPUT: usize = 1 << 20;

/// A process's standard error so far. Other threads can read it while the process runs.
pub(super) type Messages = Monitor<Vec<u8>>;

/// The output of a process.
#[derive(Default)]
struct ProcessOutput {
    /// The standard output and the standard error so far.
    parts: [Vec<u8>; 2],
    /// How many of the two are complete.
    complete: usize,
    is_unwanted: bool,
    /// Set when no more output is needed. The threads that read it then end.
    is_over: bool,
}

impl ProcessOutput {
    fn is_too_long(&self) -> bool {
        self.parts.iter().any(|part| part.len() > MOST_OUTPUT)
    }

    fn is_complete(&self) -> bool {
        self.complete == self.parts.len()
    }
}

/// Runs a command without input, and returns its output. Returns `None` if the command was killed after `limit` or
/// because `unwanted` was cancelled. Its child processes are killed too. Adds its standard error to `messages` as it
/// arrives.
///
/// # Errors
///
/// Returns an error if the command cannot be run. If it was killed because it printed more than 1 MiB, the error is
/// [`ErrorKind::FileTooLarge`].
pub(super) fn run(
    command: &mut Command,
    limit: Duration,
    messages: &Arc<Messages>,
    unwanted: &CancellationToken,
) -> io::Result<Option<Output>> {
    // Processes follow the system clock.
    let collected = Monitor::of(Clock::system(), ProcessOutput::default());
    let until = collected.clock().nanos().after(limit);
    let wake = Arc::clone(&collected);
    let _guard = unwanted.on_cancel(move || wake.change(|collected| collected.is_unwanted = true));
    // As a separate process group, the command can be killed with all its children.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let ended = wait(&mut child, &collected, messages, until);
    collected.change(|collected| collected.is_over = true);
    if !matches!(ended, Ok(Some(_))) {
        kill(&mut child);
    }
    ended
}

/// Waits for a process to end. Returns `None` if it must be killed.
fn wait(
    child: &mut Child,
    collected: &Arc<Monitor<ProcessOutput>>,
    messages: &Arc<Messages>,
    until: Nanos,
) -> io::Result<Option<Output>> {
    collect(0, child.stdout.take(), collected, |_| ())?;
    let messages = Arc::clone(messages);
    let tell = move |chunk: &[u8]| messages.change(|messages| messages.extend_from_slice(chunk));
    collect(1, child.stderr.take(), collected, tell)?;
    let clock = collected.clock();
    let mut rest = None;
    loop {
        let status = child.try_wait()?;
        let now = clock.nanos();
        if status.is_some() {
            rest.get_or_insert(now.after(OUTPUT_GRACE));
        }
        let is_read = rest.is_some_and(|rest| clock.reached(rest));
        let (is_complete, output) = collected.with(|collected| {
            if collected.is_too_long() {
                return Err(io::Error::new(ErrorKind::FileTooLarge, "it printed more than 1 MiB"));
            }
            let is_complete = collected.is_complete();
            let is_wanted = status.is_some() && (is_complete || is_read);
            Ok((is_complete, is_wanted.then(|| std::mem::take(&mut collected.parts))))
        })?;
        if let (Some(status), Some([stdout, stderr])) = (status, output) {
            return Ok(Some(Output { status, stdout, stderr }));
        }
        let [closed, open] = CHECK_INTERVALS;
        let interval = now.after(if is_complete { closed } else { open }).min(until);
        let is_unwanted = collected.wait_for_some(interval, |collected| {
            let has_changed = collected.is_too_long() || collected.is_complete() != is_complete;
            (collected.is_unwanted || has_changed).then_some(collected.is_unwanted)
        });
        if is_unwanted == Some(true) || clock.reached(until) {
            return Ok(None);
        }
    }
}

/// Reads a pipe on a thread, and passes each chunk to `tell`. The thread ends when all processes have closed the other
/// end, or when no more output is needed.
fn collect(
    part: usize,
    pipe: Option<impl Read + Pollable + Send + 'static>,
    collected: &Arc<Monitor<ProcessOutput>>,
    tell: impl Fn(&[u8]) + Send + 'static,
) -> io::Result<()> {
    let collected = Arc::clone(collected);
    let read = move || {
        if let Some(mut pipe) = pipe {
            let mut chunk = [0; 8 * 1024];
            while !collected.with(|collected| collected.is_over || collected.is_too_long()) {
                if !is_readable(&pipe) {
                    continue;
                }
                match pipe.read(&mut chunk) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // An error ends the output. The part before it counts.
                    Ok(0) | Err(_) => break,
                    Ok(amount) => {
                        tell(&chunk[..amount]);
                        collected.change(|collected| collected.parts[part].extend_from_slice(&chunk[..amount]));
                    }
                }
            }
        }
        collected.change(|collected| collected.complete += 1);
    };
    ThreadOptions::new().spawn(format!("kubernetes-plugin-{part}"), read).map(drop)
}

/// Waits briefly until a pipe has input or has ended. Returns whether it has.
#[cfg(unix)]
fn is_readable(pipe: &impl Pollable) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let [_, interval] = CHECK_INTERVALS;
    let interval = Timespec { tv_sec: 0, tv_nsec: interval.subsec_nanos().into() };
    // The next read returns all other errors.
    !matches!(poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&interval)), Ok(0) | Err(rustix::io::Errno::INTR))
}

/// Other systems cannot wait for a pipe with a time limit, so the thread stays until the pipe ends.
#[cfg(not(unix))]
fn is_readable(_: &impl Pollable) -> bool {
    true
}

/// Returns the file of a command. A name without a folder is searched in the folders of `path`. As in Go, folders
/// relative to the working directory do not count.
///
/// # Errors
///
/// Returns [`ErrorKind::NotFound`] if no folder has the command.
#[cfg(unix)]
pub(super) fn find(command: &OsStr, path: Option<&OsStr>) -> io::Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;

    let name = Path::new(command);
    if name.components().count() > 1 || name.is_absolute() {
        return Ok(name.to_owned());
    }
    let is_executable = |file: &PathBuf| {
        std::fs::metadata(file).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let folders = path.iter().flat_map(|path| std::env::split_paths(path)).filter(|folder| folder.is_absolute());
    let found = folders.map(|folder| folder.join(name)).find(is_executable);
    found.ok_or_else(|| io::Error::new(ErrorKind::NotFound, "no folder of this program's PATH has this command"))
}

/// Other systems search by themselves, because a name may lack its extension.
#[cfg(not(unix))]
pub(super) fn find(command: &OsStr, _: Option<&OsStr>) -> io::Result<PathBuf> {
    Ok(command.into())
}

/// Kills a process that was not yet waited for, so its id cannot belong to another one.
fn kill(child: &mut Child) {
    #[cfg(unix)]
    let _ = rustix::process::kill_process_group(rustix::process::Pid::from_child(child), rustix::process::Signal::KILL);
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(all(test, unix, not(loom)))]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Runs a command and ignores its messages.
    fn run(command: &mut Command, limit: Duration, unwanted: &CancellationToken) -> io::Result<Option<Output>> {
        super::run(command, limit, &Messages::of(Clock::system(), Vec::new()), unwanted)
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    #[test]
    fn a_command_returns_its_output_and_status() {
        let output = run(&mut shell("echo out; echo err >&2; exit 3"), MINUTE, &CancellationToken::new());
        let Output { status, stdout, stderr } = output.unwrap().unwrap();
        assert_eq!((status.code(), &stdout[..], &stderr[..]), (Some(3), &b"out\n"[..], &b"err\n"[..]));
        // A command that closes its output before it ends.
        let output = run(&mut shell("exec >&- 2>&-; sleep 0.05; exit 4"), MINUTE, &CancellationToken::new());
        assert_eq!(output.unwrap().unwrap().status.code(), Some(4));
        assert!(run(&mut Command::new("/no/such/command"), MINUTE, &CancellationToken::new()).is_err());
    }

    #[test]
    fn a_command_that_takes_too_long_or_is_unwanted_is_killed_with_its_children() {
        let (short, cancelled) = (Duration::from_millis(50), CancellationToken::new());
        cancelled.cancel();
        let cases = [(short, CancellationToken::new()), (MINUTE * 60, cancelled)];
        for (limit, unwanted) in cases {
            // In the first script, a child of the shell keeps the output open. In the second one, no process has it
            // open.
            for script in ["sleep 100; true", "exec >&- 2>&-; sleep 100; true"] {
                assert!(run(&mut shell(script), limit, &unwanted).unwrap().is_none(), "{script}");
            }
        }
    }

    #[test]
    fn the_messages_of_a_command_are_known_while_it_runs() {
        let (messages, unwanted) = (Messages::of(Clock::system(), Vec::new()), CancellationToken::new());
        std::thread::scope(|scope| {
            let mut command = shell("echo visit example.com >&2; exec sleep 1000");
            let runs = scope.spawn({
                let (messages, unwanted) = (&messages, &unwanted);
                move || super::run(&mut command, MINUTE * 60, messages, unwanted)
            });
            messages.wait_for_some(Nanos::NEVER, |bytes| (bytes == b"visit example.com\n").then_some(()));
            unwanted.cancel();
            assert!(runs.join().unwrap().unwrap().is_none());
        });
    }

    #[test]
    fn a_command_is_looked_up_in_absolute_folders_of_the_path() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = tempfile::tempdir().unwrap();
        let folders = ["plain", "folder", "right", "later"].map(|name| folder.path().join(name));
        for folder in &folders {
            std::fs::create_dir(folder).unwrap();
        }
        let [plain, directory, right, later] = &folders;
        std::fs::write(plain.join("tool"), "").unwrap();
        std::fs::create_dir(directory.join("tool")).unwrap();
        std::fs::write(later.join("tool"), "").unwrap();
        std::fs::set_permissions(later.join("tool"), std::fs::Permissions::from_mode(0o755)).unwrap();
        symlink(later.join("tool"), right.join("tool")).unwrap();
        let find = |name: &str, path: &OsStr| find(OsStr::new(name), Some(path)).map_err(|error| error.kind());
        let path = std::env::join_paths(&folders).unwrap();
        assert_eq!(find("tool", &path), Ok(right.join("tool")));
        assert_eq!(find("other", &path), Err(ErrorKind::NotFound));
        assert_eq!(find("Cargo.toml", OsStr::new(":.:src/..")), Err(ErrorKind::NotFound));
        assert_eq!(find("./tool", OsStr::new("")), Ok("./tool".into()));
        assert_eq!(super::find(OsStr::new("sh"), None).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    }

    #[test]
    fn a_command_that_prints_without_end_is_killed() {
        for script in ["yes", "yes >&2", "yes | head -c 2000000"] {
            let error = run(&mut shell(script), MINUTE, &CancellationToken::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{script}");
        }
        let output = run(&mut shell("yes | head -c 1048576"), MINUTE, &CancellationToken::new()).unwrap().unwrap();
        assert_eq!(output.stdout.len(), MOST_OUTPUT);
    }

    /// Like a command that starts a browser or an agent.
    #[test]
    fn the_output_of_a_command_does_not_wait_for_a_process_that_it_leaves_behind() {
        let folder = tempfile::tempdir().unwrap();
        let alive = folder.path().join("alive");
        assert!(Command::new("mkfifo").arg(&alive).status().unwrap().success());
        for errors in ["/dev/null", "&1"] {
            // The process writes to the output until no thread reads it.
            let process = format!("exec 3>alive; while echo x; do sleep 0.02; done 2>{errors}");
            let script = format!("setsid sh -c '{process}' 2>{errors} & echo out");
            let mut command = shell(&script);
            let output = run(command.current_dir(&folder), MINUTE, &CancellationToken::new()).unwrap().unwrap();
            assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"out\n"[..]));
            // The reading threads have ended, so the process ends too.
            let mut end = Vec::new();
            std::fs::File::open(&alive).unwrap().read_to_end(&mut end).unwrap();
            assert!(end.is_empty());
        }
    }
}
