//! Tests of the crate through its public API, in a folder for each room of `src`. Time passes only when a test advances
//! the clock.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed unwrap fails the test, also in its helpers")]

#[cfg(unix)]
use homeostat_test_support::forks;
use homeostat_test_support::until;

mod stages;
mod support;

mod base {
    mod thread_settings;
}

mod queue {
    mod backoffs;
    mod durations;
    mod feeding;
    mod hostile_keys;
    mod letters;
    mod levels;
    mod model;
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
    mod delivery;
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
    mod watches;
}

mod controller {
    mod controllers;
    mod delays;
    mod failed_keys;
    mod own_ends;
    mod resyncs;
    mod slow_code;
    mod sources;
    mod stress;
    mod waits;
}

mod manager {
    mod callbacks;
    mod elector;
    mod end_hooks;
    mod failures;
    mod faults;
    mod fenced_terms;
    #[cfg(unix)]
    mod forks;
    mod heard;
    mod keys;
    mod leaders;
    mod managers;
    mod matrix;
    mod removal;
    mod settings;
    mod stop;
}

/// The test cases of similar projects. `cases.md` says where the cases of their queues are proved.
mod peers {
    mod controllers;
    mod managers;
    mod watches;
}

/// The public API as a whole, and the rules that the source keeps.
mod project {
    mod api;
    mod cases;
    mod compile_errors;
    mod errors;
    mod guide;
    mod log_fields;
    mod readme;
    mod release;
    mod seam;
    mod size;
    mod tidy;
}
