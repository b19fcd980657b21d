//! A controller runtime on plain OS threads: it keeps the world in its desired state, without async.
//!
//! A *controller* finds things that have drifted from their desired state, by polling or watching. It puts their keys
//! in a work queue, and calls a *reconciler* for each key until the world matches. This crate is for programs that
//! block.
//!
//! ```text
//! poller ─┐  keys  ┌──────────────────────────────┐  key  ┌────────────┐
//! watch  ─┼──────▶ │ ready │ delayed │ processing │ ────▶ │ reconciler │ ──▶ the world
//! you    ─┘        └──────────────────────────────┘ ◀──── └────────────┘
//!                                       done, requeue or retry
//! ```
//!
//! The [`guide`] has short pages: choose a layer, write, test, operate, move from another framework. One of them builds
//! an [operator of Kubernetes][operator] from an empty directory.
//!
//! # Example
//!
//! A table of desired services, a table of running ones, and a controller that makes them equal:
//!
//! ```
//! use homeostat::{Action, BoxError, CancellationToken, Context, Controller, Manager};
//! use std::collections::HashSet;
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//!
//! const DESIRED: [&str; 2] = ["web", "db"];
//! let running = Arc::new(Mutex::new(HashSet::new()));
//! let stop = CancellationToken::new();
//!
//! let current = Arc::clone(&running);
//! let missing = move |_cx: &Context| {
//!     let current = current.lock().unwrap();
//!     Ok::<_, BoxError>(DESIRED.into_iter().filter(|name| !current.contains(name)).collect::<Vec<_>>())
//! };
//! let (services, all_started) = (Arc::clone(&running), stop.clone());
//! let start = move |_cx: &Context, name: &&'static str| -> Result<Action, BoxError> {
//!     let mut services = services.lock().unwrap();
//!     services.insert(*name);
//!     if services.len() == DESIRED.len() {
//!         all_started.cancel();
//!     }
//!     Ok(Action::await_change())
//! };
//!
//! let manager = Manager::builder().build()?;
//! manager.add(Controller::builder("services", start).poll(Duration::from_secs(1), missing).build()?)?;
//! manager.run(&stop)?; // with the feature `signals`: `manager.run_until_signal()?`
//! assert_eq!(running.lock().unwrap().len(), 2);
//! # Ok::<_, BoxError>(())
//! ```
//!
//! # Layers
//!
//! Each layer works without the layers below it in this table.
//!
//! | layer | module | purpose |
//! |---|---|---|
//! | [`Clock`], [`CancellationToken`], [`Running`] | [`base`] | time, which [`ManualClock`] holds still in tests; cancellation; handles of everything that runs |
//! | [`WorkQueue`], [`Enqueue`] | [`queue`] | keeps each key at most once in line; delays, priorities, retries, shutdown |
//! | [`Reconciler`], [`Workers`], [`WorkerPool`] | [`run`] | runs a reconciler for each key, with deadline, retry policy and cancellation |
//! | [`Poller`], [`Watch`], [`Store`] | [`watch`] | finds changes, maps them to keys, keeps the last known state |
//! | [`Controller`] | [`controller`] | puts sources, queue and reconciler together |
//! | [`Manager`], [`Elector`] | [`manager`] | starts and stops all parts of a program; health and leader election |
//! | [`MetricSink`](export::MetricSink) | [`export`] | passes the metrics of a manager to an exporter |
//! | [`Task`](rt::Task), [`ThreadGroup`](rt::ThreadGroup) | [`rt`] | the kit for authors of engines and sources |
//!
//! # Add it to a program
//!
//! No version is on crates.io yet. This command uses a checkout of the repository, next to the program:
//!
//! ```console
//! cargo add --path ../homeostat --features signals
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `signals` | `Manager::run_until_signal` and `Component::on_reload`, on Unix |
//! | `metrics` | `MetricsExporter`: counters and histograms through the `metrics` facade |
//!
//! # The family
//!
//! This crate is the core. The other crates use it, and have the same version:
//!
//! | crate | adds |
//! |---|---|
//! | [`homeostat-objects`](https://docs.rs/homeostat-objects) | objects with owners, finalizers and conflicts, in memory or in a file; leases; keys that several processes divide; reconcilers made of small steps |
//! | [`homeostat-kubernetes`](https://docs.rs/homeostat-kubernetes) | objects on a Kubernetes API server, definitions of kinds, access rules |
//! | [`homeostat-nats`](https://docs.rs/homeostat-nats) | connections to NATS, key-value buckets, and objects in them |
//! | [`homeostat-serve`](https://docs.rs/homeostat-serve) | an HTTP server: objects for `kubectl`, health, metrics and a status page |
//! | [`homeostat-testing`](https://docs.rs/homeostat-testing) | tables of test cases, simulations of whole programs, a conformance suite for clients |
//! | [`homeostat-net`](https://docs.rs/homeostat-net) | network connections of the clients; programs rarely use it directly |
//!
//! # States of a key
//!
//! ```text
//!                 enqueue                      dequeue
//!        ┌──────────────────────▶ ready ─────────────────────▶ processing
//!        │                          ▲                              │
//!      idle ── enqueue_after ──▶ delayed ◀── requeue_after, retry ─┤
//!        ▲                                                         │
//!        └───────────────────────── done ──────────────────────────┘
//! ```
//!
//! A key that is enqueued while it is processing remembers at most one pending rerun. [`WorkQueue`] has the table.
//!
//! # Phases of a shutdown
//!
//! ```text
//! running ──stop──▶ stopping: no new keys, runs go on ──grace period──▶ aborting: contexts are cancelled ──▶ ended
//! ```
//!
//! [`Manager`] stops all its components at once, in reverse order of their start. Each may finish its runs within one
//! grace period.
//!
//! # Threads of a manager
//!
//! ```text
//! driver            starts and stops components
//! elector           tries to lead, and renews the term, if the manager has an elector
//! elector-watchdog  ends the term in time if the renewal hangs
//! pool-0 … pool-n   run the reconcilers of all controllers, and resync them
//! pool-timer        ends the delays of all controllers, cancels runs and polls at their deadline
//! per producer      a poller, a polled watch, a function of yours
//! ```
//!
//! # Guarantees
//!
//! - A change that arrives while its key is being reconciled is not forgotten. Two threads never reconcile one key at
//!   once.
//! - A delay is never early and fires once. The timer adds at most 1/256 of the delay (131 µs if that is more), and at
//!   most 8.4 ms. Delays follow the system's monotonic clock, which on most systems stands still while the machine
//!   sleeps.
//! - Every thread can be stopped and joined, except one that waits for the look-up of a host name or for the end of a
//!   child process. Threads cannot be killed: a reconciler that ignores its cancellation is reported.
//! - Each change leads to at least one run, so a reconciler must be idempotent.
//! - A panic in a reconciler, a listing, a mapping, a hook or a key's `Hash`, `Eq` or `Clone` is caught and logged, and
//!   ends nothing else. A panic in a `Drop` or in the logger may end its thread. With `panic = "abort"` the first panic
//!   ends the process.
//!
//! # Logs
//!
//! All crates of the family log through `log`: *error* for lost work and panics, *warn* for failed runs and overruns,
//! *info* for start, stop, leadership and requeues by an error, *debug* for outcomes, *trace* for each key. The text of
//! a line carries all its data. The same data are key-values, for loggers that keep them:
//!
//! | fields | value |
//! |---|---|
//! | `controller`, `manager`, `component`, `pool`, `source`, `subscription`, `queue`, `elector`, `group`, `connection`, `bucket`, `reconciler` | the name of a part of the program; of [`Workers`], too, the name is `controller` |
//! | `key`, `object`, `child`, `path`, `member` | the subject of the line |
//! | `error`, `panic`, `reason`, `message` | an error with its sources, the text of a panic, the reason and the message of an event |
//! | `event` | the kind of a watch's event |
//! | `server`, `client` | the address of a server, the address of a client |
//! | `user`, `method`, `status`, `dry_run` | the user, the method and the status of a request, and whether it stores nothing |
//! | `signal` | the name of an operating system's signal |
//! | `failures`, `count`, `keys`, `sources`, `spares`, `threads`, `components`, `version` | a number |
//! | `after`, `backoff`, `grace`, `period`, `timeout` | a duration, rounded to three digits |
//! | `thread`, `still_running` | the name of a thread, the names of the threads that have not ended |
//! | `from`, `to` | an object before and after its change; the text leaves these out |
//!
//! [operator]: https://docs.rs/homeostat-kubernetes/latest/homeostat_kubernetes/guide/operator/index.html

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod base;
pub mod controller;
pub mod export;
pub mod guide;
pub mod manager;
pub mod queue;
pub mod rt;
pub mod run;
pub mod watch;

#[cfg(all(test, not(loom)))]
use homeostat_test_support::until;

pub use self::base::{CancellationToken, Clock, Exponential, ManualClock, Running, StartError, ThreadOptions};
pub use self::controller::{Controller, ControllerHandle, Sources};
#[cfg(feature = "metrics")]
pub use self::export::MetricsExporter;
pub use self::manager::{Component, Elector, FileElector, Health, Manager};
pub use self::queue::{Claim, Enqueue, EnqueueOutcome, Key, Priority, Reasons, Shutdown, WorkQueue};
pub use self::run::{Action, BoxError, Context, Reconciler, RequeueAfter, RetryPolicy, WorkerPool, Workers, terminal};
pub use self::watch::{Event, Poller, Predicate, Store, Subscriber, Watch};

/// The README's code is compiled and run as a test.
#[cfg(all(doctest, unix, feature = "signals"))]
#[doc = include_str!("../README.md")]
struct Readme;
