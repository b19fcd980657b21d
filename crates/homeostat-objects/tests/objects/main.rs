//! Tests of objects, clients and the helpers for reconcilers of objects.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed, even in its helpers")]

mod buckets;
mod declared;
mod embedded;
mod events;
mod expiry;
#[cfg(feature = "file-client")]
mod file_client;
#[cfg(all(unix, feature = "file-client"))]
mod file_forks;
#[cfg(feature = "file-client")]
mod file_writers;
mod finalizer;
#[cfg(all(unix, feature = "file-client"))]
#[path = "../../../../tests/forks.rs"]
mod forks;
mod garbage;
mod globs;
#[path = "../../../homeostat-testing/tests/testing/hooked_client.rs"]
mod hooked_client;
mod leases;
#[cfg(feature = "file-client")]
mod limits;
#[path = "../../../../tests/it/stages/logs.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod logs;
mod manifests;
mod members;
#[cfg(all(target_os = "linux", feature = "file-client"))]
#[path = "../../../../tests/mounts.rs"]
mod mounts;
mod own_writes;
mod primary;
mod scheme;
mod tracker;
#[path = "../../../../tests/until.rs"]
mod until;
mod waits;
mod watch;
mod watch_remote;
