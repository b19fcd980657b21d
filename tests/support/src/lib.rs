//! Helpers of the tests of several crates. They know no crate of homeostat, so unit tests can use them too.

#![allow(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::unwrap_used,
    reason = "a helper of tests fails as a test does"
)]
#![allow(missing_debug_implementations, reason = "no test prints them")]

pub mod compile_errors;
pub mod explore;
#[cfg(unix)]
pub mod forks;
pub mod forwarder;
pub mod installed;
pub mod locks;
pub mod logs;
#[cfg(target_os = "linux")]
pub mod mounts;
#[cfg(unix)]
pub mod process;
pub mod system;
pub mod until;
