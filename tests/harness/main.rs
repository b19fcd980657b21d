//! The test harness, tested on itself: what it accepts, what it refuses, and what it says then.

mod configs;
mod support;
