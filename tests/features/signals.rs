//! A manager in a separate process that receives signals.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use homeostat::{Action, BoxError, Component, Context, Controller, Manager, terminal};
use rustix::process::{Pid, Signal, kill_process};

/// The environment variable that marks the processes of a test.
const CHILD: &str = "HOMEOSTAT_TEST_SIGNALS";

/// A process that runs the same test. It is killed on drop.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(test: &str) -> Self {
        Self::start_by(Command::new(std::env::current_exe().unwrap()), test, Stdio::piped())
    }

    fn start_by(mut command: Command, test: &str, errors: Stdio) -> Self {
        let (_, module) = module_path!().split_once("::").unwrap();
        let mut child = command
            .args(["--exact", &format!("{module}::{test}"), "--nocapture", "--test-threads=1"])
            .env(CHILD, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Blocks until the process prints this line.
    fn wait_for(&mut self, line: &str) {
        // The test harness prints lines too, and may print before the line.
        assert!(
            self.lines.any(|printed| printed.unwrap().ends_with(line)),
            "the process ended before it printed {line}"
        );
    }

    fn ends_well(mut self) {
        self.wait_for("ended");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn a_manager_reloads_at_sighup_and_stops_at_sigterm_and_sigint() {
    if is_child() {
        let manager = Manager::builder().build().unwrap();
        let mut reloads = 0;
        let reload = move |_cx: &Context| {
            reloads += 1;
            say(&format!("reload {reloads}"));
            assert!(reloads != 2, "out of luck");
            if reloads == 1 { Err("a mistake in the configuration") } else { Ok(()) }
        };
        manager.add(Component::on_reload("configuration", reload)).unwrap();
        let beat = |cx: &Context| {
            say("started");
            let cancelled = cx.sleep(Duration::MAX);
            say("stopped");
            cancelled
        };
        manager.add(Component::function("beat", beat)).unwrap();
        manager.run_until_signal().unwrap();
        return say("ended");
    }
    for stop in [Signal::TERM, Signal::INT] {
        let mut process = Process::start("a_manager_reloads_at_sighup_and_stops_at_sigterm_and_sigint");
        process.wait_for("started");
        for reload in ["reload 1", "reload 2", "reload 3"] {
            process.signal(Signal::HUP);
            process.wait_for(reload);
        }
        process.signal(stop);
        process.wait_for("stopped");
        process.ends_well();
    }
}

#[test]
fn a_second_signal_aborts_the_remaining_runs() {
    if is_child() {
        let manager = Manager::builder().abort_grace(Duration::MAX).shutdown_grace(Duration::MAX).build().unwrap();
        let (waits, waiting) = crossbeam_channel::bounded(1);
        let reconcile = move |cx: &Context, _key: &&str| -> Result<Action, BoxError> {
            // A signal that comes before all components have started would end the start.
            waiting.recv()?;
            say("running");
            cx.sleep(Duration::MAX)?;
            Ok(Action::await_change())
        };
        let controller = Controller::builder("vm", reconcile).build().unwrap();
        controller.handle().enqueue("vm-1");
        manager.add(controller).unwrap();
        // A function is cancelled as soon as its manager stops.
        let stopping = move |cx: &Context| {
            waits.send(()).unwrap();
            let cancelled = cx.sleep(Duration::MAX);
            say("stopping");
            cancelled
        };
        manager.add(Component::function("stopping", stopping)).unwrap();
        manager.run_until_signal().unwrap();
        return say("ended");
    }
    let mut process = Process::start("a_second_signal_aborts_the_remaining_runs");
    process.wait_for("running");
    process.signal(Signal::TERM);
    process.wait_for("stopping");
    process.signal(Signal::INT);
    process.ends_well();
}

#[test]
fn sigusr1_prints_the_status_and_stops_nothing() {
    if is_child() {
        let manager = Manager::builder().name("appliance").build().unwrap();
        let reconcile =
            |_cx: &Context, _key: &&str| -> Result<Action, BoxError> { Err(terminal("no such image").into()) };
        let controller = Controller::builder("vm", reconcile).build().unwrap();
        let handle = controller.handle();
        manager.add(controller).unwrap();
        let failed = move |_cx: &Context| {
            handle.enqueue("vm-1");
            handle.wait(&"vm-1", Duration::MAX)?;
            say("failed");
            Ok::<_, BoxError>(())
        };
        manager.add(Component::function("failed", failed)).unwrap();
        manager.run_until_signal().unwrap();
        return say("ended");
    }
    let mut process = Process::start("sigusr1_prints_the_status_and_stops_nothing");
    let mut errors = BufReader::new(process.child.stderr.take().unwrap()).lines();
    process.wait_for("failed");
    for _ in 0..2 {
        process.signal(Signal::USR1);
        let expected = [
            "appliance: ",
            "controller  phase",
            "vm          running",
            "vm: \"vm-1\" is parked, failed once: no such image",
        ];
        for expected in expected {
            let line = errors.next().unwrap().unwrap();
            assert!(line.starts_with(expected), "{line}");
        }
    }
    process.signal(Signal::TERM);
    process.ends_well();
}

/// Returns a function that says when it starts and when it is cancelled.
fn beat() -> Component {
    Component::function("beat", |cx: &Context| {
        say("started");
        let cancelled = cx.sleep(Duration::MAX);
        say("stopped");
        cancelled
    })
}

/// Returns the two ends of a pipe. The writing end is full.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
    for size in [4096, 1] {
        while writer.write_all(&vec![b' '; size]).is_ok() {}
    }
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::empty()).unwrap();
    (reader, writer)
}

#[test]
fn a_full_pipe_at_standard_error_delays_no_stop() {
    if is_child() {
        let manager = Manager::builder().build().unwrap();
        manager.add(beat()).unwrap();
        manager.run_until_signal().unwrap();
        return say("ended");
    }
    let (_reader, writer) = full_pipe();
    let this = Command::new(std::env::current_exe().unwrap());
    let mut process = Process::start_by(this, "a_full_pipe_at_standard_error_delays_no_stop", writer.into());
    process.wait_for("started");
    for _ in 0..3 {
        process.signal(Signal::USR1);
    }
    process.signal(Signal::TERM);
    process.wait_for("stopped");
    process.ends_well();
}

/// A logger that blocks for ever.
struct StuckLogger;

impl log::Log for StuckLogger {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    #[expect(clippy::infinite_loop, reason = "the test kills the process")]
    fn log(&self, _record: &log::Record<'_>) {
        loop {
            std::thread::park();
        }
    }

    fn flush(&self) {}
}

#[test]
fn a_logger_that_blocks_keeps_no_component_from_its_stop() {
    if is_child() {
        let manager = Manager::builder().build().unwrap();
        let first = |cx: &Context| {
            let cancelled = cx.sleep(Duration::MAX);
            say("first stopped");
            cancelled
        };
        manager.add(Component::function("first", first)).unwrap();
        let last = |cx: &Context| {
            log::set_logger(&StuckLogger).unwrap();
            log::set_max_level(log::LevelFilter::Trace);
            say("started");
            let cancelled = cx.sleep(Duration::MAX);
            say("last stopped");
            cancelled
        };
        let starts = Component::function("last", last);
        manager.add(starts).unwrap();
        manager.run_until_signal().unwrap();
        return;
    }
    let mut process = Process::start("a_logger_that_blocks_keeps_no_component_from_its_stop");
    process.wait_for("started");
    process.signal(Signal::TERM);
    for _ in 0..2 {
        process.wait_for("stopped");
    }
}

/// Returns whether a process ignores SIGINT.
fn ignores_sigint(process: &Process) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.child.id())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0
}

#[cfg(target_os = "linux")]
#[test]
fn a_sigint_that_was_ignored_before_the_start_stays_ignored() {
    if is_child() {
        let manager = Manager::builder().build().unwrap();
        manager.add(beat()).unwrap();
        manager.run_until_signal().unwrap();
        return say("ended");
    }
    let test = "a_sigint_that_was_ignored_before_the_start_stays_ignored";
    for is_ignored in [true, false] {
        let mut shell = Command::new("sh");
        let trap = if is_ignored { "trap '' INT; " } else { "" };
        shell.args(["-c", &format!("{trap}exec \"$0\" \"$@\"")]).arg(std::env::current_exe().unwrap());
        let mut process = Process::start_by(shell, test, Stdio::piped());
        process.wait_for("started");
        assert_eq!(ignores_sigint(&process), is_ignored);
        process.signal(Signal::INT);
        if is_ignored {
            // The first signal that is heard stops the manager, so this one does.
            process.signal(Signal::TERM);
        }
        process.wait_for("stopped");
        process.ends_well();
    }
}
