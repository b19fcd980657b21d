//! The system around a test: processes, ports, variables, and the time that no test holds.

use std::env;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::str::FromStr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// The environment variable that marks the process of [`in_a_process_of_its_own`].
const CHILD: &str = "HOMEOSTAT_TEST_CHILD";

/// Runs `body` in a new process that runs the test `name` only. An abort of the process fails the test.
pub fn in_a_process_of_its_own(name: &str, body: impl FnOnce()) {
    if env::var_os(CHILD).is_some() {
        body();
        return;
    }
    let mut child = Command::new(env::current_exe().unwrap());
    let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success() && out.contains("1 passed"), "{name}: {}\n{out}\n{err}", output.status);
}

/// Returns a free port on loopback.
///
/// It is outside the system's ephemeral range. In that range, a client could connect to itself while its server is
/// down, and the server could not start again.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that start at the same time begin their search at different ports.
    let start = u16::try_from(std::process::id() % 1_000).unwrap() * 20;
    for _ in 0..20_000 {
        let port = 10_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}

/// Returns the number in an environment variable, or a default.
pub fn number_of<N: FromStr>(variable: &str, default: N) -> N {
    env::var(variable)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, but must be a number")))
}

/// Waits for a while.
#[expect(clippy::disallowed_methods, reason = "sockets and other processes know no held clock")]
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
