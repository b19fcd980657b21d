//! Tests of objects, clients and the helpers for reconcilers of objects.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed, even in its helpers")]

use homeostat_objects_test_support::hooked_client;
#[cfg(all(unix, feature = "file-client"))]
use homeostat_test_support::forks;
#[cfg(all(target_os = "linux", feature = "file-client"))]
use homeostat_test_support::mounts;
use homeostat_test_support::{logs, until};

mod buckets;
mod declared;
mod embedded;
mod errors;
mod events;
mod expiry;
#[cfg(feature = "file-client")]
mod file_client;
#[cfg(all(unix, feature = "file-client"))]
mod file_forks;
#[cfg(feature = "file-client")]
mod file_writers;
mod finalizer;
mod garbage;
mod globs;
mod layers;
mod leases;
#[cfg(feature = "file-client")]
mod limits;
mod manifests;
mod members;
mod own_writes;
mod primary;
mod scheme;
mod tracker;
mod waits;
mod watch;
mod watch_remote;
mod watch_stop;
