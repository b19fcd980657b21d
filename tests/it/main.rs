//! The queue and what is built on it, through the public API. Time stands still unless a test moves it.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed, also in its helpers")]

mod ancestors;
mod api;
#[cfg(feature = "objects")]
mod compile_errors;
mod controller;
mod controller_delays;
mod controller_failed_keys;
mod controller_peers;
mod controller_stress;
mod controller_waits;
mod durations;
mod elector;
mod elector_file;
#[cfg(unix)]
mod elector_processes;
mod hostile_keys;
#[cfg(unix)]
mod house;
mod letters;
mod log_fields;
mod manager;
mod manager_faults;
mod manager_leaders;
mod manager_matrix;
mod manager_peers;
#[cfg(unix)]
mod manager_processes;
mod manager_settings;
#[cfg(all(unix, feature = "signals"))]
mod manager_signals;
mod manager_stop;
mod peers_client_go;
mod peers_controller_runtime;
mod peers_kube_rs;
mod peers_openclarity;
mod peers_watch;
mod poller;
mod poller_period;
mod poller_runs;
mod poller_stop;
mod pool;
mod queue_feeding;
mod queue_lanes;
mod queue_model;
mod queue_rules;
mod queue_shutdown;
mod queue_tables;
mod queue_user_code;
mod queue_waking;
mod source_health;
mod stages;
mod stress;
mod support;
mod thread_settings;
mod tidy;
mod watch;
mod watch_channel;
mod watch_directory;
mod watch_poll;
mod watch_predicates;
mod watch_store;
mod watch_stress;
mod watch_subscribers;
mod workers;
mod workers_cancel;
mod workers_errors;
mod workers_next_run;
mod workers_panics;
mod workers_retry;
mod workers_stop;
mod workers_stress;
