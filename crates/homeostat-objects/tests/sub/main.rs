//! Sub-reconcilers, alone and combined, on the embedded client.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed, even in its helpers")]
#![allow(clippy::unnecessary_wraps, reason = "a step with one task returns the same type as all steps")]

mod advice;
mod aggregate;
mod branch;
mod cast;
mod child;
mod childset;
mod external;
mod finalizing;
mod guard;
#[path = "../../../homeostat-testing/tests/testing/hooked_client.rs"]
mod hooked_client;
#[path = "../../../../tests/it/stages/logs.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
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
#[path = "../../../../tests/until.rs"]
mod until;
mod whole;
