//! Tests that mount. Each runs in a child process with its own view of the mounts, which ends with the process. If the
//! system does not allow that, the test says so and checks nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable with the folder of a test. Set in its child process.
const FOLDER: &str = "HOMEOSTAT_TEST_MOUNTS";

/// Runs a program, which must succeed.
pub fn command(program: &str, arguments: &[&str], folders: &[&Path]) {
    let output = Command::new(program).args(arguments).args(folders).output().unwrap();
    assert!(output.status.success(), "{program} {folders:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Mounts a file system in memory with this many bytes.
pub fn mount_memory(at: &Path, bytes: u32) {
    command("mount", &["-t", "tmpfs", "-o", &format!("size={bytes}"), "none"], &[at]);
}

/// Runs `body` with a folder, in a child process that may mount. `test` is the full name of the test.
#[expect(clippy::print_stderr, reason = "a test that checks nothing says so")]
pub fn with_mounts(test: &str, body: impl FnOnce(PathBuf)) {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return body(folder.into());
    }
    let allowed = Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !allowed.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("not checked: `unshare --mount` and `mount` need root and CAP_SYS_ADMIN: {allowed:?}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new("unshare");
    child.arg("--mount").arg(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).env(FOLDER, folder.path());
    let output = child.output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
