//! The program of the README, driven as a process.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::process::Program;
use crate::until::until;
use homeostat_test_support::example;

#[test]
fn the_readme_shows_the_code_of_the_example() {
    let shown = include_str!("../../README.md").split("```rust,no_run\n").nth(1).unwrap().split("```").next().unwrap();
    let code = include_str!("../../examples/first/directories.rs").split_once("\n\n#![expect").unwrap().1;
    let code = code.split_once("\n\n").unwrap().1;
    assert_eq!(shown, code);
}

#[test]
fn it_creates_both_directories_again_and_again_until_sigint() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(example!("directories"));
    command.current_dir(&folder);
    let mut program = Program::start(command);
    for name in ["inbox", "outbox"] {
        program.expect(&format!("created {name}"));
    }
    fs::remove_dir(folder.path().join("inbox")).unwrap();
    program.expect("created inbox");
    until("inbox is back", || folder.path().join("inbox").is_dir());
    program.signal(Signal::INT);
    assert!(program.ended().success());
}
