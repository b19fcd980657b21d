//! The test harness, tested on itself: what it accepts, what it refuses, and what it says then.

mod bad_input;
mod cases;
mod child;
mod client;
mod configs;
mod factories;
mod runs;
mod support;
mod tables;
