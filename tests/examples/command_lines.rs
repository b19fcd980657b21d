//! The command lines of all examples, driven as processes.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use crate::process::{Program, example_with};
use rustix::process::Signal;

const FEATURES: &str = "file-client";
const EXAMPLES: [&str; 5] = ["quickstart", "supervisor", "mirror", "function", "sites"];

/// Runs an example. Returns its exit code, and standard output followed by standard error.
#[cfg(test)]
fn run(name: &str, arguments: &[&OsStr]) -> (Option<i32>, String) {
    let output = Command::new(example_with(name, FEATURES)).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn every_example_has_help_and_a_version_and_refuses_what_it_does_not_know() {
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
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    // A file has no subfolders.
    let below = file.join("sites.redb");
    let (code, error) = run("sites", &[below.as_os_str()]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.starts_with(&format!("error: {}: ", file.display())), "{error}");
}

#[test]
fn sites_that_goes_on_ends_cleanly_when_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(example_with("sites", FEATURES));
    command.args(["--for", "1h"]).arg(folder.path().join("sites.redb"));
    let mut program = Program::start(command);
    program.expect("Going on for 3600s");
    program.signal(Signal::INT);
    assert!(program.ended().success());
    program.expect("All has ended.");
}
