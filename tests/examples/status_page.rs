//! The status page of invented work.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use homeostat_test_support::example;

/// The program, until it is dropped.
struct Program {
    child: Child,
    /// Host and port.
    address: String,
}

impl Program {
    fn start() -> Self {
        let mut command = Command::new(example!("status_page"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("Look at http://").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { child, address }
    }

    /// Ends its input, and waits for its end. Returns whether it has succeeded.
    fn end(&mut self) -> bool {
        drop(self.child.stdin.take());
        self.child.wait().unwrap().success()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// Needs the package `chromium`. `.ci/run` installs it.
#[test]
fn a_browser_shows_each_page_without_overlap_at_each_width() {
    let program = Program::start();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/status-pictures");
    let mut command = Command::new(script);
    command.args(["--check", &format!("http://{}", program.address), "25"]);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn the_page_shows_the_controllers_until_the_input_ends() {
    let mut program = Program::start();
    let address = &program.address;
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for part in ["appliance", "vm", "disk", "network", "zone"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(program.end());
}
