//! Connections and buckets against real NATS servers, and against scripted servers that send wrong data.
//!
//! Each test starts its own `nats-server` on a free loopback port, with a temporary store. Install the server with
//! `apt-get install nats-server`, or name another one in `HOMEOSTAT_NATS_SERVER`.

#![cfg(all(unix, not(loom)))]
#![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

#[cfg(target_os = "linux")]
use homeostat_objects_test_support::fleet;
use homeostat_test_support::{forwarder, process, until};

mod connection;
mod kumori;
mod kv;
mod objects;

mod support;
