//! The operator on its embedded store, driven as a process.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::process::Program;
use homeostat_test_support::example;

/// Runs the operator. Returns its exit code, and standard output followed by standard error.
fn run(arguments: &[&OsStr]) -> (Option<i32>, String) {
    let output = Command::new(example!("operator")).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn the_operator_shows_its_work_on_an_embedded_store() {
    let (code, text) = run(&[]);
    assert_eq!(code, Some(0), "{text}");
    let mut rest = &*text;
    for line in [
        "A site is created.",
        "Available is False: Waiting 0 of 2 web servers are available",
        "Ready is True: Ready",
        "It comes back.",
        "Ready is False: NoPages the site has no pages",
        "The site is deleted",
        "Removed garden: the site left the index",
        "The operator has ended.",
    ] {
        let (_, after) = rest.split_once(line).unwrap_or_else(|| panic!("no {line:?} in {rest}"));
        rest = if line.starts_with("Removed") { &text } else { after };
    }
}

#[test]
fn the_operator_ends_cleanly_when_interrupted() {
    let mut command = Command::new(example!("operator"));
    command.args(["--for", "1h"]);
    let mut program = Program::start(command);
    program.expect("Running for 3600s");
    program.signal(Signal::INT);
    assert!(program.ended().success());
    program.expect("The operator has ended.");
}

/// Without a path, the operator finds its settings as `kubectl` does.
#[test]
fn the_operator_says_where_it_has_looked_for_settings() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(example!("operator"));
    command.arg("--kubeconfig").env("HOME", home.path());
    for variable in ["KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "RUST_LOG"] {
        command.env_remove(variable);
    }
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("error: kubernetes: no settings found: ") && error.lines().count() == 1, "{error}");
}

#[test]
fn the_operator_writes_its_rules_and_manifests() {
    let (code, rules) = run(&["rules".as_ref()]);
    assert!(code == Some(0) && rules.contains("  - sites/finalizers\n  verbs:\n  - update\n"), "{rules}");

    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("manifests");
    let (code, paths) = run(&["manifests".as_ref(), target.as_os_str(), "--namespace=web".as_ref()]);
    assert_eq!(code, Some(0), "{paths}");
    let manifests: Vec<_> = paths.lines().map(|path| fs::read_to_string(path).unwrap()).collect();
    let kinds = |manifest: &String| -> Vec<String> {
        manifest.lines().filter_map(|line| line.strip_prefix("kind: ")).map(str::to_owned).collect()
    };
    assert_eq!(
        manifests.iter().map(kinds).collect::<Vec<_>>(),
        [
            vec!["CustomResourceDefinition"],
            vec!["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"],
            vec!["Deployment"],
        ]
    );
    assert!(manifests[2].contains("namespace: web"));
}

#[test]
fn the_operator_refuses_bad_arguments_and_kubeconfigs() {
    let (code, help) = run(&["--help".as_ref()]);
    assert!(code == Some(0) && help.contains("Usage: operator") && help.contains("--kubeconfig [<PATH>]"), "{help}");
    let (code, error) = run(&["--no-such-option".as_ref()]);
    assert!(code == Some(2) && error.contains("'--no-such-option'"), "{error}");
    let (code, error) = run(&["--kubeconfig".as_ref(), "/no/such/file".as_ref()]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.starts_with("error: /no/such/file: ") && error.lines().count() == 1, "{error}");
}
