//! A primary with secondaries, tertiaries and external resources, in one client and across two.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

#[path = "../objects_helpers/client.rs"]
#[allow(dead_code, reason = "other tests need all of it")]
mod client;
mod controller;
mod external;
mod secondary;
mod stress;
mod world;
