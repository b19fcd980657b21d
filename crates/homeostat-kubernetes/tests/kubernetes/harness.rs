//! Tests of the clusters themselves.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cluster::{self, Options, Servers};
use crate::until::within;
use homeostat_test_support::system::pause;

/// This environment variable makes a test start a cluster and wait to be killed.
const VICTIM: &str = "HOMEOSTAT_TEST_VICTIM";

#[test]
fn the_shared_cluster_is_ready() {
    assert!(cluster::shared().is_file());
}

#[test]
fn a_killed_server_keeps_its_objects_and_etcd_is_restored_to_an_older_revision() {
    let mut servers = cluster::private(&Options::default());
    let uid = |servers: &Servers| servers.http().get("/api/v1/namespaces/default")["metadata"]["uid"].clone();
    let before = uid(&servers);
    servers.api_server.kill();
    servers.rotate_certificates("authority 2");
    servers.api_server.start();
    servers.wait_until_ready();
    assert_eq!(uid(&servers), before);

    let names = |servers: &Servers| {
        let list = servers.http().get("/api/v1/namespaces/default/configmaps");
        let items = list["items"].as_array().unwrap();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let create = |servers: &Servers, name: &str| {
        let map = serde_json::json!({"metadata": {"name": name}});
        servers.http().create("/api/v1/namespaces/default/configmaps", &map);
    };
    create(&servers, "a");
    servers.save_etcd();
    create(&servers, "b");
    assert_eq!(names(&servers), ["a", "b"]);
    servers.restore_etcd();
    assert_eq!(names(&servers), ["a"]);
    assert_eq!(uid(&servers), before);
}

#[test]
fn nothing_is_left_of_a_cluster_when_its_test_is_killed() {
    if std::env::var_os(VICTIM).is_some() {
        let servers = cluster::private(&Options::default());
        println!("\nin {}", servers.directory.path().display());
        loop {
            pause(Duration::MAX);
        }
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "harness::nothing_is_left_of_a_cluster_when_its_test_is_killed", "--nocapture"]);
    let mut victim = command.env(VICTIM, "1").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let directory = lines.map(Result::unwrap).find_map(|line| line.strip_prefix("in ").map(str::to_owned)).unwrap();
    assert!(Path::new(&directory).is_dir());
    assert_ne!(users_of(&directory), 0);
    victim.kill().unwrap();
    victim.wait().unwrap();
    within(Duration::from_secs(60), "the files are removed and the processes end", || {
        (!Path::new(&directory).exists() && users_of(&directory) == 0).then_some(())
    });
}

/// Returns how many processes have this text in their command line.
fn users_of(text: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("cmdline"));
    processes.filter(|path| std::fs::read(path).is_ok_and(|line| String::from_utf8_lossy(&line).contains(text))).count()
}
