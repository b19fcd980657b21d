//! The examples, driven as processes.

#![cfg(all(unix, not(loom)))]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test, also in its helpers")]

use homeostat_test_support::{process, until};

#[cfg(all(test, feature = "serve"))]
mod appliance;
#[cfg(all(test, feature = "file-client"))]
mod command_lines;
#[cfg(test)]
mod directories;
#[cfg(all(test, target_os = "linux"))]
mod errors;
#[cfg(all(test, feature = "kubernetes", feature = "serve"))]
mod fleet;
#[cfg(test)]
mod mirror;
#[cfg(all(test, feature = "kubernetes"))]
mod operator;
#[cfg(all(test, feature = "serve"))]
mod status_page;
#[cfg(all(test, target_os = "linux"))]
mod supervisor;
