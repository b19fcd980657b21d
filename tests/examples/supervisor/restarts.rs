//! Services end by themselves, or are killed.

use rustix::process::{Signal, kill_process};

use super::run::{Run, UNSTARTABLE, idler, lives, service};
use crate::until::until;

#[test]
fn a_killed_program_restarts_later_each_time_without_a_poll() {
    let options = ["--poll", "1h", "--backoff", "10ms", "--backoff-cap", "40ms"];
    let mut run = Run::start_with(&[idler("a"), idler("b")].concat(), &options);
    let b = run.started("b");
    let mut last = run.started("a");
    for delay in ["10ms", "20ms", "40ms", "40ms"] {
        kill_process(last, Signal::KILL).unwrap();
        run.expect(&format!("(signal: 9 (SIGKILL)), restart in {delay}"));
        let next = run.started("a");
        assert_ne!(next, last);
        last = next;
    }
    let pid = last.as_raw_nonzero().to_string();
    assert_eq!(run.row("a").cells()[..4], ["a", "running", &pid, "4"]);
    assert!(lives(b));
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    run.no_orphans();
}

#[test]
fn a_run_that_was_stable_is_followed_at_once() {
    let mut run = Run::start_with(&idler("a"), &["--stable", "0s"]);
    for _ in 0..3 {
        kill_process(run.started("a"), Signal::KILL).unwrap();
        run.expect("restart at once");
    }
    run.started("a");
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    run.no_orphans();
}

#[test]
fn the_policy_decides_whether_a_program_restarts() {
    let services = [
        service("always", "exit 0", "restart = 'always'"),
        service("well", "exit 0", "restart = 'on-failure'"),
        service("badly", "exit 7", "restart = 'on-failure'"),
        service("never", "exit 7", "restart = 'never'"),
    ];
    let mut run = Run::start_with(&services.concat(), &["--poll", "20ms", "--backoff", "1ms"]);
    run.started("always");
    run.started("always");
    run.started("badly");
    run.started("badly");
    assert!(run.expect("well: ended").text.contains("(exit status: 0), no restart"));
    assert!(run.expect("never: ended").text.contains("(exit status: 7), no restart"));
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    for name in ["well", "never"] {
        assert_eq!(run.expect_row(name).cells()[1..4], ["ended", "-", "0"]);
    }
    run.no_orphans();
}

#[test]
fn a_program_that_cannot_be_started_is_tried_again() {
    let mut run = Run::start_with(UNSTARTABLE, &["--poll", "1h", "--backoff", "10ms"]);
    for failures in 1..=3 {
        let line = run.expect("cannot start: /no/such/program: No such file or directory").text;
        assert!(line.contains(&format!("failures={failures} ")), "{line}");
    }
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    run.no_orphans();
}

#[test]
fn nothing_of_a_group_outlives_its_leader() {
    let family = service("family", "sleep 999 & echo one & echo another & wait", "");
    let mut run = Run::start(&family);
    let leader = run.started("family");
    run.expect("another");
    until("the child runs", || run.processes_of("family").len() == 2);
    let before = run.processes_of("family");

    // The leader dies alone.
    kill_process(leader, Signal::KILL).unwrap();
    run.started("family");
    until("the first family is gone", || before.iter().all(|pid| !lives(*pid)));

    // The supervisor stops it.
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    run.no_orphans();
}
