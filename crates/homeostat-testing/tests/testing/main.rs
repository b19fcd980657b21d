//! The tools for tests: tables of cases, simulations, and the conformance suite of clients.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot continue has failed, even in its helpers"
)]
#![allow(clippy::unnecessary_wraps, reason = "a step returns a result")]

use homeostat_objects_test_support::hooked_client;

mod conformance;
mod globs;
mod harness;
mod simulation;
