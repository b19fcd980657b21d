//! Runs a command until it ends, its time is over, or nobody wants its output any more.

use std::io::{self, Read};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::thread::ThreadOptions;
use crate::base::time::Nanos;
use crate::base::wait::Monitor;

/// The time between two looks at a process that has closed its output but still runs.
const LOOK: Duration = Duration::from_millis(5);

/// The output of a process.
#[derive(Default)]
struct ProcessOutput {
    /// The standard output and the standard error, once they are complete.
    parts: [Option<Vec<u8>>; 2],
    is_unwanted: bool,
}

/// Runs a command without input, and returns its output. Returns `None` if the command was killed: after `limit`, or when `unwanted`
/// is cancelled. Its child processes die with it.
pub(super) fn run(command: &mut Command, limit: Duration, unwanted: &CancellationToken) -> io::Result<Option<Output>> {
    // A process follows the system clock.
    let collected = Monitor::of(Clock::system(), ProcessOutput::default());
    let until = collected.clock().nanos().after(limit);
    let wake = Arc::clone(&collected);
    let _guard = unwanted.on_cancel(move || wake.change(|collected| collected.is_unwanted = true));
    // A group of its own, to be killed with all its children.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let ended = wait(&mut child, &collected, until);
    if !matches!(ended, Ok(Some(_))) {
        kill(&mut child);
    }
    ended
}

/// Waits for the end of a process. Returns `None` if it must be killed.
fn wait(child: &mut Child, collected: &Arc<Monitor<ProcessOutput>>, until: Nanos) -> io::Result<Option<Output>> {
    collect(0, child.stdout.take(), collected)?;
    collect(1, child.stderr.take(), collected)?;
    let parts = collected.wait_for_some(until, |ProcessOutput { parts, is_unwanted }| match parts {
        _ if *is_unwanted => Some(None),
        [Some(output), Some(messages)] => Some(Some((std::mem::take(output), std::mem::take(messages)))),
        _ => None,
    });
    let Some((stdout, stderr)) = parts.flatten() else { return Ok(None) };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(Output { status, stdout, stderr }));
        }
        let look = collected.clock().nanos().after(LOOK).min(until);
        let is_unwanted = collected.wait_for_some(look, |collected| collected.is_unwanted.then_some(())).is_some();
        if is_unwanted || collected.clock().reached(until) {
            return Ok(None);
        }
    }
}

/// Reads a pipe on a thread, which ends when all processes have closed the other end.
fn collect(
    part: usize,
    pipe: Option<impl Read + Send + 'static>,
    collected: &Arc<Monitor<ProcessOutput>>,
) -> io::Result<()> {
    let collected = Arc::clone(collected);
    let read = move || {
        let mut content = Vec::new();
        // An error ends the output, as far as it has come.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut content));
        collected.change(|collected| collected.parts[part] = Some(content));
    };
    ThreadOptions::new().spawn(format!("kubernetes-plugin-{part}"), read).map(drop)
}

/// Kills a process that has not been waited for, so that its id is still its own.
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
        // A command that closes its output first.
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
            // A child of the shell has the output open, or neither of them.
            for script in ["sleep 100; true", "exec >&- 2>&-; sleep 100; true"] {
                assert!(run(&mut shell(script), limit, &unwanted).unwrap().is_none(), "{script}");
            }
        }
    }
}
