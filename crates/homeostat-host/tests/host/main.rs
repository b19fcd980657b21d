//! Tests of the sources and the elector of one machine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot continue has failed, even in its helpers"
)]

use std::time::Duration;

#[cfg(unix)]
mod child;
#[cfg(unix)]
mod directory;
mod file_elector;
#[cfg(unix)]
mod forks;
#[cfg(unix)]
mod processes;
#[cfg(target_os = "linux")]
mod volumes;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
