//! Rust types with samples, and random types with values. Tests store the values on a model of a server and on a real
//! server, which must keep them.

#![allow(
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::unwrap_used,
    clippy::wildcard_imports,
    reason = "a helper of tests fails as a test does"
)]
#![allow(missing_docs, reason = "the names of the types say what they are")]

pub mod generated;
pub mod kept;
pub mod spelled;
