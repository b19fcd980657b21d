//! The supervisor example as a process: the tests edit its file, kill its services, and send it signals. After each
//! test no process may be left.
//!
//! The tests wait for events. Time decides nothing. They look for processes in `/proc`, so they need Linux.

mod edits;
mod restarts;
mod run;
mod stopping;

use rustix::process::Signal;

use self::run::{Run, idler, lives, service};
use crate::until::until;

#[test]
fn the_table_shows_every_service() {
    let mut run = Run::start(&[idler("a"), service("b", "exit 3", "restart = 'never'")].concat());
    let pid = run.started("a").as_raw_nonzero().to_string();
    run.expect("b: ended");
    run.signal(Signal::USR1);
    assert_eq!(run.expect_row("NAME").cells(), ["NAME", "STATE", "PID", "RESTARTS", "SINCE", "LAST EXIT"]);
    let (a, b) = (run.expect_row("a"), run.expect_row("b"));
    let (a, b) = (a.cells(), b.cells());
    assert_eq!((&a[..4], a[5]), (&["a", "running", &pid, "0"][..], "-"));
    assert_eq!((&b[..4], b[5]), (&["b", "ended", "-", "0"][..], "exit status: 3"));
    run.signal(Signal::INT);
    assert!(run.ended().success());
    run.no_orphans();
}

#[test]
fn the_file_that_ships_works_as_described() {
    let mut run = Run::start(include_str!("../../../examples/services.toml"));
    run.expect("clock says ");
    run.expect("once: ended");
    run.expect("flaky: ended");
    run.expect("flaky: started as pid ");
    until("both of the family run", || run.processes_of("family").len() == 2);
    run.signal(Signal::INT);
    assert!(run.ended().success());
    run.expect("stubborn: killing pid ");
    run.no_orphans();
}

#[test]
fn it_ends_by_itself_when_asked_to() {
    let mut run = Run::start_with(&idler("a"), &["--for", "100ms"]);
    assert!(run.ended().success());
    run.expect_row("NAME");
    run.no_orphans();
}

#[test]
fn a_poll_period_of_zero_is_refused_and_starts_nothing() {
    let mut run = Run::start_with(&idler("a"), &["--poll", "0s"]);
    assert_eq!(run.ended().code(), Some(2));
    assert!(run.expect("error: ").text.contains("'0s' for '--poll <DURATION>': must be longer than zero"));
    assert!(!run.unasked().iter().any(|line| line.contains("started")));
    run.no_orphans();
}

#[test]
fn a_line_of_a_service_is_behind_its_name() {
    let talker = service("a", "echo one; echo two >&2; printf three; exit 3", "restart = 'never'");
    let mut run = Run::start(&talker);
    for line in ["one", "two", "three"] {
        let line = format!("[a] {line}");
        run.find(&line, |found| found.text == line);
    }
    run.expect("a: ended");
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    run.no_orphans();
}

#[test]
fn a_program_that_keeps_ending_is_failing_in_the_table() {
    let options = ["--poll", "20ms", "--backoff", "1h", "--backoff-cap", "1h"];
    let mut run = Run::start_with(&[idler("a"), service("b", "exit 3", "")].concat(), &options);
    run.started("a");
    assert!(run.expect("b: ended").text.contains("restart in 1h 00m"));
    run.signal(Signal::USR1);
    let failing = run.expect("services: \"b\" is failing, failed ").text;
    assert!(failing.contains("ended (exit status: 3), restart in "), "{failing}");
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    run.no_orphans();
}

/// The command is taken from the example's documentation.
#[test]
fn programs_that_survive_a_kill_of_the_supervisor_can_be_found() {
    let mut run = Run::start(&[idler("a"), service("family", "sleep 999 & echo there; wait", "")].concat());
    run.started("a");
    let supervisor = run.id();
    run.expect("there");
    until("all run", || run.processes().len() == 3);
    run.signal(Signal::KILL);
    until("the supervisor is gone", || !lives(supervisor));
    // A process shows no environment while it calls `exec`.
    until("all live on", || run.processes().len() == 3);

    let documentation = include_str!("../../../examples/supervisor/main.rs");
    let recipe = documentation.lines().find(|line| line.contains("/proc/")).expect("a line that looks into /proc");
    let recipe = recipe.trim_start_matches("//! ").replace("1234", &supervisor.as_raw_nonzero().to_string());
    let status = std::process::Command::new("sh").args(["-c", &recipe]).status().unwrap();
    assert!(status.success(), "{recipe}");
    run.no_orphans();
}
