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
//! Each layer works without the layers below it in this table. Its module has more than the items here.
//!
//! | module | items of this page | purpose |
//! |---|---|---|
//! | [`base`] | [`Clock`], [`ManualClock`] | time, which a test can hold still |
//! | | [`CancellationToken`] | asks work to end |
//! | | [`Running`], [`StartError`], [`ThreadOptions`] | the handle of everything that runs on threads, the error of its start, its threads' settings |
//! | | [`Exponential`] | delays that double: between retries, and between calls that fail |
//! | [`queue`] | [`WorkQueue`], [`Key`], [`Claim`], [`Shutdown`] | keeps each key at most once in line, gives it to one worker at a time, ends with a report |
//! | | [`Enqueue`], [`EnqueueOutcome`], [`Priority`], [`Reasons`] | requests a run of a key, now or later, and says why |
//! | [`run`] | [`Reconciler`], [`Context`], [`Action`] | your code for one key, its view of the run, and its result |
//! | | [`BoxError`], [`RequeueAfter`], [`terminal`], [`RetryPolicy`] | its errors, and the next try |
//! | | [`Workers`], [`WorkerPool`] | the threads that call it: for one queue, for many controllers |
//! | [`watch`] | [`Poller`] | lists the keys that need work, at an interval |
//! | | [`Watch`], [`Store`], [`Event`] | follows changes, keeps the last known state |
//! | | [`Subscriber`], [`Predicate`] | chooses changes, and maps them to keys |
//! | [`controller`] | [`Controller`], [`Sources`], [`ControllerHandle`] | puts sources, queue and reconciler together |
//! | [`manager`] | [`Manager`], [`Component`], [`Health`] | starts and stops all parts of a program, and knows their state |
//! | | [`Elector`] | lets one of several processes work |
//! | [`export`] | `MetricsExporter` (feature `metrics`) | passes the counts of a manager to an exporter |
//! | [`rt`] | | the kit for authors of engines and sources |
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
//! | [`homeostat-host`](https://docs.rs/homeostat-host) | the directories, child processes and lock files of one machine |
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
//! grace period. Runs that have not begun are dropped, and that is no error.
//!
//! # Threads of a manager
//!
//! ```text
//! driver            starts and stops components
//! elector           tries to lead, and renews the term, if the manager has an elector
//! elector-watchdog  ends the term in time if the renewal hangs
//! pool-0 … pool-n   run the reconcilers of all controllers, and resync them
//! pool-timer        ends the delays of all controllers, cancels runs and polls at their deadline
//! pool-0-deadline   runs the callbacks and the report of a run that has passed its deadline, then ends
//! per producer      a poller, a polled watch, a function of yours
//! ```
//!
//! # Guarantees
//!
//! - A change that arrives while its key is being reconciled is not forgotten. Two threads never reconcile one key at
//!   once.
//! - A delay is never early and fires once. The timer adds at most 1/256 of the delay (131 µs if that is more), and at
//!   most 8.4 ms. Delays follow the system's monotonic clock, which on most systems stops while the machine
//!   sleeps.
//! - Every thread can be stopped and joined, except one that waits for the look-up of a host name or for the end of a
//!   child process. Threads cannot be killed: a reconciler that ignores its cancellation is reported.
//! - A ready key with `p` earlier keys at its priority is taken within [`STARVATION_BOUND`](queue::STARVATION_BOUND)
//!   `× (p + 1)` dequeues. A controller with work is served after at most one key of each other controller of its pool.
//! - Queues, pools, controllers and managers have no periodic tick. Pollers, resyncs and electors act at intervals, as
//!   do members of a group, connections to NATS and status pages.
//! - Each change leads to at least one run, so a reconciler must be idempotent.
//! - A panic in a reconciler, a listing, a mapping, a hook or a key's `Hash`, `Eq` or `Clone` is caught and logged, and
//!   ends nothing else. A panic in a `Drop` or in the logger may end its thread. With `panic = "abort"` the first panic
//!   ends the process.
//!
//! # Logs
//!
//! All crates of the family log through the `log` facade. Without a logger, such as the crate `env_logger`, failures
//! show only in [`Manager::status`]. [`guide::observability`] lists the levels and the fields.
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

#[doc(inline)]
pub use self::base::{CancellationToken, Clock, Exponential, ManualClock, Running, StartError, ThreadOptions};
#[doc(inline)]
pub use self::controller::{Controller, ControllerHandle, Sources};
#[cfg(feature = "metrics")]
#[doc(inline)]
pub use self::export::MetricsExporter;
#[doc(inline)]
pub use self::manager::{Component, Elector, Health, Manager};
#[doc(inline)]
pub use self::queue::{Claim, Enqueue, EnqueueOutcome, Key, Priority, Reasons, Shutdown, WorkQueue};
#[doc(inline)]
pub use self::run::{Action, BoxError, Context, Reconciler, RequeueAfter, RetryPolicy, WorkerPool, Workers, terminal};
#[doc(inline)]
pub use self::watch::{Event, Poller, Predicate, Store, Subscriber, Watch};

/// The README's code is compiled and run as a test.
#[cfg(all(doctest, unix, feature = "signals"))]
#[doc = include_str!("../README.md")]
struct Readme;
