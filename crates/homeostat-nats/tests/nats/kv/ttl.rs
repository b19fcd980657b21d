//! Entries with a time to live. Servers before version 2.11 do not support them, and are refused by name.

use std::time::Duration;

use homeostat_nats::{KvBucket, KvConfig, NatsErrorKind};

use super::{bucket, next, watching};
use crate::support::server::TestServer;
use crate::support::{is_at_least, options};

const SECOND: Duration = Duration::from_secs(1);

/// `TestKeyValueLimitMarkerTTL`.
#[test]
fn entries_with_a_time_to_live_expire_with_a_marker_or_are_refused_by_version() {
    let server = TestServer::start();
    let connection = options(&server.url()).connect().unwrap();
    let version = connection.status().version;
    let created = KvBucket::create(&connection, &KvConfig::new("ttl").marker_ttl(SECOND));
    if !is_at_least(&version, [2, 11, 0]) {
        let error = created.unwrap_err();
        assert_eq!(error.kind(), NatsErrorKind::Unsupported);
        let host = server.url().replace("nats://", "");
        let text = format!("marker_ttl needs a server of version 2.11 or later, but {host} has version {version}");
        assert_eq!(error.to_string(), text);
        let (_server, _connection, kv) = bucket(1);
        assert_eq!(kv.create_key_with_ttl("a", b"", SECOND).unwrap_err().kind(), NatsErrorKind::Unsupported);
        assert_eq!(kv.purge_with_ttl("a", SECOND).unwrap_err().kind(), NatsErrorKind::Unsupported);
        assert_eq!(kv.status().unwrap().entries, 0, "nothing was written");
        return;
    }
    let kv = created.unwrap();
    let mut watch = kv.watch(&watching()).unwrap();
    assert_eq!(next(&mut watch), "synced");
    kv.create_key_with_ttl("a", b"1", SECOND).unwrap();
    assert_eq!(next(&mut watch), "a=1@1");
    assert_eq!(next(&mut watch), "a PURGE@2", "the server's own marker");
    assert_eq!(kv.get("a").unwrap(), None);
    let after = kv.create_key("a", b"2").unwrap();
    assert_eq!(next(&mut watch), format!("a=2@{after}"));
    kv.purge_with_ttl("a", SECOND).unwrap();
    crate::until::until("end of the marker", || kv.entry("a").unwrap().is_none().then_some(()));
    assert!(kv.create_key_with_ttl("a", b"", Duration::from_millis(999)).unwrap_err().is_invalid());
}
