//! The Python client `kubernetes` against a server in this process. Each test runs a program beside this file.

use std::path::Path;

use homeostat_serve::ObjectApiBuilder;

use crate::kubectl::Door;
use homeostat_test_support::installed::client;

/// Runs a program with its own server.
fn run(program: &str) {
    let door = Door::with(ObjectApiBuilder::serve_events);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/python").join(program);
    // Leave no compiled modules in the checkout.
    let output = door.program(client("python", "bin/python")).arg("-B").arg(path).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program}: {}\n{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn custom_objects_have_all_verbs() {
    run("custom_objects.py");
}

#[test]
fn the_dynamic_client_finds_and_changes_objects() {
    run("dynamic_client.py");
}

#[test]
fn typed_calls_read_and_write_built_in_kinds() {
    run("typed_calls.py");
}

#[test]
fn watches_end_resume_and_expire() {
    run("watches.py");
}
