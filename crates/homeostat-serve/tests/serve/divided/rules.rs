//! The rules for the workers' records, tested with records that violate them.

use crate::fleet::check::faults;
use crate::fleet::record::{RunEnd, RunRecord, WriteOutcome, WriteRecord, parse};

fn run(process: usize, number: u64, begin: u64, until: u64, end: Option<(u64, bool)>) -> RunRecord {
    let end = end.map(|(at, lasts)| RunEnd { at, lasts });
    RunRecord { process, key: "a".to_owned(), number, begin, until, writes: Vec::new(), end }
}

fn wrote(run: RunRecord, sent: u64, done: u64, outcome: WriteOutcome) -> RunRecord {
    RunRecord { writes: vec![WriteRecord { sent, done, outcome }], ..run }
}

#[track_caller]
fn breaks(runs: &[RunRecord], rule: &str) {
    let faults = faults(runs);
    assert!(faults.len() == 1 && faults[0].contains(rule), "{faults:?}");
}

#[test]
fn two_processes_run_a_key_one_after_the_other() {
    assert_eq!(faults(&[run(0, 1, 10, 100, Some((20, true))), run(1, 2, 20, 100, Some((30, true)))]), [""; 0]);
    let rule = "two processes run";
    breaks(&[run(0, 1, 10, 100, Some((20, true))), run(1, 2, 19, 100, Some((30, true)))], rule);
    // The order of the records does not matter.
    breaks(&[run(1, 2, 19, 100, Some((30, true))), run(0, 1, 10, 100, Some((20, true)))], rule);
    // Its process was killed, but its term had not ended.
    breaks(&[run(0, 1, 10, 100, None), run(1, 2, 99, 200, None)], rule);
}

#[test]
fn a_run_may_go_on_after_its_term() {
    let next = run(1, 2, 100, 200, Some((110, true)));
    for late in
        [run(0, 1, 10, 100, None), run(0, 1, 10, 100, Some((150, false))), run(0, 1, 105, 0, Some((120, false)))]
    {
        assert_eq!(faults(&[late, next.clone()]), [""; 0]);
    }
    // A term that was extended.
    breaks(&[run(0, 1, 10, 50, Some((101, true))), next], "two processes run");
}

#[test]
fn one_process_runs_a_key_once_at_a_time() {
    breaks(&[run(0, 1, 10, 100, Some((20, false))), run(0, 1, 19, 100, Some((30, true)))], "one process runs");
    breaks(&[run(0, 1, 10, 100, None), run(0, 1, 150, 200, Some((160, true)))], "one process runs");
}

#[test]
fn numbers_rise_with_each_owner() {
    let first = run(0, 2, 10, 100, Some((20, true)));
    breaks(&[first.clone(), run(1, 1, 30, 100, Some((40, true)))], "the number falls");
    breaks(&[first.clone(), run(1, 2, 30, 100, Some((40, true)))], "two processes have one number");
    assert_eq!(faults(&[first, run(0, 2, 30, 100, Some((40, true)))]), [""; 0]);
}

#[test]
fn a_write_after_one_with_a_greater_number_is_refused() {
    use WriteOutcome::{Made, Refused};
    let late = |outcome| wrote(run(0, 1, 10, 100, Some((140, false))), 130, 140, outcome);
    let next = wrote(run(1, 2, 100, 200, Some((120, true))), 110, 120, Made);
    breaks(&[late(Made), next.clone()], "writes after");
    assert_eq!(faults(&[late(Refused), next.clone()]), [""; 0]);
    // Sent before the answer to the other write.
    let crossing = wrote(run(0, 1, 10, 100, Some((140, false))), 115, 140, Made);
    assert_eq!(faults(&[crossing, next]), [""; 0]);
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let text = "\nrunning 1 test\nfleet begin 0 a 1 10 100\nfleet begin 1 b 1 11 0\nfleet write 0 12 13 ok\nfleet end 0 20 true\n\
        fleet fault no such job\nfleet end 1 2";
    let (runs, faults) = parse(0, text);
    let first = wrote(run(0, 1, 10, 100, Some((20, true))), 12, 13, WriteOutcome::Made);
    let second = RunRecord { key: "b".to_owned(), ..run(0, 1, 11, 0, None) };
    assert_eq!(runs, [first, second]);
    assert_eq!(faults, ["worker 0: fault no such job"]);
}
