//! Services are stopped: one of them, or all.

use rustix::process::{Signal, kill_process};

use super::run::{Run, idler, is_halted, lives, service};
use crate::until::until;

#[test]
fn a_program_that_ignores_its_signal_is_killed_after_its_grace() {
    let deaf = service("deaf", "trap '' TERM; echo deaf ears; while :; do sleep 0.1; done", "stop-timeout = '200ms'");
    let mut run = Run::start(&[deaf, idler("b")].concat());
    let pid = run.started("deaf");
    run.expect("deaf ears");
    run.edit(&idler("b"));
    run.expect("deaf: stopping pid");
    run.expect("deaf: killing pid");
    run.expect("deaf: stopped (signal: 9 (SIGKILL))");
    assert!(!lives(pid));
    until("all its processes have ended", || run.processes_of("deaf").is_empty());
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    run.no_orphans();
}

#[test]
fn a_stopped_group_may_finish_after_its_leader() {
    let child = r#"sh -c "trap 'sleep 0.1; echo all saved; exit' TERM; echo ready; while :; do sleep 0.05; done""#;
    let mut run = Run::start(&service("pair", &format!("{child} & wait"), ""));
    run.started("pair");
    run.expect("ready");
    run.signal(Signal::TERM);
    run.expect("pair: stopped (signal: 15 (SIGTERM))");
    run.expect("all saved");
    assert!(run.ended().success());
    run.no_orphans();
}

#[test]
fn a_group_that_outstays_its_leader_is_killed() {
    let child = r#"sh -c "trap '' TERM; echo ready; while :; do sleep 0.05; done""#;
    let pair = service("pair", &format!("{child} & wait"), "stop-timeout = '200ms'");
    let mut run = Run::start_with(&pair, &["--poll", "1h"]);
    run.started("pair");
    run.expect("ready");
    run.signal(Signal::TERM);
    run.expect("pair: killing pid");
    run.expect("pair: stopped (signal: 15 (SIGTERM))");
    assert!(run.ended().success());
    run.no_orphans();
}

#[test]
fn a_process_that_is_halted_stops_too() {
    let mut run = Run::start(&service("a", "exec sleep 999", "stop-timeout = '1h'"));
    let pid = run.started("a");
    kill_process(pid, Signal::STOP).unwrap();
    until("it is halted", || is_halted(pid));
    run.signal(Signal::TERM);
    run.expect("a: stopped (signal: 15 (SIGTERM))");
    assert!(run.ended().success());
    run.no_orphans();
}

#[test]
fn everything_stops_in_the_reverse_order_of_the_file() {
    let deaf = service("deaf", "trap '' TERM; echo deaf ears; while :; do sleep 0.1; done", "stop-timeout = '200ms'");
    let polite = service(
        "polite",
        "trap 'echo bye; exit 5' INT; echo at work; while :; do sleep 0.1; done",
        "stop-signal = 'INT'",
    );
    let mut run = Run::start_with(&[idler("a"), deaf, idler("m"), polite].concat(), &["--poll", "1h"]);
    for service in ["a", "deaf", "m", "polite"] {
        run.started(service);
    }
    run.expect("deaf ears");
    run.expect("at work");
    run.signal(Signal::TERM);
    assert!(run.ended().success());

    let ends = [
        "polite: stopped (exit status: 5)",
        "m: stopped (signal: 15",
        "deaf: stopped (signal: 9",
        "a: stopped (signal: 15",
    ];
    let ends = ends.map(|end| run.expect(end).number);
    assert!(ends.is_sorted(), "{ends:?}");
    let begins =
        ["polite: stopping", "m: stopping", "deaf: stopping", "a: stopping"].map(|begin| run.expect(begin).number);
    for (end, begin) in ends.iter().zip(&begins[1..]) {
        assert!(end < begin, "each begins when the one before it is gone: {begins:?} {ends:?}");
    }
    let head = run.expect_row("NAME").number;
    assert!(head > ends[3]);
    let table = ["a", "deaf", "m", "polite"].map(|name| run.expect_row(name).number);
    assert!(table.is_sorted(), "the table at the end is in the order of the file");
    run.no_orphans();
}

#[test]
fn a_second_signal_kills_at_once() {
    for (first, second) in [(Signal::TERM, Signal::TERM), (Signal::INT, Signal::INT), (Signal::TERM, Signal::INT)] {
        let deaf =
            |name: &str| service(name, "trap '' TERM; echo ears; while :; do sleep 0.1; done", "stop-timeout = '1h'");
        let mut run = Run::start_with(&[deaf("one"), deaf("two")].concat(), &["--grace", "1h"]);
        run.expect("ears");
        run.expect("ears");
        run.signal(first);
        run.expect("two: stopping");
        run.signal(second);
        assert!(run.ended().success());
        run.expect("two: stopped (signal: 9 (SIGKILL))");
        run.expect("one: stopped (signal: 9 (SIGKILL))");
        for name in ["one", "two"] {
            run.expect(&format!("{name}: killing pid "));
            let again = format!("{name}: killing pid ");
            assert!(!run.unasked().iter().any(|line| line.contains(&again)), "{:?}", run.unasked());
        }
        run.no_orphans();
    }
}

#[test]
fn stopping_takes_no_longer_than_the_grace_period() {
    let deaf = service("deaf", "trap '' TERM; echo ears; while :; do sleep 0.1; done", "stop-timeout = '1h'");
    let mut run = Run::start_with(&deaf, &["--grace", "100ms"]);
    run.expect("ears");
    run.signal(Signal::TERM);
    run.expect("killing everything");
    assert!(run.ended().success());
    run.no_orphans();
}
