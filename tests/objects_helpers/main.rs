//! What is built on any client: finalizers, garbage collection, events, tracking.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

mod client;
mod events;
mod finalizer;
mod garbage;
#[path = "../it/stages/logs.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod logs;
mod tracker;
