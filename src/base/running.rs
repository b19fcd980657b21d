//! The handle of running threads, and the trait behind it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::end::EndHook;
use super::error::{BoxError, EndError};
use super::process::OwnerProcess;
use super::time::Rounded;

/// Something that runs on its own threads until it is stopped.
///
/// Implement this for a custom component. Give it to a [`Manager`](crate::Manager) with
/// [`Component::running`](crate::Component::running), or return it to callers as a [`Running`].
///
/// # Examples
///
/// Two pollers as one component:
///
/// ```
/// use homeostat::base::{EndError, EndHook, RunningPhase, RunningStatus, Runnable};
/// use homeostat::watch::SourceHandle;
/// use homeostat::{BoxError, Component, Manager, Poller, Running, WorkQueue};
/// use std::{convert::Infallible, sync::Arc, time::Duration};
///
/// struct Pair([Running<SourceHandle>; 2]);
///
/// impl Runnable for Pair {
///     fn stop(&self) {
///         self.0.iter().for_each(Running::stop);
///     }
///     fn abort(&self) {
///         self.0.iter().for_each(Running::abort);
///     }
///     fn close(&self) {
///         self.0.iter().for_each(Runnable::close);
///     }
///     fn join_timeout(&mut self, timeout: Duration) -> Result<(), EndError> {
///         let first = self.0[0].join_timeout(timeout);
///         self.0[1].join_timeout(timeout).and(first)
///     }
///     fn detach(&mut self) {
///         self.0.iter_mut().for_each(Runnable::detach);
///     }
///     fn status(&self) -> RunningStatus {
///         let [one, other] = self.0.each_ref().map(Runnable::status);
///         RunningStatus::new("pair", one.phase != RunningPhase::Running, one.threads.into_iter().chain(other.threads))
///     }
///     fn on_end(&self, hook: EndHook) {
///         self.0.iter().for_each(|poller| poller.on_end(Arc::clone(&hook)));
///     }
///     fn failure(&self) -> Option<Arc<BoxError>> {
///         self.0.iter().find_map(Runnable::failure)
///     }
/// }
///
/// let queue = WorkQueue::<&str>::new();
/// let poll = |name| Poller::new(Duration::from_secs(30), move |_cx| Ok::<_, Infallible>([name])).start(&queue);
/// let pair = Pair([poll("vm-1")?, poll("vm-2")?]);
///
/// let manager = Manager::builder().build()?;
/// manager.add(Component::running("pair", pair))?;
/// let running = manager.start()?;
/// running.shutdown(Duration::from_secs(10))?;
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[diagnostic::on_unimplemented(note = "call `.build()?` on a builder, and `.start()` on what it builds")]
pub trait Runnable: Send + Sync {
    /// Stops taking work. Active work continues. Returns at once.
    fn stop(&self);

    /// Stops, and cancels active work. Returns at once. By default the same as [`stop`](Self::stop).
    fn abort(&self) {
        self.stop();
    }

    /// Stops taking work without running user code.
    ///
    /// A manager closes all its components before it stops the first one. Does nothing by default.
    fn close(&self) {}

    /// Blocks until all threads have ended, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// Returns [`EndError`] with the threads that have not ended, for example from [`EndError::of_threads`]. This can
    /// be called again. A [failure](Self::failure) may be part of the error, but need not be.
    fn join_timeout(&mut self, timeout: Duration) -> Result<(), EndError>;

    /// Blocks until all threads have ended. If the caller is one of them, it must not wait for itself.
    ///
    /// By default calls [`join_timeout`](Self::join_timeout) without a limit.
    ///
    /// # Errors
    ///
    /// The errors of [`join_timeout`](Self::join_timeout). If the caller is one of the threads, the error names its
    /// thread.
    fn join(&mut self) -> Result<(), EndError> {
        self.join_timeout(Duration::MAX)
    }

    /// Lets the threads continue after this value is dropped.
    fn detach(&mut self);

    /// Returns the name, the phase and the names of the threads that have not ended.
    fn status(&self) -> RunningStatus;

    /// Registers `hook` for the end, beside the hooks that were registered before. Calls it at once if everything has
    /// ended already.
    ///
    /// Call the hook also when this has [failed](Self::failure). It may be called more often, for example at the end of
    /// each part. The hook must return at once: it runs on any thread, such as the thread that stops this. A manager
    /// asks for the failure and the end only after such a call, and once each when it stops and aborts everything.
    fn on_end(&self, hook: EndHook);

    /// Returns why this failed. `None` if it has not failed. Default: `None`.
    ///
    /// A manager fails with this error as the cause, even if the component has been stopped or removed. If this
    /// contains other components, return their failure.
    fn failure(&self) -> Option<Arc<BoxError>> {
        None
    }

    /// Returns whether an end without a stop is allowed. If not, a manager treats it as a failure. Default: false.
    fn may_end(&self) -> bool {
        false
    }

    /// Returns the field name for this in log lines. Default: `component`.
    fn kind(&self) -> &'static str {
        "component"
    }
}

/// The status of a [`Running`] or [`Runnable`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningStatus {
    /// The name.
    pub name: String,
    /// The phase.
    pub phase: RunningPhase,
    /// The names of the threads that have not ended.
    pub threads: Vec<String>,
}

impl RunningStatus {
    /// Creates a status, given the threads that have not ended. Without such threads, the phase is
    /// [`Ended`](RunningPhase::Ended).
    pub fn new(name: impl Into<String>, is_stopping: bool, threads: impl IntoIterator<Item: Into<String>>) -> Self {
        let threads: Vec<_> = threads.into_iter().map(Into::into).collect();
        let phase = match (threads.is_empty(), is_stopping) {
            (true, _) => RunningPhase::Ended,
            (false, true) => RunningPhase::Stopping,
            (false, false) => RunningPhase::Running,
        };
        Self { name: name.into(), phase, threads }
    }
}

/// The phase of a [`Running`] or [`Runnable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunningPhase {
    /// No stop was requested.
    Running,
    /// A stop was requested. Some threads have not ended.
    Stopping,
    /// All threads have ended.
    Ended,
}

impl fmt::Display for RunningPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
        })
    }
}

/// The handle of a running poller, watch, set of workers, controller or manager.
///
/// It dereferences to `T`. Dropping it calls [`shutdown`](Self::shutdown) with the grace period that was configured
/// before the start. To prevent that, call [`detach`](Self::detach).
///
/// A process that is forked without `exec` has a copy of the handle, but none of the threads. There, dropping the copy
/// does nothing, and joining returns without a wait. Other methods may block for ever if a thread of the parent held a
/// lock at the time of the fork. Fork before you start anything, or only to call `exec`.
///
/// # Examples
///
/// ```
/// use homeostat::{Poller, WorkQueue};
/// use homeostat::base::RunningPhase;
/// use std::{convert::Infallible, time::Duration};
///
/// let queue = WorkQueue::new();
/// let hourly = Poller::new(Duration::from_secs(3600), |_cx| Ok::<_, Infallible>(["vm-1"])).name("vms");
/// let mut poller = hourly.start(&queue)?;
/// poller.trigger(); // a method of a poller
/// assert_eq!((poller.run_status().name.as_str(), poller.run_status().phase), ("vms", RunningPhase::Running));
/// poller.stop();
/// poller.join_timeout(Duration::from_secs(10))?;
/// assert_eq!(poller.run_status().phase, RunningPhase::Ended);
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[must_use = "dropping the handle stops what runs: keep it in a variable; `let _ = …` drops it at once"]
pub struct Running<T> {
    control: T,
    body: Box<dyn Runnable>,
    grace: Duration,
    detached: bool,
    /// Set if nothing remains to be joined, or if this thread cannot join.
    joined: bool,
    owner: OwnerProcess,
}

impl<T> Running<T> {
    /// Creates the handle of `body`, which dereferences to `control`. After a drop, active work may continue for
    /// `grace`, and is then aborted. `Duration::MAX` waits without limit: for tasks that end promptly after a stop.
    pub fn new(control: T, body: impl Runnable + 'static, grace: Duration) -> Self {
        let owner = OwnerProcess::current();
        Self { control, body: Box::new(body), grace, detached: false, joined: false, owner }
    }

    /// Stops taking work. Active work continues. Returns at once.
    #[doc(alias = "shut_down")]
    pub fn stop(&self) {
        self.body.stop();
    }

    /// Stops, and cancels the contexts of active work. Returns at once.
    pub fn abort(&self) {
        self.body.abort();
    }

    /// Blocks until all threads have ended.
    ///
    /// [`stop`](Self::stop), [`abort`](Self::abort) or the threads themselves cause the end. If the caller is one of
    /// the threads, it does not wait for itself.
    ///
    /// # Errors
    ///
    /// Returns [`EndError`] with the failure, if there was one: a controller without a complete listing, a thread that
    /// panicked, or the first failed component of a manager. It also names the threads that a manager has given up, and
    /// the thread of the caller if it is one of the threads.
    pub fn join(mut self) -> Result<(), EndError> {
        let ended = self.body.join();
        self.joined = true;
        self.outcome(ended)
    }

    /// Blocks until all threads have ended, for at most `timeout` by their clock.
    ///
    /// # Errors
    ///
    /// Returns [`EndError`] with the threads that have not ended: they have active work, or were not stopped. This can
    /// be called again. Returns the errors of [`join`](Self::join) if all threads have ended.
    pub fn join_timeout(&mut self, timeout: Duration) -> Result<(), EndError> {
        let ended = self.body.join_timeout(timeout);
        self.outcome(ended)
    }

    /// Stops, waits up to `grace` for active work, aborts the rest, and joins all threads.
    ///
    /// Blocks until active user code has returned, even if it ignores its cancellation. Only a manager gives up: first
    /// on its components, then on its pool. It returns after at most `grace` plus twice its [abort
    /// grace](crate::manager::ManagerBuilder::abort_grace) (1 s by default), and the error names the threads that still
    /// run. An elector may take more time to resign; hooks for the end and drops of queued keys are user code that the
    /// manager waits for. To give up on the code of anything else, call [`abort`](Self::abort),
    /// [`join_timeout`](Self::join_timeout) and [`detach`](Self::detach) instead.
    ///
    /// Aborted runs are no error. Runs of a controller that the stop has aborted or dropped are in no list. An
    /// [observer of runs](crate::ControllerHandle::observe_runs) sees the aborted ones when they end. For the others,
    /// compare the desired state with the world.
    ///
    /// # Errors
    ///
    /// The errors of [`join`](Self::join).
    #[doc(alias = "close")]
    pub fn shutdown(mut self, grace: Duration) -> Result<(), EndError> {
        let ended = self.end(grace);
        self.outcome(ended)
    }

    /// Lets the threads continue without stopping or joining them.
    pub fn detach(mut self) {
        self.detached = true;
        self.body.detach();
    }

    /// Returns the name, the phase and the names of the threads that have not ended.
    #[must_use]
    pub fn run_status(&self) -> RunningStatus {
        self.body.status()
    }

    /// Adds the failure of the body to the outcome of a join.
    fn outcome(&self, ended: Result<(), EndError>) -> Result<(), EndError> {
        match (ended, self.body.failure()) {
            (ended, None) => ended,
            (Ok(()), Some(failure)) => Err(EndError::failed(&self.body.status().name, failure)),
            (Err(error), Some(failure)) => Err(error.with_failure(&self.body.status().name, failure)),
        }
    }

    fn end(&mut self, grace: Duration) -> Result<(), EndError> {
        self.joined = true;
        self.body.stop();
        if grace == Duration::MAX {
            return self.body.join();
        }
        let still = match self.body.join_timeout(grace) {
            Err(still) if !still.has_ended() => still,
            ended => return ended,
        };
        // Idle threads need no abort, but may not have ended within a grace period of zero.
        if !grace.is_zero() {
            let status = self.body.status();
            let (field, name) = (self.body.kind(), status.name.as_str());
            let (grace, still_running) = (Rounded(grace), still.still_running().join(", "));
            log::warn!(
                (field) = name, grace:%, still_running:%;
                "{name}: aborting after the grace period of {grace}; still running: {still_running}"
            );
        }
        self.body.abort();
        self.body.join()
    }
}

impl<T> Deref for Running<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.control
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        match (self.detached || !self.owner.is_current(), self.joined) {
            (true, _) => {}
            (false, true) => self.body.stop(),
            // A failure has been logged.
            (false, false) => drop(self.end(self.grace)),
        }
    }
}

impl<T: Send + Sync> Runnable for Running<T> {
    fn stop(&self) {
        self.body.stop();
    }

    fn abort(&self) {
        self.body.abort();
    }

    fn close(&self) {
        self.body.close();
    }

    fn join_timeout(&mut self, timeout: Duration) -> Result<(), EndError> {
        self.body.join_timeout(timeout)
    }

    fn join(&mut self) -> Result<(), EndError> {
        self.joined = true;
        self.body.join()
    }

    fn detach(&mut self) {
        self.detached = true;
        self.body.detach();
    }

    fn status(&self) -> RunningStatus {
        self.body.status()
    }

    fn on_end(&self, hook: EndHook) {
        self.body.on_end(hook);
    }

    fn failure(&self) -> Option<Arc<BoxError>> {
        self.body.failure()
    }

    fn may_end(&self) -> bool {
        self.body.may_end()
    }

    fn kind(&self) -> &'static str {
        self.body.kind()
    }
}

impl<T: fmt::Debug> fmt::Debug for Running<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunningStatus { phase, threads, .. } = self.body.status();
        f.debug_struct("Running")
            .field("control", &self.control)
            .field("phase", &phase)
            .field("threads", &threads)
            .finish_non_exhaustive()
    }
}
