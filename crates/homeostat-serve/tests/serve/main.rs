//! Tests of the server.
#![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

#[cfg(target_os = "linux")]
use homeostat_objects_test_support::fleet;
use homeostat_test_support::{logs, until};

mod api;
#[cfg(target_os = "linux")]
mod clients;
mod conformance;
#[cfg(target_os = "linux")]
mod divided;
mod http;
#[cfg(unix)]
mod kubectl;
mod operators;
#[cfg(target_os = "linux")]
mod python;
mod reviews;
mod status;
