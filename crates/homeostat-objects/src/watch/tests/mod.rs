//! The machine against a model of a server, and a refused thread.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot continue has failed, even in its helpers"
)]

mod cases;
mod harness;
mod random;
mod refused;
mod server;
mod streaming;
mod watcher;
