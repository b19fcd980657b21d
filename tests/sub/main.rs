//! Sub-reconcilers, alone and combined, on the embedded client.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]
#![allow(clippy::unnecessary_wraps, reason = "a step that does one thing returns what all steps return")]

mod advice;
mod aggregate;
mod branch;
mod cast;
mod child;
mod childset;
mod external;
mod finalizing;
mod guard;
#[path = "../testing/hooked_client.rs"]
mod hooked_client;
#[path = "../it/stages/logs.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod logs;
mod manager;
mod pages;
mod repeat;
mod resource;
mod sequence;
mod setup;
mod stash;
mod support;
mod suppress;
mod sync;
mod trail;
#[path = "../until.rs"]
mod until;
mod whole;
