//! Clients of Kubernetes that others have written, against a server in this process. Each test starts its client as the
//! client's users do. The page about clients in the guide has a row for each.

mod kopf;
mod prometheus;

use std::path::{Path, PathBuf};
use std::process::Command;

use homeostat_objects::{Kind, KindDefinition};
use homeostat_serve::ObjectApiBuilder;

use crate::kubectl::Door;
use homeostat_test_support::installed::client;

/// Returns the path of a file beside this one.
fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/clients").join(name)
}

/// Runs a command that must succeed.
#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}\n{err}");
    out
}

/// Returns a command that runs Python as a user of this server, with a program beside this file or a module.
fn python(door: &Door, arguments: &[&str]) -> Command {
    let mut command = door.program(client("python", "bin/python"));
    // Leave no compiled modules in the checkout.
    command.arg("-B").args(arguments).env("SERVER", door.url());
    command
}

fn runs(program: &str) {
    let door = Door::with(ObjectApiBuilder::serve_events);
    succeeds(&mut python(&door, &[beside(program).to_str().unwrap()]));
}

#[test]
fn kr8s_reads_writes_and_watches() {
    runs("with_kr8s.py");
}

#[test]
fn lightkube_reads_writes_and_watches() {
    runs("with_lightkube.py");
}

#[test]
fn easykube_reads_writes_and_watches() {
    runs("with_easykube.py");
}

#[test]
fn a_playbook_of_ansible_changes_what_differs() {
    let door = Door::with(ObjectApiBuilder::serve_events);
    let playbook = beside("playbook.yaml");
    let mut command = python(&door, &["-m", "ansible", "playbook", "--inventory", "localhost,"]);
    let interpreter = format!("ansible_python_interpreter={}", client("python", "bin/python").display());
    command.args(["--extra-vars", &interpreter]).arg(playbook).current_dir(door.home());
    command.env("ANSIBLE_COLLECTIONS_PATH", client("python", "collections")).env("LC_ALL", "C.UTF-8");
    succeeds(&mut command);
}

#[test]
fn client_node_reads_writes_watches_and_informs() {
    let door = Door::with(ObjectApiBuilder::serve_events);
    let mut command = door.program("node");
    command.arg(beside("client_node.mjs")).env("NODE_FOLDER", client("node", ""));
    succeeds(&mut command);
}

/// The kinds that client-go knows, besides sites.
#[test]
fn client_go_informs_elects_and_records() {
    let lease = KindDefinition::new(Kind::namespaced("coordination.k8s.io", "v1", "Lease")).with_status(false);
    let door = Door::with(|api| api.serve(lease).serve_events());
    let source = std::fs::read_to_string(client("go", "main.go")).unwrap();
    assert!(source == include_str!("go/main.go"), "the program has changed: run .ci/clients go");
    succeeds(&mut door.program(client("go", "client")));
}
