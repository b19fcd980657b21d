//! The status page of invented work.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use homeostat_test_support::example;

#[test]
fn the_page_shows_the_controllers_until_the_input_ends() {
    let mut command = Command::new(example!("status_page"));
    let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("Look at http://").unwrap_or_else(|| panic!("{line:?}"));
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for part in ["appliance", "vm", "disk", "network", "zone"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
}
