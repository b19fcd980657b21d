//! Tests of the feature `serve`.
#![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

#[path = "../../../../tests/it/stages/logs.rs"]
mod logs;

mod api;
mod conformance;
#[cfg(all(target_os = "linux", feature = "kubernetes"))]
mod divided;
#[cfg(all(target_os = "linux", feature = "kubernetes"))]
#[path = "../../../../tests/fleet/mod.rs"]
mod fleet;
#[cfg(all(target_os = "linux", feature = "kubernetes"))]
#[path = "../../../../tests/forwarder.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod forwarder;
mod http;
#[cfg(unix)]
mod kubectl;
#[cfg(unix)]
mod python;
mod reviews;
mod status;
#[path = "../../../../tests/until.rs"]
mod until;
