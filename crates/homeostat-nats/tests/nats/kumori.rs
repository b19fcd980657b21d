//! The example `kumori` against a real server, with two controllers, one of which is killed.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::Signal;

use crate::process::Program;
use crate::support::server::TestServer;
use crate::until::until;
use homeostat_test_support::example;

fn command(server: &TestServer, folder: &Path, arguments: &[&str]) -> Command {
    static PROGRAM: OnceLock<std::path::PathBuf> = OnceLock::new();
    let mut command = Command::new(PROGRAM.get_or_init(|| example!("kumori")));
    command.arg("--server").arg(server.url()).arg("--folder").arg(folder).args(arguments);
    command
}

/// Starts a controller.
fn serve(server: &TestServer, folder: &Path, name: &str) -> Program {
    let mut program = Program::start(command(server, folder, &["serve", "--name", name]));
    program.expect(&format!("Controller {name} serves."));
    program
}

/// Runs a command to its end. Returns its output.
fn run(server: &TestServer, folder: &Path, arguments: &[&str]) -> String {
    let output = command(server, folder, arguments).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{arguments:?}: {text}");
    text
}

#[test]
fn one_controller_continues_when_the_other_is_killed_and_a_new_one_cleans_up() {
    let server = TestServer::start();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut one = serve(&server, folder, "one");
    let mut two = serve(&server, folder, "two");
    let text = run(&server, folder, &["apply", "web", "3"]);
    assert!(text.contains("web: all 3 instances are ready."), "{text}");
    // This file is written after the status.
    let names = folder.join("names/web");
    until("file of the names", || (std::fs::read_to_string(&names).ok()? == "3").then_some(()));

    // SIGKILL: nothing is cleaned up.
    one.kill();
    run(&server, folder, &["apply", "web", "5"]);
    two.expect("web: instance web-4 is created");
    two.expect("web: 5 of 5 instances are ready");
    run(&server, folder, &["apply", "web", "1"]);
    two.expect("web: instance web-1 is no longer desired");
    run(&server, folder, &["delete", "web"]);
    two.expect("web: gone, with everything that belonged to it");
    assert!(!folder.join("names/web").exists());

    // The file of the killed controller still has the service's settings.
    let mut one = serve(&server, folder, "one");
    one.expect("web: gone, with everything that belonged to it (secondary)");
    for program in [&mut one, &mut two] {
        program.signal(Signal::INT);
        assert!(program.ended().success());
        program.expect("The controller has ended.");
    }
}

#[test]
fn faults_of_the_command_line_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = TestServer::with_arguments(&[]);
    let failed = |server: &TestServer| {
        let output = command(server, folder.path(), &["apply", "web", "1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let host = server.url().replace("nats://", "");
    let text = format!("error: JetStream is not enabled on server {host} for this account\n");
    assert_eq!(failed(&server), text);
    server.kill();
    assert!(failed(&server).contains(&format!("error: cannot connect to any server: {host}: Connection refused")));
}
