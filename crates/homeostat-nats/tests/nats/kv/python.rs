//! nats-py and this client write and read the same buckets: one that it has created, and one that this client has.

use std::path::Path;
use std::process::Command;

use homeostat_nats::{KvBucket, KvConfig, KvWatchOptions};
use homeostat_test_support::installed;

use super::{next, show, take};
use crate::support::options;
use crate::support::server::TestServer;

fn nats_py(server: &TestServer, what: &str, bucket: &str) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("kv/nats_py.py");
    let mut command = Command::new(installed::client("python", "bin/python"));
    // Leave no compiled modules in the checkout.
    let output = command.arg("-B").arg(program).args([&server.url(), what, bucket]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{what} {bucket}: {}\n{}", text(&output.stdout), text(&output.stderr));
}

/// Writes the same entries as `nats_py.py`.
fn write(kv: &KvBucket) {
    kv.put("plain", b"1").unwrap();
    kv.put("plain", b"2").unwrap();
    let revision = kv.create_key("updated", b"x").unwrap();
    kv.update("updated", b"y", revision).unwrap();
    kv.put("deleted", b"1").unwrap();
    kv.delete("deleted").unwrap();
    kv.put("purged", b"1").unwrap();
    kv.put("purged", b"2").unwrap();
    kv.purge("purged").unwrap();
    kv.put("empty", b"").unwrap();
    kv.put("a.b/c=d_e-f", "ü".as_bytes()).unwrap();
}

fn read(kv: &KvBucket) {
    let history = |key: &str| kv.history(key).unwrap().iter().map(show).collect::<Vec<_>>();
    assert_eq!(history("plain"), ["plain=1@1", "plain=2@2"]);
    assert_eq!(history("updated"), ["updated=x@3", "updated=y@4"]);
    assert_eq!(history("deleted"), ["deleted=1@5", "deleted DEL@6"]);
    assert_eq!(history("purged"), ["purged PURGE@9"]);
    assert_eq!(kv.get("plain").unwrap().unwrap().value, b"2");
    assert_eq!(kv.get("empty").unwrap().unwrap().value, b"");
    assert_eq!(kv.get("a.b/c=d_e-f").unwrap().unwrap().value, "ü".as_bytes());
    assert!(kv.get("deleted").unwrap().is_none() && kv.get("purged").unwrap().is_none());
    assert!(kv.entry("deleted").unwrap().unwrap().is_marker());
    let mut keys = kv.keys(">").unwrap();
    keys.sort();
    assert_eq!(keys, ["a.b/c=d_e-f", "empty", "plain", "updated"]);
    assert!(kv.update("updated", b"z", 3).unwrap_err().is_conflict());
}

#[test]
fn both_clients_read_what_the_other_writes() {
    let server = TestServer::start();
    let connection = options(&server.url()).connect().unwrap();
    let ours = KvBucket::create(&connection, &KvConfig::new("OURS").history(5)).unwrap();
    let mut watch = ours.watch(&KvWatchOptions::new().with_history()).unwrap();
    assert_eq!(take(&mut watch, 1), ["synced"]);
    nats_py(&server, "write", "OURS");
    let mut told: Vec<String> = Vec::new();
    while told.last().is_none_or(|last| last != "a.b/c=d_e-f=ü@11") {
        told.push(next(&mut watch));
    }
    // The purge may remove the earlier values before the server sends them.
    told.retain(|entry| !["purged=1@7", "purged=2@8"].contains(&entry.as_str()));
    assert_eq!(
        told,
        [
            "plain=1@1",
            "plain=2@2",
            "updated=x@3",
            "updated=y@4",
            "deleted=1@5",
            "deleted DEL@6",
            "purged PURGE@9",
            "empty=@10",
            "a.b/c=d_e-f=ü@11",
        ]
    );
    read(&ours);
    nats_py(&server, "read", "OURS");

    nats_py(&server, "write", "THEIRS");
    // A bucket of nats-py has the same configuration.
    let theirs = KvBucket::create(&connection, &KvConfig::new("THEIRS").history(5)).unwrap();
    read(&theirs);

    let written = KvBucket::create(&connection, &KvConfig::new("OURS-TOO").history(5)).unwrap();
    write(&written);
    read(&written);
    nats_py(&server, "read", "OURS-TOO");
}
