//! Buckets.
//!
//! The cases of nats.go's `jetstream/test/kv_test.go` and `ordered_test.go` (Apache-2.0) are rewritten here. This
//! client does not configure mirrors, sources, republishing, compression or imports from other accounts. It does not
//! change the configuration of a bucket, and does not list buckets. Watches replace the other ways to read a consumer,
//! which are fetches and limited consumption.

mod basics;
mod cluster;
mod faults;
mod full;
mod idle;
mod layout;
mod lies;
mod ordered;
mod python;
mod starts;
mod ttl;
mod watch;

pub(crate) use self::lies::NO_MESSAGE;

use std::time::Duration;

use homeostat_nats::{KvBucket, KvConfig, KvEntry, KvUpdate, KvWatch, KvWatchOptions, NatsConnection};

use crate::support::LONG;
use crate::support::options;
use crate::support::server::TestServer;

/// Returns a server, a connection, and a bucket with this history.
fn bucket(history: u8) -> (TestServer, NatsConnection, KvBucket) {
    let server = TestServer::start();
    let connection = options(&server.url()).connect().unwrap();
    let bucket = KvBucket::create(&connection, &KvConfig::new("TEST").history(history)).unwrap();
    (server, connection, bucket)
}

/// Returns options with short heartbeats.
fn watching() -> KvWatchOptions {
    KvWatchOptions::new().heartbeat(Duration::from_millis(100))
}

/// Returns the next change as text: `key=value@revision`, `key DEL@revision` or `synced`.
fn next(watch: &mut KvWatch) -> String {
    match watch.recv_timeout(LONG).unwrap() {
        KvUpdate::Entry(entry) => show(&entry),
        KvUpdate::Synced => "synced".to_owned(),
        other => panic!("{other:?}"),
    }
}

fn show(entry: &KvEntry) -> String {
    use homeostat_nats::KvOperation::{Delete, Purge, Put};
    let KvEntry { key, value, revision, operation, .. } = entry;
    match operation {
        Put => format!("{key}={}@{revision}", String::from_utf8_lossy(value)),
        Delete => format!("{key} DEL@{revision}"),
        Purge => format!("{key} PURGE@{revision}"),
        other => panic!("{other:?}"),
    }
}

fn take(watch: &mut KvWatch, count: usize) -> Vec<String> {
    (0..count).map(|_| next(watch)).collect()
}
