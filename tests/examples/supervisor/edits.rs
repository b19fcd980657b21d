//! Valid and invalid edits of the file.

use rustix::process::{Signal, kill_process};

use super::run::{Run, UNSTARTABLE, idler, lives, run_to_end, service};

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

    // A policy that restarts it starts it again.
    run.edit(&service("a", "exec sleep 999", "restart = 'on-failure'"));
    run.started("a");
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    run.no_orphans();
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
fn an_edit_repairs_a_program_that_cannot_be_started() {
    let mut run = Run::start_with(UNSTARTABLE, &["--poll", "20ms", "--backoff", "1h", "--backoff-cap", "1h"]);
    run.expect("cannot start: /no/such/program: No such file or directory");
    run.expect("cannot start: /no/such/place: No such file or directory");
    let row = run.row("b");
    assert_eq!((row.cells()[1], row.cells()[5]), ("failed", "/no/such/place: No such file or directory (os error 2)"));
    run.edit(&[idler("a"), idler("b")].concat());
    run.started("a");
    run.started("b");
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    run.no_orphans();
}

#[test]
fn a_broken_file_is_one_line_and_stops_nothing() {
    let (a, b) = (idler("a"), idler("b"));
    let mut run = Run::start_with(&[a.clone(), b.clone()].concat(), &["--poll", "5ms", "--backoff", "10ms"]);
    let (mut last, other) = (run.started("a"), run.started("b"));

    run.edit(&[a.clone(), b.clone(), "stop-timeout = \"soon\"\n".to_owned()].concat());
    let error = run.expect("ERROR").text;
    assert!(error.contains("services.toml:11: service \"b\": `stop-timeout`: \"soon\" is not a duration"), "{error}");

    // Running services are supervised as before, while the file is read many times.
    for _ in 0..3 {
        kill_process(last, Signal::KILL).unwrap();
        last = run.started("a");
    }
    assert!(lives(other));

    // A missing file is another error.
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
fn a_check_looks_for_commands_and_directories() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("services.toml");
    std::fs::write(folder.path().join("plain"), "no program").unwrap();
    let more = format!(
        "{UNSTARTABLE}[[service]]\nname = \"c\"\ncommand = \"no-such-command\"\n[[service]]\nname = \"d\"\ncommand = \"{}\"\n",
        folder.path().join("plain").display()
    );
    std::fs::write(&file, more).unwrap();
    let (code, error) = run_to_end(&["--check".as_ref(), file.as_os_str()]);
    assert_eq!(code, Some(2), "{error}");
    let faults = [
        "service \"a\": /no/such/program: No such file or directory (os error 2)".to_owned(),
        "service \"b\": /no/such/place: No such file or directory (os error 2)".to_owned(),
        "service \"c\": no-such-command: no such command in PATH".to_owned(),
        format!("service \"d\": {}: not an executable file", folder.path().join("plain").display()),
    ];
    let expected = faults.map(|fault| format!("error: {}: {fault}\n", file.display())).concat();
    assert_eq!(error, expected);
}

#[test]
fn a_file_in_place_of_a_directory_is_reported() {
    let mut run = Run::start_with(
        "[[service]]\nname = \"a\"\ncommand = \"true\"\ndirectory = \"services.toml\"\n",
        &["--poll", "1h", "--backoff", "1h", "--backoff-cap", "1h"],
    );
    run.expect("services.toml: not a directory");
    run.signal(Signal::TERM);
    assert!(run.ended().success());
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
fn a_line_that_does_not_end_is_copied_in_parts() {
    // A pipe may put a log line into the middle of a long write, so the service writes after the last log line.
    let wait = "until [ -e \"${HOMEOSTAT_TEST%/*}/go\" ]; do sleep 0.01; done";
    let script = format!("{wait}; head -c 200000 /dev/zero | tr '\\0' x; exec sleep 999");
    let mut run = Run::start(&service("a", &script, ""));
    run.started("a");
    std::fs::write(run.folder().join("go"), "").unwrap();
    let part = format!("[a] {}", "x".repeat(1_000));
    let longest = (0..3).map(|_| run.expect(&part).text.len()).max();
    assert!(longest.is_some_and(|longest| longest <= 65_536 + "[a] ".len()), "{longest:?}");
    run.signal(Signal::TERM);
    assert!(run.ended().success());
    run.no_orphans();
}
