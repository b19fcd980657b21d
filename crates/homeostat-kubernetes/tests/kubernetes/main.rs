//! Tests of Kubernetes: real API servers, which `.ci/kubernetes` installs and builds, and the types of k8s-openapi.

#![cfg(all(unix, not(loom)))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test, or its helper, that cannot continue has failed")]

mod api_server;
mod cases;
mod client;
mod cluster;
mod conformance;
mod definitions;
#[cfg(target_os = "linux")]
#[path = "../../../../tests/fleet/mod.rs"]
mod fleet;
#[path = "../../../../tests/forwarder.rs"]
mod forwarder;
mod harness;
mod kinds;
mod leases;
#[path = "../../../../tests/it/stages/logs.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod logs;
mod openapi;
mod operator;
mod primaries;
#[path = "../../../../tests/examples/process.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod process;
mod process_usage;
mod steps;
mod support;
#[path = "../../../../tests/until.rs"]
mod until;
mod webhooks;
