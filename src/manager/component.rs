//! What a manager runs: components, and their parts once they run.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::group::{Ended, Handle, StillRunning, ThreadGroup, ThreadGroupKind};
use crate::base::running::{Runnable, Running};
use crate::base::sync::Mutex;
use crate::base::thread::{ThreadOptions, panic_message, shielded};
use crate::base::wait::Latch;
use crate::controller::{Controller, ControllerHealth, ControllerStatus, RunningController};
use crate::queue::{Enqueue, Key};
use crate::run::context::Context;
use crate::run::error::{BoxError, Cancelled, find};
use crate::run::pool::WorkerPool;
use crate::watch::poller::Poller;
use crate::watch::source::{SourceHandle, SourceState};
use crate::watch::{PollWatchControl, Watch};

/// Something that a [`Manager`](super::Manager) runs: a [`Controller`], a poller, a watch, a function.
///
/// # Examples
///
/// ```
/// use homeostat::{Component, Context, Manager};
/// use std::time::Duration;
///
/// let manager = Manager::builder().build()?;
/// manager.add(Component::function("beat", |cx: &Context| {
///     while cx.sleep(Duration::from_secs(1)).is_ok() {
///         log::info!("still there");
///     }
///     Ok::<_, std::io::Error>(())
/// }))?;
/// # Ok::<_, homeostat::StartError>(())
/// ```
#[must_use = "a component does nothing until it is added to a manager"]
pub struct Component {
    pub(super) name: String,
    pub(super) start: Start,
    pub(super) controller: Option<Entry>,
    /// How it is doing, if it lists.
    pub(super) source: Option<SourceHandle>,
}

type Start = Box<dyn FnOnce(&Env<'_>) -> Result<Box<dyn Part>, StartError> + Send>;

/// What a manager knows of a controller.
pub(super) struct Entry {
    /// A [`ControllerHandle`](crate::ControllerHandle), whatever its keys are.
    pub(super) handle: Box<dyn Any + Send + Sync>,
    pub(super) status: Box<dyn Fn() -> ControllerStatus<String> + Send + Sync>,
    pub(super) health: Box<dyn Fn() -> ControllerHealth<String> + Send + Sync>,
    /// Stops it, also if it was never started.
    pub(super) stop: Box<dyn Fn() + Send + Sync>,
    #[cfg(feature = "metrics")]
    pub(super) export: Box<dyn Fn() + Send + Sync>,
}

/// What a component is started with.
pub(super) struct Env<'a> {
    pub(super) pool: &'a WorkerPool,
    pub(super) clock: &'a Clock,
    pub(super) options: &'a ThreadOptions,
    /// This process leads, and always will.
    pub(super) leading: bool,
    pub(super) report: Report,
}

/// Tells the manager that a component cannot go on.
pub(super) type Report = Arc<dyn Fn(&str, Arc<BoxError>) + Send + Sync>;

/// A component that runs.
pub(super) trait Part: Send {
    /// Calls `hook` whenever something of it has ended, and at once if it has.
    fn on_end(&self, hook: &Ended);

    /// This process leads now.
    fn lead(&mut self) {}

    /// Takes no further work. Returns at once and runs no user code, so that all components are closed before the first one is stopped.
    fn close(&self) {}

    fn stop(&self);
    fn abort(&self);

    /// Whether it has ended; else, the names of the threads that have not.
    fn try_join(&mut self) -> Result<(), StillRunning>;

    /// Whether it has no thread yet: it waits to lead.
    fn is_waiting(&self) -> bool {
        false
    }

    /// Whether it may end without being stopped.
    fn may_end(&self) -> bool {
        false
    }

    fn detach(self: Box<Self>);
}

impl Component {
    fn new<P: Part + 'static>(
        name: String,
        start: impl FnOnce(&Env<'_>) -> Result<P, StartError> + Send + 'static,
    ) -> Self {
        let start: Start = Box::new(move |env| start(env).map(|part| Box::new(part) as Box<dyn Part>));
        Self { name, start, controller: None, source: None }
    }

    fn with_source(self, source: SourceHandle) -> Self {
        Self { source: Some(source), ..self }
    }

    /// A function on a thread of its own (`<name>-0`). Its context is cancelled when it is to stop. If it returns an error or panics,
    /// the manager fails, but for a [`Cancelled`] of its own context; it may return when it likes.
    pub fn function<E: Into<BoxError>>(
        name: impl Into<String>,
        function: impl FnOnce(&Context) -> Result<(), E> + Send + 'static,
    ) -> Self {
        Self::function_of(name.into(), false, Box::new(move |cx| function(cx).map_err(Into::into)))
    }

    /// The same, called once this process leads. It is stopped when it does no longer.
    pub fn leading_function<E: Into<BoxError>>(
        name: impl Into<String>,
        function: impl FnOnce(&Context) -> Result<(), E> + Send + 'static,
    ) -> Self {
        Self::function_of(name.into(), true, Box::new(move |cx| function(cx).map_err(Into::into)))
    }

    fn function_of(name: String, leading: bool, body: Body) -> Self {
        Self::new(name.clone(), move |env| {
            let mut function = Function {
                crew: ThreadGroup::new(ThreadGroupKind::Component, name, env.clock.clone(), 1),
                stop: CancellationToken::new(),
                body: Some(body),
                handle: None,
                options: env.options.clone(),
                report: Arc::clone(&env.report),
                hook: Mutex::new(None),
            };
            if !leading || env.leading {
                function.begin()?;
            }
            Ok(function)
        })
    }

    /// Anything that runs already. `name` is its name in the manager.
    pub fn running(name: impl Into<String>, running: impl Runnable + 'static) -> Self {
        Self::new(name.into(), |_| Ok(Plain(Box::new(running))))
    }

    /// A poller that feeds a queue of one's own; that of a controller is one of its [sources](crate::controller::ControllerBuilder::poll).
    pub fn poller<F, K, I, E, Q>(name: impl Into<String>, poller: Poller<F>, to: &Q) -> Self
    where
        F: FnMut(&Context) -> Result<I, E> + Send + 'static,
        I: IntoIterator<Item = K> + 'static,
        E: Into<BoxError> + 'static,
        Q: Enqueue<K> + Clone + Send + 'static,
        K: 'static,
    {
        let (name, to) = (name.into(), to.clone());
        let own = name.clone();
        // Made here, so that it can be asked before it is started.
        let clock = to.clock();
        let (state, listed) = (SourceState::new(&name, None, clock.clone()), Latch::new(clock));
        let source = SourceHandle::new(&state, &listed);
        let poller = poller.writing_to(state, listed);
        let start = move |env: &Env<'_>| {
            poller.name(own).or_thread_options(env.options).start(&to).map(|poller| Plain(Box::new(poller)))
        };
        Self::new(name, start).with_source(source)
    }
}

impl<K: Key + Sync + fmt::Debug> From<Controller<K>> for Component {
    fn from(controller: Controller<K>) -> Self {
        let handle = controller.handle();
        let (asked, checked, stopped) = (handle.clone(), handle.clone(), handle.clone());
        #[cfg(feature = "metrics")]
        let exporter = handle.clone();
        let name = controller.name().to_owned();
        let own = name.clone();
        let component = Self::new(name, move |env| {
            let report = Arc::clone(&env.report);
            let on_failure = Box::new(move |error| report(&own, error));
            controller.start_as(env.pool, env.leading, env.options, Some(on_failure))
        });
        let status = Box::new(move || asked.status().shown());
        let entry = Entry {
            handle: Box::new(handle),
            status,
            health: Box::new(move || checked.health().shown()),
            stop: Box::new(move || stopped.close()),
            #[cfg(feature = "metrics")]
            export: Box::new(move || exporter.export_metrics()),
        };
        Self { controller: Some(entry), ..component }
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> From<Running<PollWatchControl<K, T>>> for Component {
    fn from(watch: Running<PollWatchControl<K, T>>) -> Self {
        let source = watch.watch().source();
        Self::running(source.name(), watch).with_source(source)
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> From<Running<Watch<K, T>>> for Component {
    fn from(watch: Running<Watch<K, T>>) -> Self {
        let (source, lists) = (watch.source(), !watch.may_end());
        let component = Self::running(source.name(), watch);
        if lists { component.with_source(source) } else { component }
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Component").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<K: Key + Sync + fmt::Debug> Part for RunningController<K> {
    fn on_end(&self, hook: &Ended) {
        RunningController::on_end(self, hook);
    }

    fn lead(&mut self) {
        RunningController::lead(self);
    }

    fn close(&self) {
        self.close_running();
    }

    fn stop(&self) {
        RunningController::stop(self);
    }

    fn abort(&self) {
        RunningController::abort(self);
    }

    fn try_join(&mut self) -> Result<(), StillRunning> {
        self.join_timeout(Duration::ZERO)
    }

    fn detach(self: Box<Self>) {
        RunningController::detach(*self);
    }
}

/// A component without methods of its own.
struct Plain(Box<dyn Runnable>);

impl Part for Plain {
    fn on_end(&self, hook: &Ended) {
        self.0.on_end(Arc::clone(hook));
    }

    fn close(&self) {
        self.0.close();
    }

    fn stop(&self) {
        self.0.stop();
    }

    fn abort(&self) {
        self.0.abort();
    }

    fn try_join(&mut self) -> Result<(), StillRunning> {
        self.0.join_timeout(Duration::ZERO)
    }

    fn may_end(&self) -> bool {
        self.0.may_end()
    }

    fn detach(mut self: Box<Self>) {
        self.0.detach();
    }
}

type Body = Box<dyn FnOnce(&Context) -> Result<(), BoxError> + Send>;

/// A function, waiting to be called or on its thread.
struct Function {
    crew: Arc<ThreadGroup>,
    stop: CancellationToken,
    body: Option<Body>,
    handle: Option<Handle>,
    options: ThreadOptions,
    report: Report,
    /// Until there is a thread that can end.
    hook: Mutex<Option<Ended>>,
}

impl Function {
    fn begin(&mut self) -> Result<(), StartError> {
        let Some(body) = self.body.take() else { return Ok(()) };
        let (report, name) = (Arc::clone(&self.report), self.crew.name.clone());
        let cx = Context::detached_with(self.crew.clock.clone(), self.stop.clone());
        let thread = move || {
            let run = || match body(&cx) {
                Err(error) if cx.is_cancelled() && find(&*error) == Some(&Cancelled::Aborted) => Ok(()),
                ended => ended,
            };
            let error = match catch_unwind(AssertUnwindSafe(run)) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error,
                Err(panic) => {
                    let error = format!("it panicked: {}", panic_message(&*panic));
                    shielded("the drop of a panic", || drop(panic));
                    error.into()
                }
            };
            report(&name, Arc::new(error));
        };
        let component = self.crew.name.as_str();
        log::info!(component; "{component}: the component starts");
        let joiners = vec![self.crew.start_function(&self.options, thread)?];
        let stop = self.stop.clone();
        self.handle =
            Some(Handle::new(Arc::clone(&self.crew), joiners, Box::new(move || stop.cancel()), Duration::MAX));
        if let Some(hook) = self.hook.lock().take() {
            self.crew.on_end(&hook);
        }
        Ok(())
    }
}

impl Part for Function {
    fn on_end(&self, hook: &Ended) {
        if self.handle.is_some() {
            self.crew.on_end(hook);
        } else {
            *self.hook.lock() = Some(Arc::clone(hook));
        }
    }

    fn lead(&mut self) {
        if let Err(error) = self.begin() {
            (self.report)(&self.crew.name, Arc::new(error.into()));
        }
    }

    fn stop(&self) {
        if let Some(handle) = &self.handle {
            handle.stop();
        }
    }

    fn abort(&self) {
        self.stop();
    }

    fn try_join(&mut self) -> Result<(), StillRunning> {
        match &mut self.handle {
            Some(handle) => handle.join_timeout(Duration::ZERO),
            None => Ok(()),
        }
    }

    fn is_waiting(&self) -> bool {
        self.body.is_some()
    }

    fn may_end(&self) -> bool {
        true
    }

    fn detach(mut self: Box<Self>) {
        if let Some(handle) = &mut self.handle {
            handle.detach();
        }
    }
}
