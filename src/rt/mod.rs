//! The kit for authors of engines and sources: tasks, threads, waiting and time, as the rest of the library uses them.
//!
//! Use it to write a new source of keys, a client or a server. Other programs do not need it: the short form of a
//! source is a [`Component::function`](crate::Component::function) that blocks on its input and calls a
//! [`Push`](crate::watch::Push). Take this kit for a health of its own, a held clock and simulations. Code that uses
//! this kit stops in two phases, and runs on a [held clock](crate::ManualClock) and in a simulation without changes.
//!
//! | purpose | names |
//! |---|---|
//! | a thread body as steps | [`Task`], [`Next`], [`spawn`], [`Joiner`] |
//! | one thread for many tasks | [`TaskThread`], [`TaskWaker`] |
//! | the threads of one part of a program | [`ThreadGroup`], [`ThreadGroupKind`], [`Handle`] |
//! | a deadline for a call | [`ThreadGroup::begin_call`] |
//! | waiting | [`Monitor`], [`AutoResetEvent`] |
//! | time, delays and jitter | [`Nanos`], [`Rounded`], [`Draws`], [`Exponential`](crate::Exponential) |
//! | the health of a source | [`SourceState`] |
//! | user code | [`shielded`], [`panic_message`] |
//! | errors | [`Chain`], [`debug_with_causes`], [`find`], [`Mark`], [`Echo`] |
//! | one line of text | [`one_line`], [`bounded`] |
//! | forks | [`OwnerProcess`] |
//! | simulations | [`Scheduler`] |
//!
//! A component of a manager also needs [`Runnable`](crate::base::Runnable), which [`Handle`] implements.
//!
//! # A source of keys
//!
//! This source enqueues the number of each hour. A step of its task enqueues the hour that is due, and returns the time
//! of the next step. The event triggers a step earlier: here, when the source is stopped.
//!
//! ```
//! use homeostat::rt::{AutoResetEvent, Nanos, Next, Task, ThreadGroup, ThreadGroupKind};
//! use homeostat::{Clock, Enqueue, ManualClock, Running, StartError, ThreadOptions, WorkQueue};
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! const HOUR: Duration = Duration::from_secs(3600);
//!
//! struct Hours {
//!     group: Arc<ThreadGroup>,
//!     queue: WorkQueue<u64>,
//!     hour: u64,
//!     due: Nanos,
//! }
//!
//! impl Task for Hours {
//!     fn step(&mut self, now: Nanos) -> Next {
//!         if self.group.is_stopping() {
//!             return Next::Finished;
//!         }
//!         if now >= self.due {
//!             self.queue.enqueue(self.hour);
//!             self.hour += 1;
//!             self.due = now.after(HOUR);
//!         }
//!         Next::At(self.due)
//!     }
//! }
//!
//! fn start(clock: &Clock, queue: &WorkQueue<u64>) -> Result<Running<()>, StartError> {
//!     let group = ThreadGroup::new(ThreadGroupKind::Watch, "hours".to_owned(), clock.clone(), 1);
//!     let hours = Hours { group: Arc::clone(&group), queue: queue.clone(), hour: 0, due: Nanos::ZERO };
//!     let event = AutoResetEvent::new(clock.clone());
//!     let handle = group.start_one(&ThreadOptions::new(), hours, event, None, || ())?;
//!     Ok(Running::new((), handle, Duration::MAX))
//! }
//!
//! let held = ManualClock::new();
//! let queue = WorkQueue::builder().clock(held.clock()).build();
//! let hours = start(&held.clock(), &queue)?;
//!
//! held.wait_for_sleepers(1); // the source has done its first step
//! assert_eq!(queue.try_dequeue()?.done(), ());
//! held.advance(HOUR);
//! held.wait_for_sleepers(1);
//! assert_eq!(*queue.try_dequeue()?, 1);
//! drop(hours); // stops the source and joins its thread
//! # Ok::<_, homeostat::BoxError>(())
//! ```
//!
//! # A source of values
//!
//! This source receives datagrams such as `vm-1=running`, and keeps the last value of each name in a watch. A step may
//! block, here in `recv`. A stop must end such a call, so the source sends a datagram to itself then. The watch stops
//! when the task drops its `Push`. [`Watch::source_state`](crate::Watch::source_state) makes failures visible in the
//! status and in health checks.
//!
//! ```
//! use homeostat::rt::{AutoResetEvent, Chain, Nanos, Next, SourceState, Task, ThreadGroup, ThreadGroupKind};
//! use homeostat::watch::Push;
//! use homeostat::{Clock, Manager, Running, StartError, Subscriber, ThreadOptions, Watch, WorkQueue};
//! use std::net::UdpSocket;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! struct Datagrams {
//!     group: Arc<ThreadGroup>,
//!     socket: Arc<UdpSocket>,
//!     push: Push<String, String>,
//!     state: Arc<SourceState>,
//! }
//!
//! impl Task for Datagrams {
//!     fn step(&mut self, now: Nanos) -> Next {
//!         let mut buffer = [0; 512];
//!         let received = self.socket.recv(&mut buffer);
//!         if self.group.is_stopping() {
//!             return Next::Finished;
//!         }
//!         match received {
//!             Ok(length) => {
//!                 self.state.succeeded();
//!                 if let Some((name, value)) = String::from_utf8_lossy(&buffer[..length]).split_once('=') {
//!                     self.push.set(name.to_owned(), value.to_owned());
//!                 }
//!                 Next::At(Nanos::ZERO) // at once
//!             }
//!             Err(error) => {
//!                 self.state.failed(Chain(&error).to_string());
//!                 Next::At(now.after(Duration::from_secs(1)))
//!             }
//!         }
//!     }
//! }
//!
//! fn start(socket: UdpSocket, clock: &Clock) -> Result<Running<Watch<String, String>>, StartError> {
//!     let push = Watch::builder().name("datagrams").clock(clock.clone()).push();
//!     push.synced(); // there is no initial list
//!     let (watch, socket) = (push.watch().clone(), Arc::new(socket));
//!     let group = ThreadGroup::new(ThreadGroupKind::Watch, "datagrams".to_owned(), clock.clone(), 1);
//!     let state = Arc::clone(watch.source_state());
//!     let task = Datagrams { group: Arc::clone(&group), socket: Arc::clone(&socket), push, state };
//!     let event = AutoResetEvent::new(clock.clone());
//!     let on_stop = move || drop(socket.local_addr().and_then(|own| socket.send_to(&[], own)));
//!     let handle = group.start_one(&ThreadOptions::new(), task, event, None, on_stop)?;
//!     Ok(Running::new(watch, handle, Duration::MAX))
//! }
//!
//! let socket = UdpSocket::bind("127.0.0.1:0")?;
//! let address = socket.local_addr()?;
//! let manager = Manager::builder().build()?;
//! let watch = manager.watch("datagrams", || start(socket, manager.clock()))?;
//! let queue = WorkQueue::new();
//! let subscription = watch.subscribe(Subscriber::to_itself(&queue))?;
//! let running = manager.start()?;
//!
//! UdpSocket::bind("127.0.0.1:0")?.send_to(b"vm-1=running", address)?;
//! let claim = queue.dequeue()?;
//! assert_eq!(watch.store().get(&*claim).as_deref().map(String::as_str), Some("running"));
//! claim.done();
//! running.shutdown(Duration::from_secs(10))?; // also stops the source and joins its thread
//! # drop(subscription);
//! # Ok::<_, homeostat::BoxError>(())
//! ```
//!
//! # A scheduler
//!
//! A simulation runs all tasks on one thread. `Simulation` of the crate `homeostat-testing` is such a scheduler. The
//! one below is the smallest: it runs a task when the task is joined.
//!
//! ```
//! use homeostat::rt::{AutoResetEvent, Joiner, Nanos, Next, Scheduler, Task, spawn};
//! use homeostat::{ManualClock, ThreadOptions};
//! use std::io;
//! use std::sync::{Arc, Mutex};
//! use std::time::{Duration, SystemTime};
//!
//! struct RunsWhenJoined;
//!
//! impl Scheduler for RunsWhenJoined {
//!     fn enter(self: Arc<Self>, clock: &ManualClock, name: String, task: Box<dyn Task>) -> io::Result<Joiner> {
//!         let (clock, task) = (clock.clone(), Mutex::new(task));
//!         let join = move || {
//!             let mut task = task.lock().unwrap();
//!             while let Next::At(time) = task.take_turn(clock.nanos(), 4, &|_subject| ()) {
//!                 clock.advance_to(time);
//!             }
//!         };
//!         Ok(Joiner::of_task(name, || false, join))
//!     }
//!     fn pass(&self, _clock: &ManualClock) {
//!         panic!("this scheduler has no other task to run");
//!     }
//!     fn draw(&self) -> u64 {
//!         4
//!     }
//!     fn seed(&self) -> u64 {
//!         4
//!     }
//! }
//!
//! struct Countdown(u32);
//!
//! impl Task for Countdown {
//!     fn step(&mut self, now: Nanos) -> Next {
//!         self.0 -= 1;
//!         if self.0 == 0 { Next::Finished } else { Next::At(now.after(Duration::from_secs(1))) }
//!     }
//! }
//!
//! let held = ManualClock::simulated(SystemTime::UNIX_EPOCH, Some(Arc::new(RunsWhenJoined)));
//! let event = AutoResetEvent::new(held.clock());
//! let joiner = spawn(&ThreadOptions::new(), &held.clock(), "countdown".to_owned(), Countdown(4), &event)?;
//! joiner.join();
//! assert_eq!(held.nanos(), Nanos::ZERO.after(Duration::from_secs(3)));
//! # Ok::<_, io::Error>(())
//! ```

pub use crate::base::backoff::Draws;
pub use crate::base::chain::{Chain, debug_with_causes};
pub use crate::base::clock::Scheduler;
pub use crate::base::group::{Handle, ThreadGroup, ThreadGroupKind};
pub use crate::base::mark::{Echo, Mark};
pub use crate::base::process::OwnerProcess;
pub use crate::base::spawn::spawn;
pub use crate::base::task::{Next, Task};
pub use crate::base::task_thread::{TaskThread, TaskWaker};
pub use crate::base::text::{bounded, one_line};
pub use crate::base::thread::{Joiner, panic_message, shielded};
pub use crate::base::time::{Nanos, Rounded};
pub use crate::base::wait::{AutoResetEvent, Monitor};
pub use crate::run::error::find;
pub use crate::watch::source_state::SourceState;
