//! Tests of Kubernetes: real API servers, which `.ci/kubernetes` installs and builds, and the types of k8s-openapi.
//!
//! The variable `HOMEOSTAT_KUBERNETES_SERVERS` can name the directory of other servers, such as `.ci/extensions-server`
//! prints. A server without core kinds fails the tests that need them.

#![cfg(all(unix, not(loom)))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test, or its helper, that cannot continue has failed")]

#[cfg(target_os = "linux")]
use homeostat_objects_test_support::fleet;
use homeostat_test_support::{forwarder, logs, process, until};

mod api_server;
mod cases;
mod client;
mod cluster;
mod conformance;
mod custom;
mod definitions;
mod harness;
mod kinds;
mod leases;
mod openapi;
mod operator;
mod primaries;
mod process_usage;
mod steps;
mod webhooks;
