//! The supervisor example, driven as a process: its file is edited, its services are killed, it gets signals. Whatever a
//! test does, nothing may be left behind.
//!
//! The tests wait for what happens and decide nothing by the time it takes. They look for processes in `/proc`, so they
//! are for Linux.

#![cfg(all(target_os = "linux", not(loom)))]

#[cfg(test)]
mod harness;

use rustix::process::{Signal, kill_process};

use harness::{Run, lives, run_to_end, until};

/// A service that runs until it is told to stop.
fn idler(name: &str) -> String {
    service(name, "exec sleep 999", "")
}

fn service(name: &str, script: &str, more: &str) -> String {
    format!("[[service]]\nname = \"{name}\"\ncommand = \"sh\"\nargs = [\"-c\", '''{script}''']\n{more}\n")
}

#[test]
fn edits_of_the_file_are_followed() {
    let says = |word: &str| service("b", &format!("echo b says {word}; exec sleep 999"), "");
    let mut run = Run::start(&[idler("a"), says("one")].concat());
    let (a, b) = (run.started("a"), run.started("b"));
    run.expect("b says one");

    // Added.
    run.edit(&[idler("a"), says("one"), idler("c")].concat());
    let c = run.started("c");

    // Changed: b only.
    run.edit(&[idler("a"), says("two"), idler("c")].concat());
    run.expect("b: stopped (signal: 15");
    assert_ne!(run.started("b"), b);
    run.expect("b says two");
    assert!(!lives(b));

    // Removed.
    run.edit(&[says("two"), idler("c")].concat());
    run.expect("a: stopped (signal: 15");
    run.expect("a: is no longer in the file");
    assert!(!lives(a));

    let pid = c.as_raw_nonzero().to_string();
    assert_eq!(run.row("c").cells()[..4], ["c", "running", &pid, "0"]);
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    run.no_orphans();
}

#[test]
fn a_change_of_policy_is_adopted_by_the_process_that_runs() {
    let mut run = Run::start(&service("a", "exec sleep 999", "restart = 'always'"));
    let a = run.started("a");
    run.edit(&service("a", "exec sleep 999", "restart = 'never'"));
    run.expect("a: has new settings");
    kill_process(a, Signal::KILL).unwrap();
    run.expect("(signal: 9 (SIGKILL)), no restart");
    assert_eq!(run.row("a").cells()[1], "ended");

    // A policy that would have it back brings it back.
    run.edit(&service("a", "exec sleep 999", "restart = 'on-failure'"));
    run.started("a");
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    run.no_orphans();
}

#[test]
fn what_is_killed_comes_back_later_each_time_and_no_poll_is_needed() {
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
        run.expect("restart in 0ns");
    }
    run.started("a");
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    run.no_orphans();
}

#[test]
fn the_policy_decides_what_follows_an_end() {
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
fn what_ignores_its_signal_is_killed_when_its_time_is_over() {
    let deaf = service("deaf", "trap '' TERM; echo deaf ears; while :; do sleep 0.1; done", "stop-timeout = '200ms'");
    let mut run = Run::start(&[deaf, idler("b")].concat());
    let pid = run.started("deaf");
    run.expect("deaf ears");
    run.edit(&idler("b"));
    run.expect("deaf: stopping pid");
    run.expect("deaf: killing pid");
    run.expect("deaf: stopped (signal: 9 (SIGKILL))");
    assert!(!lives(pid));
    until("nothing of it is left", || run.processes_of("deaf").is_empty());
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

#[test]
fn a_group_that_was_told_to_stop_may_finish_after_its_leader() {
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
    kill_process(run.started("a"), Signal::STOP).unwrap();
    run.signal(Signal::TERM);
    run.expect("a: stopped (signal: 15 (SIGTERM))");
    assert!(run.ended().success());
    run.no_orphans();
}

#[test]
fn a_broken_file_is_one_line_and_everything_goes_on() {
    let (a, b) = (idler("a"), idler("b"));
    let mut run = Run::start_with(&[a.clone(), b.clone()].concat(), &["--poll", "5ms", "--backoff", "10ms"]);
    let (mut last, other) = (run.started("a"), run.started("b"));

    run.edit(&[a.clone(), b.clone(), "stop-timeout = \"soon\"\n".to_owned()].concat());
    let error = run.expect("ERROR").text;
    assert!(error.contains("services.toml:11: service \"b\": `stop-timeout`: \"soon\" is not a duration"), "{error}");

    // What runs is supervised as before, and through many a look at the file.
    for _ in 0..3 {
        kill_process(last, Signal::KILL).unwrap();
        last = run.started("a");
    }
    assert!(lives(other));

    // Gone altogether: another line.
    std::fs::remove_file(run.folder().join("services.toml")).unwrap();
    let error = run.expect("ERROR").text;
    assert!(error.contains("services.toml: No such file or directory"), "{error}");

    run.edit(&[a, b, idler("c")].concat());
    run.started("c");
    assert!(lives(other));
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    assert!(!run.unasked().iter().any(|line| line.contains("ERROR")), "{:?}", run.unasked());
    run.no_orphans();
}

#[test]
fn a_file_that_is_broken_at_the_start_is_one_line_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("services.toml");
    std::fs::write(&file, "[[service]]\nname = \"web\"\ncomand = \"httpd\"\n").unwrap();
    let expected = format!(
        "error: {}:3: service \"web\": unknown key `comand` (known: name, command, args, env, directory, restart, stop-signal, stop-timeout)\n",
        file.display()
    );
    assert_eq!(run_to_end(&[file.as_os_str()]), (Some(2), expected.clone()));
    assert_eq!(run_to_end(&["--check".as_ref(), file.as_os_str()]), (Some(2), expected));

    std::fs::write(&file, idler("web")).unwrap();
    assert_eq!(run_to_end(&["--check".as_ref(), file.as_os_str()]), (Some(0), String::new()));

    std::fs::remove_file(&file).unwrap();
    let (code, error) = run_to_end(&[file.as_os_str()]);
    assert_eq!(code, Some(2));
    assert!(error.contains("services.toml: No such file or directory") && error.lines().count() == 1, "{error}");
}

#[test]
fn an_edit_ends_a_backoff_and_a_new_policy_is_heeded_in_it() {
    let dying = |name: &str, policy: &str| service(name, "exit 7", &format!("restart = '{policy}'"));
    let options = ["--poll", "20ms", "--backoff", "1h", "--backoff-cap", "1h"];
    let mut run = Run::start_with(&[dying("a", "always"), dying("b", "always")].concat(), &options);
    run.expect("a: ended");
    run.expect("b: ended");
    assert!(run.row("a").cells()[1].starts_with("back in 59m "));
    run.edit(&[idler("a"), dying("b", "never")].concat());
    run.started("a");
    run.started("a");
    run.expect("b: has new settings");
    assert_eq!(run.row("b").cells()[1], "ended");
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    run.no_orphans();
}

#[test]
fn what_cannot_be_started_is_tried_again_and_an_edit_mends_it() {
    let broken = "[[service]]\nname = \"a\"\ncommand = \"/no/such/program\"\n";
    let lost = "[[service]]\nname = \"b\"\ncommand = \"true\"\ndirectory = \"/no/such/place\"\n";
    let mut run = Run::start_with(&[broken, lost].concat(), &["--poll", "20ms", "--backoff", "10ms"]);
    for _ in 0..3 {
        run.expect("cannot start: /no/such/program: No such file or directory");
        run.expect("cannot start: /no/such/place: not a directory");
    }
    assert_eq!(run.row("a").cells()[1], "failed");
    run.edit(&[idler("a"), idler("b")].concat());
    run.started("a");
    run.started("b");
    run.signal(Signal::TERM);
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

#[test]
fn a_hangup_has_the_file_read_at_once() {
    let mut run = Run::start_with(&idler("a"), &["--poll", "1h"]);
    run.started("a");
    run.edit(&[idler("a"), idler("b")].concat());
    run.signal(Signal::HUP);
    run.started("b");
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    run.no_orphans();
}

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
fn it_ends_by_itself_when_asked_to() {
    let mut run = Run::start_with(&idler("a"), &["--for", "100ms"]);
    assert!(run.ended().success());
    run.expect_row("NAME");
    run.no_orphans();
}

#[test]
fn a_poll_period_of_zero_is_refused_and_starts_nothing() {
    let mut run = Run::start_with(&idler("a"), &["--poll", "0s"]);
    assert_eq!(run.ended().code(), Some(1));
    run.expect("error: ");
    assert!(!run.unasked().iter().any(|line| line.contains("started")));
    run.no_orphans();
}

/// The recipe is the one in the example's documentation.
#[test]
fn what_survives_a_kill_of_the_supervisor_can_be_found() {
    let mut run = Run::start(&[idler("a"), service("family", "sleep 999 & echo there; wait", "")].concat());
    run.started("a");
    let supervisor = run.id();
    run.expect("there");
    until("all run", || run.processes().len() == 3);
    run.signal(Signal::KILL);
    until("the supervisor is gone", || !lives(supervisor));
    assert_eq!(run.processes().len(), 3);

    let documentation = include_str!("../../examples/supervisor/main.rs");
    let recipe = documentation.lines().find(|line| line.contains("/proc/")).expect("a line that looks into /proc");
    let recipe = recipe.trim_start_matches("//! ").replace("1234", &supervisor.as_raw_nonzero().to_string());
    let status = std::process::Command::new("sh").args(["-c", &recipe]).status().unwrap();
    assert!(status.success(), "{recipe}");
    run.no_orphans();
}
