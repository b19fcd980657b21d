//! Sub-reconcilers, alone and combined, on the embedded client.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed, even in its helpers")]
#![allow(clippy::unnecessary_wraps, reason = "a step with one task returns the same type as all steps")]

use homeostat_objects_test_support::hooked_client;
use homeostat_test_support::{logs, until};

mod advice;
mod aggregate;
mod branch;
mod cast;
mod child;
mod childset;
mod compile_errors;
mod external;
mod finalizing;
mod guard;
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
mod whole;
