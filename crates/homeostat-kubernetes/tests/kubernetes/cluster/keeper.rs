//! One cluster for all test processes.
//!
//! The first test starts another process of this binary, the keeper, which owns the servers. Each test holds a shared
//! lock while it uses them. The keeper ends when no test has held the lock for a while. The kernel releases the locks
//! of killed processes.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::process::lock_file;
use super::programs::Programs;
use super::servers::{Options, Servers};
use crate::until::within;
use homeostat_test_support::system::pause;

/// How long the keeper waits for the next test.
const IDLE: Duration = Duration::from_secs(20);

/// How often the keeper checks for tests.
const LOOK: Duration = Duration::from_millis(500);

/// The longest time that the keeper may need to start.
const PATIENCE: Duration = Duration::from_secs(150);

/// The environment variable that makes this binary the keeper.
const KEEPER: &str = "HOMEOSTAT_TEST_KEEPER";

/// The directory of the lock files. Each choice of programs has its own cluster.
fn directory() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubernetes").join(Programs::find().name())
}

/// Returns the directory of the shared cluster, after starting it if necessary. The cluster counts as in use until
/// this process ends.
pub(super) fn shared() -> PathBuf {
    let directory = directory();
    fs::create_dir_all(&directory).unwrap();
    // While a process holds this lock, the keeper does not end.
    let users = lock_file(&directory.join("users"));
    users.lock_shared().unwrap();
    std::mem::forget(users);
    let start = lock_file(&directory.join("start"));
    start.lock().unwrap();
    if !keeper_runs(&directory) {
        let _ = fs::remove_file(directory.join("ready"));
        start_keeper(&directory);
    }
    within(PATIENCE, "the shared cluster is ready", || {
        let ready = fs::read_to_string(directory.join("ready")).ok();
        if ready.is_none() && !keeper_runs(&directory) {
            let log = fs::read_to_string(directory.join("keeper.log")).unwrap_or_default();
            panic!("the keeper of the shared cluster ended: {log}");
        }
        ready.map(PathBuf::from)
    })
}

/// Returns whether a keeper runs.
fn keeper_runs(directory: &Path) -> bool {
    lock_file(&directory.join("keeper")).try_lock().is_err()
}

/// Starts the keeper, and waits until it holds its lock.
fn start_keeper(directory: &Path) {
    let log = fs::File::create(directory.join("keeper.log")).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "cluster::keeper::keeps_the_shared_cluster", "--nocapture"]).env(KEEPER, "1");
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
    let mut keeper = command.spawn().unwrap();
    within(PATIENCE, "the keeper starts", || {
        let ended = keeper.try_wait().unwrap();
        (ended.is_some() || keeper_runs(directory)).then_some(())
    });
}

/// Keeps the shared cluster, if this is the process of the keeper.
#[test]
fn keeps_the_shared_cluster() {
    if std::env::var_os(KEEPER).is_none() {
        return;
    }
    let directory = directory();
    let alive = lock_file(&directory.join("keeper"));
    within(PATIENCE, "the lock of the keeper", || alive.try_lock().ok());
    let servers = Servers::start(&directory, &Options { controllers: true, ..Options::default() });
    let ready = directory.join("ready.new");
    fs::write(&ready, servers.directory.path().to_str().unwrap()).unwrap();
    fs::rename(ready, directory.join("ready")).unwrap();

    let users = lock_file(&directory.join("users"));
    let mut idle = Duration::ZERO;
    while idle < IDLE {
        pause(LOOK);
        idle = if users.try_lock().is_ok() { idle + LOOK } else { Duration::ZERO };
        if idle < IDLE {
            users.unlock().unwrap();
        }
    }
    // Tests that start now wait for the users' lock, and then start a new keeper.
    fs::remove_file(directory.join("ready")).unwrap();
    drop(servers);
    drop(alive);
}
