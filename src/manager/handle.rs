//! The handle of a manager.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::component::Component;
use super::removal::RemoveError;
use super::state::{HOOK, ManagerInner, ManagerPhase};
use crate::base::clock::Clock;
use crate::base::error::StartError;
#[cfg(feature = "objects")]
use crate::base::thread::ThreadOptions;
use crate::base::thread::shielded;
use crate::controller::ControllerHandle;
use crate::queue::{EnqueueOutcome, Key};
use crate::watch::source::SourceHandle;

/// Everything that a program runs: controllers on one shared pool, pollers, watches, functions. Started in order. A cheap handle;
/// clones are the same manager.
///
/// The first failure of anything stops the rest, and is what [`run`](Self::run) returns. Stopping has two phases:
///
/// 1. All components stop taking work at once. The last that was added is told first, and no component waits for the end of another: a
///    controller may finish its runs while its watches have stopped already, and the context of a function is cancelled. All components have
///    the same [grace period](crate::manager::ManagerBuilder::shutdown_grace) to finish what they have begun.
/// 2. Components that have not ended are aborted. After the [abort grace](crate::manager::ManagerBuilder::abort_grace) the manager names the threads that
///    still run, and returns without them.
///
/// With an [`Elector`](crate::Elector) controllers and [leading functions](Component::leading_function) do nothing until this process leads; watches and
/// pollers run from the start. Loss of leadership is a failure, and aborts at once.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, CancellationToken, Component, Context, Controller, Manager};
/// use std::{convert::Infallible, time::Duration};
///
/// let stop = CancellationToken::new();
/// let manager = Manager::builder().threads(4).shutdown_grace(Duration::from_secs(30)).build()?;
/// let reconcile = |_cx: &Context, vm: &&str| -> Result<Action, BoxError> {
///     log::info!("{vm} is as it should be");
///     Ok(Action::await_change())
/// };
/// let vms = Controller::builder("vm", reconcile)
///     .poll(Duration::from_secs(30), |_cx| Ok::<_, Infallible>(["vm-1", "vm-2"]))
///     .max_concurrent_reconciles(2)
///     .build()?;
/// let handle = vms.handle();
/// manager.add(vms)?;
/// let enough = stop.clone();
/// manager.add(Component::function("until-done", move |cx: &Context| {
///     handle.enqueue("vm-3");
///     handle.wait(&"vm-3", Duration::from_secs(10))?;
///     enough.cancel();
///     Ok::<_, BoxError>(())
/// }))?;
/// manager.run(&stop)?; // blocks until `stop` is cancelled or something has failed
/// # Ok::<_, BoxError>(())
/// ```
pub struct Manager {
    pub(super) inner: Arc<ManagerInner>,
}

impl Manager {
    /// Adds a component. It is started with the manager, in the order of these calls; or at once, by this call, if that is running.
    ///
    /// # Errors
    ///
    /// If it has no name, there is a component of that name, the manager is stopping or has ended, or it cannot be started. What has been
    /// started of it by then has ended when this returns: watches have stopped, and the queue of a controller is closed.
    pub fn add(&self, component: impl Into<Component>) -> Result<(), StartError> {
        self.inner.add(component.into())
    }

    /// Stops a component and removes it. Its name is free afterwards.
    ///
    /// Blocks until the component has ended. If it has not after `grace`, by the manager's clock, it is aborted, and this returns
    /// without it. Do not call this on a thread of that component: it would wait for itself.
    ///
    /// # Errors
    ///
    /// [`RemoveError`], if there is no such component, it does not end, or the manager is stopping.
    ///
    /// ```
    /// use homeostat::{Component, Context, Manager};
    /// use std::time::Duration;
    ///
    /// let manager = Manager::builder().build()?;
    /// let running = manager.start()?;
    /// let beat = || Component::function("beat", |cx: &Context| {
    ///     while cx.sleep(Duration::from_secs(1)).is_ok() {}
    ///     Ok::<_, std::io::Error>(())
    /// });
    /// manager.add(beat())?;
    /// manager.remove("beat", Duration::from_secs(10))?;
    /// manager.add(beat())?; // the name is free
    /// running.shutdown(Duration::from_secs(10));
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn remove(&self, name: &str, grace: Duration) -> Result<(), RemoveError> {
        self.inner.remove(name, grace)
    }

    /// The handle of a controller that has been added.
    ///
    /// # Errors
    ///
    /// If there is no controller of this name, or its keys are of another type.
    pub fn controller<K: Key + Sync + fmt::Debug>(&self, name: &str) -> Result<ControllerHandle<K>, StartError> {
        let entry = self.inner.state.lock().controllers.get(name).cloned();
        let entry = entry.ok_or_else(|| StartError::named("controller", name, "has not been added to the manager"))?;
        let handle = entry.handle.downcast_ref::<ControllerHandle<K>>().cloned();
        handle.ok_or_else(|| StartError::named("controller", name, "has keys of another type"))
    }

    /// A handle of a poller or a watch that has been added: to ask how it is doing, and to have it list right now. A watch that has
    /// been asked for by name has that name. Those of a controller: [`ControllerHandle::sources`].
    ///
    /// # Errors
    ///
    /// If there is no poller or watch of this name, or only one that reads a channel, which lists nothing.
    pub fn source(&self, name: &str) -> Result<SourceHandle, StartError> {
        let source = self.inner.state.lock().sources.get(name).cloned();
        source.ok_or_else(|| {
            StartError::named("source", name, "is no poller or watch that has been added to the manager")
        })
    }

    /// Puts a key of a controller in line; see [`ControllerHandle::enqueue`].
    ///
    /// # Errors
    ///
    /// As [`controller`](Self::controller).
    pub fn enqueue<K: Key + Sync + fmt::Debug>(&self, controller: &str, key: K) -> Result<EnqueueOutcome, StartError> {
        Ok(self.controller(controller)?.enqueue(key))
    }

    /// The clock that it and its controllers go by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// How its threads are made.
    #[cfg(feature = "objects")]
    pub(crate) fn thread_options(&self) -> &ThreadOptions {
        &self.inner.options
    }

    /// Calls `hook` at the end, when everything has ended or been given up; the last one that was added first. Once the manager has
    /// ended, at once. A panic of it is logged.
    pub fn at_end(&self, hook: impl FnOnce() + Send + 'static) {
        {
            let mut state = self.inner.state.lock();
            if state.phase != ManagerPhase::Ended {
                state.at_end.push(Box::new(hook));
                return;
            }
        }
        shielded(HOOK, hook);
    }

    /// Stops everything. Returns at once.
    pub fn stop(&self) {
        self.inner.stop.cancel();
    }

    /// Stops everything and aborts at once what is under way. Returns at once.
    pub fn abort(&self) {
        self.inner.abort.cancel();
    }

    /// Whether this process leads; always, without an elector, once it has been started.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.inner.state.lock().leading
    }
}

impl Clone for Manager {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.state.lock();
        f.debug_struct("Manager")
            .field("name", &self.inner.name)
            .field("phase", &state.phase)
            .field("components", &state.names)
            .field("leading", &state.leading)
            .finish_non_exhaustive()
    }
}
