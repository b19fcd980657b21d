//! Objects as a cluster writes them, objects as a program declares them, and the kinds of both.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

mod declared;
mod globs;
mod manifests;
mod scheme;
