//! Helpers of the tests of several crates that need objects: a client with hooks, and a fleet of processes.
//!
//! Only integration tests can use them. A unit test is compiled with its crate, so its types differ from those here.

#![allow(
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::unwrap_used,
    reason = "a helper of tests fails as a test does"
)]
#![allow(missing_debug_implementations, reason = "no test prints them")]

#[cfg(target_os = "linux")]
pub mod fleet;
pub mod hooked_client;
