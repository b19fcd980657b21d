//! Connections and buckets against real NATS servers, and against scripted servers that send wrong data.
//!
//! Each test starts its own `nats-server` on a free loopback port, with a temporary store. Install the server with
//! `apt-get install nats-server`, or name another one in `HOMEOSTAT_NATS_SERVER`.

#![cfg(all(unix, not(loom)))]
#![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

mod connection;
#[cfg(target_os = "linux")]
#[path = "../../../../tests/fleet/mod.rs"]
mod fleet;
#[path = "../../../../tests/forwarder.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod forwarder;
mod kumori;
mod kv;
mod objects;

#[expect(dead_code, reason = "the tests of the examples need the rest")]
#[path = "../../../../tests/examples/process.rs"]
mod process;
mod support;
#[path = "../../../../tests/until.rs"]
mod until;
