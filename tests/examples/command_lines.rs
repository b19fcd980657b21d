//! The command lines of all examples, driven as processes.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use crate::process::Program;
use homeostat_test_support::example;
use rustix::process::Signal;

/// The examples with a command line. `kumori` is tested with the other tests of NATS.
const EXAMPLES: [&str; 8] =
    ["supervisor", "mirror", "function", "sites", "operator", "fleet", "appliance", "status_page"];

/// Runs an example. Returns its exit code, and standard output followed by standard error.
#[cfg(test)]
fn run(name: &str, arguments: &[&OsStr]) -> (Option<i32>, String) {
    let output = Command::new(example!(name)).args(arguments).env_remove("RUST_LOG").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn every_example_has_help_and_a_version_and_refuses_unknown_arguments() {
    for name in EXAMPLES {
        let (code, help) = run(name, &["--help".as_ref()]);
        assert!(code == Some(0) && help.contains("Usage: "), "{name}: {help}");
        let (code, version) = run(name, &["--version".as_ref()]);
        assert_eq!((code, version), (Some(0), format!("{name} {}\n", env!("CARGO_PKG_VERSION"))), "{name}");
        let (code, error) = run(name, &["--no-such-option".as_ref()]);
        assert!(code == Some(2) && error.contains("'--no-such-option'"), "{name}: {error}");
    }
}

#[test]
fn sites_refuses_a_foreign_file_by_its_path_and_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("passwd");
    fs::write(&file, "root:x:0:0:root:/root:/bin/bash\n").unwrap();
    let (code, error) = run("sites", &[file.as_os_str()]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.starts_with(&format!("error: {}: ", file.display())) && error.lines().count() == 1, "{error}");
    assert_eq!(error.matches(file.to_str().unwrap()).count(), 1, "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    // A file has no subfolders.
    let below = file.join("sites.redb");
    let (code, error) = run("sites", &[below.as_os_str()]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.starts_with(&format!("error: {}: ", file.display())), "{error}");
}

/// Causes come after the error, in the same line.
#[test]
fn a_server_says_why_it_cannot_listen() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let data = tempfile::tempdir().unwrap();
    let (port, listen) = (format!("--port={}", address.port()), address.to_string());
    for (name, arguments) in [
        ("appliance", vec!["--data".as_ref(), data.path().as_os_str(), port.as_ref()]),
        ("status_page", vec![listen.as_ref()]),
    ] {
        let output = Command::new(example!(name)).args(&arguments).env_remove("RUST_LOG").output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}: {error}");
        let cause =
            error.strip_prefix(&format!("error: cannot listen on {address}: ")).unwrap_or_else(|| panic!("{error}"));
        assert!(cause.contains("in use") && cause.lines().count() == 1, "{name}: {error}");
    }
}

#[test]
fn sites_continues_when_it_runs_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sites.redb");
    for visit in 1..=2 {
        let (code, text) = run("sites", &[file.as_os_str()]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(&format!("Visit number {visit}.\n")), "{text}");
    }
}

#[test]
fn function_shows_its_changes_and_ends() {
    let (code, text) = run("function", &[]);
    assert_eq!(code, Some(0), "{text}");
    let mut rest = &*text;
    for line in [
        "A function is created, and no config map names the registry.",
        "The config map is created: the function tracks it.",
        "The config map names a new builder.",
        "The function gets new code.",
        "The function is deleted, and its image with it.",
    ] {
        rest = rest.split_once(line).unwrap_or_else(|| panic!("no {line:?} in {rest}")).1;
    }
}

#[test]
fn sites_without_a_limit_ends_cleanly_when_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(example!("sites"));
    command.args(["--for", "1h"]).arg(folder.path().join("sites.redb"));
    let mut program = Program::start(command);
    program.expect("Running for 3600s");
    program.signal(Signal::INT);
    assert!(program.ended().success());
    program.expect("All has ended.");
}
