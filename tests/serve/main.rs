//! Tests of the feature `serve`.

#[path = "../it/stages/logs.rs"]
mod logs;

mod http;
mod status;
