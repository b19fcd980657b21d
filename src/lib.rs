//! A controller runtime on plain OS threads.
//!
//! A *controller* finds what has drifted from what is wanted, puts its key in a work queue, and calls a *reconciler* for each
//! key until the world matches. This crate is that loop for programs that block: no async runtime, no cluster.
//!
//! - [`WorkQueue`]: keys, each at most once in line and at most once in work; delays, priorities, retries, shutdown.
//! - [`Poller`]: asks at a fixed rate what is out of step, and feeds a queue. Any other feeder uses the trait [`Enqueue`].
//! - [`Watch`]: tells any number of subscribers what is created, updated and deleted, and keeps it in a [`Store`].
//! - [`Workers`]: threads that take keys from a queue and call a [`Reconciler`], with deadlines, retries and a clean end.
//! - [`Elector`]: where several processes may do this work, lets one of them do it; [`FileElector`] is for one machine.
//! - [`Controller`] and [`Manager`]: all of these put together, on one shared [`WorkerPool`], with one end for all.
//! - `objects` (a feature): objects as Kubernetes has them, and clients that keep them, without a cluster.
//! - [`ManualClock`]: holds all of that still in a test.
//!
//! # Examples
//!
//! A table of what should be, a table of what is, and a loop that makes them equal:
//!
//! ```
//! use homeostat::{Action, Context, Poller, WorkQueue, Workers};
//! use std::collections::HashSet;
//! use std::convert::Infallible;
//! use std::sync::{Arc, Mutex, mpsc};
//! use std::time::Duration;
//!
//! let running = Arc::new(Mutex::new(HashSet::new()));
//! let queue = WorkQueue::new();
//!
//! let current = Arc::clone(&running);
//! let poller = Poller::new(Duration::from_secs(1), move |_cx| {
//!     let current = current.lock().unwrap();
//!     Ok::<_, Infallible>(["web", "db"].into_iter().filter(|name| !current.contains(name)).collect::<Vec<_>>())
//! })
//! .start(&queue)?;
//!
//! let (started, settled) = mpsc::channel();
//! let workers = Workers::new(move |_cx: &Context, name: &&'static str| -> Result<Action, mpsc::SendError<_>> {
//!     if running.lock().unwrap().insert(*name) {
//!         started.send(*name)?;
//!     }
//!     Ok(Action::await_change())
//! })
//! .threads(4)
//! .start(&queue)?;
//!
//! let mut names = [settled.recv()?, settled.recv()?];
//! names.sort();
//! assert_eq!(names, ["db", "web"]);
//! poller.shutdown(Duration::from_secs(1));
//! workers.shutdown(Duration::from_secs(1));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it promises
//!
//! - An event that arrives while its key is being reconciled is never forgotten, and two threads never reconcile one key at
//!   the same time.
//! - A delay is never early and fires once. The system's monotonic clock, by which it goes, stands still while the machine
//!   sleeps (on most systems).
//! - Every thread can be stopped and joined. Stopping has two phases: no new work, then, after a grace period, the contexts of
//!   running reconciles are cancelled. Threads cannot be killed: a reconciler that ignores its cancellation is reported, and
//!   waited for.
//! - Runs are called at least once for each change, so a reconciler must be idempotent.
//! - A panic in a reconciler, a listing function, a hook or a key's own code ends nothing else. In a program that is built with
//!   `panic = "abort"` none of this holds: the first panic ends the process.
//!
//! # Logs
//!
//! Through the `log` crate: *error* for lost work and panics, *warn* for failed runs and overruns, *info* for start, stop and a
//! requeue asked by an error, *debug* for outcomes, *trace* for each key. The text of a line carries its data, so it reads well
//! with any logger. The same data are key-values, for loggers that keep them:
//!
//! | fields | value |
//! |---|---|
//! | `controller`, `manager`, `component`, `pool`, `source`, `subscription`, `queue`, `elector`, `external`, `reconciler` | the name of a part of the program; of [`Workers`], too, the name is `controller` |
//! | `key`, `object`, `child`, `path` | the subject of the line |
//! | `error`, `panic`, `reason`, `message` | an error with its sources, the text of a panic, the reason and the message of an event |
//! | `event` | the kind of a watch's event |
//! | `signal` | the name of a signal of the operating system |
//! | `failures`, `count`, `keys`, `sources`, `spares`, `threads`, `components`, `version` | a number |
//! | `after`, `backoff`, `grace`, `period`, `timeout` | a duration, rounded to three digits |
//! | `thread`, `still_running` | the name of a thread, the names of the threads that have not ended |
//! | `from`, `to` | an object as it was, and as it is to be; the text leaves these out |

pub mod base;
pub mod controller;
pub mod manager;
#[cfg(feature = "objects")]
pub mod objects;
pub mod queue;
pub mod run;
#[cfg(feature = "objects")]
pub mod sub;
#[cfg(feature = "testing")]
pub mod testing;
pub mod watch;

pub use self::base::{CancellationToken, Clock, Exponential, ManualClock, StartError, ThreadOptions};
pub use self::controller::{Controller, ControllerHandle, RunningController, Sources};
pub use self::manager::{Component, Elector, FileElector, Health, Manager, RunningManager};
pub use self::queue::{Claim, Enqueue, EnqueueOutcome, Key, Priority, Reasons, Shutdown, WorkQueue};
pub use self::run::{Action, BoxError, Context, Reconciler, RequeueAfter, RetryPolicy, WorkerPool, Workers, terminal};
pub use self::watch::{Event, Poller, Predicate, Store, Subscriber, Watch, with_value};

/// The README's code is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
