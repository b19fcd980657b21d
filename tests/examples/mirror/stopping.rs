//! The ends of the mirror, and their exit codes.

use rustix::process::Signal;

use super::run::Pair;
use crate::until::until;

const UNFINISHED: &str = "target/a/.mirror-unfinished.large.bin";

#[test]
fn the_first_signal_lets_a_copy_finish() {
    for signal in [Signal::INT, Signal::TERM] {
        let pair = Pair::new();
        let mut run = pair.mirror(&["--rate", "1000000"]);
        until("it is written", || pair.exists(UNFINISHED));
        assert!(!pair.exists("target/a/large.bin"), "no reader sees half a file");
        run.signal(signal);
        assert_eq!(run.ended().code(), Some(0));
        run.expect("stopping after the current copies");
        let (copy, original) = ("target/a/large.bin", "source/a/large.bin");
        assert_eq!(std::fs::read(pair.path(copy)).unwrap(), std::fs::read(pair.path(original)).unwrap());
        assert!(!pair.exists(UNFINISHED));
        let head = run.expect_row("controller").number;
        assert!(run.expect_row("dirs").number > head && run.expect_row("files").number > head);
    }
}

#[test]
fn a_second_signal_aborts_at_once() {
    for (first, second) in [(Signal::TERM, Signal::TERM), (Signal::TERM, Signal::INT)] {
        let pair = Pair::new();
        let mut run = pair.mirror(&["--rate", "1", "--grace", "1h"]);
        until("it is written", || pair.exists(UNFINISHED));
        run.signal(first);
        run.expect("stopping after the current copies");
        run.signal(second);
        assert_eq!(run.code(), (Some(1), "error: aborted".to_owned()));
        run.expect("stopping at once");
        assert!(!pair.exists("target/a/large.bin") && !pair.exists(UNFINISHED));
    }
}

#[test]
fn a_copy_that_outlasts_the_grace_period_is_aborted() {
    let pair = Pair::new();
    let mut run = pair.mirror(&["--rate", "1", "--grace", "10ms"]);
    until("it is written", || pair.exists(UNFINISHED));
    run.signal(Signal::TERM);
    assert_eq!(run.ended().code(), Some(0));
    run.expect("aborting");
    assert!(!pair.exists("target/a/large.bin") && !pair.exists(UNFINISHED));
}

#[test]
fn it_ends_by_itself_when_its_time_is_over() {
    let pair = Pair::new();
    assert_eq!(pair.mirror(&["--for", "50ms"]).ended().code(), Some(0));
}

#[test]
fn a_difference_at_the_end_is_exit_code_1() {
    let unequal = (Some(1), "error: stopped before all was equal".to_owned());
    let pair = Pair::new();
    pair.mirror(&["--once"]).ended();
    pair.remove("target/top.txt");
    pair.link("target/top.txt", "empty.txt");
    assert_eq!(pair.mirror(&["--once", "--for", "100ms"]).code(), unequal);

    let mut run = pair.mirror(&["--once"]);
    run.expect("the target has something else here, which is not touched");
    run.signal(Signal::TERM);
    assert_eq!(run.code(), unequal);

    pair.remove("target/top.txt");
    assert_eq!(pair.mirror(&["--once"]).ended().code(), Some(0));
}
