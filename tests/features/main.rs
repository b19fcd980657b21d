//! Tests of the features `metrics` and `signals`. They are apart, so that a build with all features compiles no other
//! test of the core again.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed unwrap fails the test, also in its helpers")]

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(all(unix, feature = "signals"))]
mod signals;
