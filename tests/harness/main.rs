//! The test harness, tested on itself: what it accepts, what it refuses, and what it says then.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]
#![allow(clippy::unnecessary_wraps, reason = "a step returns a result")]

mod bad_input;
mod cases;
mod child;
mod client;
mod configs;
mod factories;
mod runs;
mod support;
mod tables;
