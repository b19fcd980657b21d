//! Tests of the crate through its public API, in a folder for each room of `src`. Time stands still unless a test moves it.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed, also in its helpers")]

#[cfg(unix)]
#[path = "../forks.rs"]
mod forks;
#[cfg(target_os = "linux")]
#[path = "../mounts.rs"]
mod mounts;
mod stages;
mod support;

mod base {
    mod thread_settings;
}

mod queue {
    mod durations;
    mod feeding;
    mod hostile_keys;
    mod letters;
    mod levels;
    mod model;
    mod rules;
    mod shutdown;
    mod stress;
    mod tables;
    mod user_code;
    mod waking;
}

mod run {
    mod pool;
    mod workers;
    mod workers_cancel;
    mod workers_errors;
    mod workers_next_run;
    mod workers_panics;
    mod workers_retry;
    mod workers_stop;
    mod workers_stress;
}

mod watch {
    mod channel;
    #[cfg(unix)]
    mod child;
    mod delivery;
    mod directory;
    mod poll_watch;
    mod poller;
    mod poller_period;
    mod poller_runs;
    mod poller_stop;
    mod predicates;
    mod source_health;
    mod store;
    mod stress;
    mod subscribers;
    #[cfg(target_os = "linux")]
    mod volumes;
    mod watches;
}

mod controller {
    mod controllers;
    mod delays;
    mod failed_keys;
    #[cfg(feature = "metrics")]
    mod metrics;
    mod own_ends;
    mod sources;
    mod stress;
    mod waits;
}

mod manager {
    mod elector;
    mod end_hooks;
    mod failures;
    mod faults;
    mod fenced_terms;
    mod file_elector;
    #[cfg(unix)]
    mod forks;
    mod heard;
    mod leaders;
    mod managers;
    mod matrix;
    #[cfg(unix)]
    mod processes;
    mod removal;
    mod settings;
    #[cfg(all(unix, feature = "signals"))]
    mod signals;
    mod stop;
}

/// The test cases of similar projects.
mod peers {
    mod ancestors;
    mod client_go;
    mod controller_runtime;
    mod controllers;
    mod kube_rs;
    mod managers;
    mod openclarity;
    mod watches;
}

/// The public API as a whole, and the rules that the source keeps.
mod project {
    mod api;
    #[cfg(feature = "objects")]
    mod compile_errors;
    mod log_fields;
    mod tidy;
}
