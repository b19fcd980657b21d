//! The components of a manager.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::group::{Handle, ThreadGroup, ThreadGroupKind};
use crate::base::running::{Runnable, Running};
use crate::base::thread::{ThreadOptions, unless_it_panics};
use crate::controller::{Controller, ControllerHealth, ControllerStatus};
#[cfg(feature = "serve")]
use crate::controller::{ControllerMetrics, KeyStatus};
use crate::queue::{Enqueue, Key};
use crate::run::context::Context;
use crate::run::error::{BoxError, Cancelled, find};
use crate::run::fence::Fence;
use crate::run::pool::WorkerPool;
use crate::watch::source::SourceHandle;
#[cfg(feature = "serve")]
use crate::watch::source::SourceStatus;
use crate::watch::{Poller, Watch};

/// Something that a [`Manager`](super::Manager) runs: a [`Controller`], a poller, a watch or a function.
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
    /// The kind of the component, for errors.
    pub(super) kind: &'static str,
    pub(super) start: ComponentStart,
    /// Whether the component starts only once this process leads.
    pub(super) waits_to_lead: bool,
    pub(super) controller: Option<ControllerEntry>,
    /// The source of a poller or watch that lists.
    pub(super) source: Option<SourceHandle>,
}

pub(super) type ComponentStart = Box<dyn FnOnce(&StartEnv<'_>) -> Result<Box<dyn Runnable>, StartError> + Send>;

/// The manager's access to a controller.
pub(super) struct ControllerEntry {
    /// A [`ControllerHandle`](crate::ControllerHandle) with keys of any type.
    pub(super) handle: Box<dyn Any + Send + Sync>,
    pub(super) status: Box<dyn Fn() -> ControllerStatus<String> + Send + Sync>,
    pub(super) health: Box<dyn Fn() -> ControllerHealth<String> + Send + Sync>,
    /// Returns the counts and measurements, and the sources, without a visit of keys.
    #[cfg(feature = "serve")]
    pub(super) metrics: Box<ReadMetrics>,
    /// Returns the status of the key that is formatted like this.
    #[cfg(feature = "serve")]
    pub(super) find_key: Box<FindKey>,
    /// Records the last runs from now on.
    pub(super) record_runs: Box<dyn Fn() + Send + Sync>,
    /// Lets the controller run keys, because this process leads.
    pub(super) lead: Box<dyn Fn(&Fence) + Send + Sync>,
    /// Stops the controller, even if it was never started.
    pub(super) stop: Box<dyn Fn() + Send + Sync>,
    /// Exports the metrics. Returns the names of the sources.
    #[cfg(feature = "metrics")]
    pub(super) export: Box<dyn Fn() -> Vec<String> + Send + Sync>,
}

#[cfg(feature = "serve")]
type ReadMetrics = dyn Fn() -> (ControllerMetrics, Vec<SourceStatus>) + Send + Sync;
#[cfg(feature = "serve")]
type FindKey = dyn Fn(&str) -> Option<KeyStatus<String>> + Send + Sync;

/// The surroundings in which a component starts.
pub(super) struct StartEnv<'a> {
    pub(super) pool: &'a WorkerPool,
    pub(super) clock: &'a Clock,
    pub(super) options: &'a ThreadOptions,
    /// Whether this process leads without an elector.
    pub(super) leading: bool,
    /// The term, once this process has been elected.
    pub(super) fence: Option<Fence>,
}

impl Component {
    fn new<R: Runnable + 'static>(
        kind: &'static str,
        name: String,
        start: impl FnOnce(&StartEnv<'_>) -> Result<R, StartError> + Send + 'static,
    ) -> Self {
        let start: ComponentStart =
            Box::new(move |env| start(env).map(|running| Box::new(running) as Box<dyn Runnable>));
        Self { name, kind, start, waits_to_lead: false, controller: None, source: None }
    }

    /// Runs a function on its own thread, `<name>-0`.
    ///
    /// Its context is cancelled when the component stops. The function may return at any time. An error or a panic fails the
    /// manager, except the [`Cancelled`] error of an aborted context.
    pub fn function<E: Into<BoxError>>(
        name: impl Into<String>,
        function: impl FnOnce(&Context) -> Result<(), E> + Send + 'static,
    ) -> Self {
        Self::function_of(name.into(), false, Box::new(move |cx| function(cx).map_err(Into::into)))
    }

    /// Runs a function on its own thread once this process leads.
    ///
    /// Otherwise the same as [`function`](Self::function). A loss of leadership stops it.
    pub fn leading_function<E: Into<BoxError>>(
        name: impl Into<String>,
        function: impl FnOnce(&Context) -> Result<(), E> + Send + 'static,
    ) -> Self {
        Self::function_of(name.into(), true, Box::new(move |cx| function(cx).map_err(Into::into)))
    }

    fn function_of(name: String, waits_to_lead: bool, body: FunctionBody) -> Self {
        let own = name.clone();
        Self { waits_to_lead, ..Self::new("function", name, move |env| start_function(own, body, env)) }
    }

    /// Adds something that already runs. The manager stops it.
    ///
    /// `name` is its name in the manager.
    ///
    /// # Failures
    ///
    /// The manager fails if the component [has failed](Runnable::failure), even if it was stopped or removed before. For example, a
    /// controller fails if its sources do not sync, and a nested manager fails with its first failed component. A panic that ends a
    /// thread is a failure too.
    ///
    /// An end without a stop and without a failure is a failure only if the component [may not end](Runnable::may_end) by itself:
    ///
    /// - Workers (they end with their queue), subscriptions, watches of a channel and managers may end.
    /// - Pollers, other watches, controllers, servers and pools may not. Nor may your own type, unless it says so.
    pub fn running(name: impl Into<String>, running: impl Runnable + 'static) -> Self {
        Self::new(running.kind(), name.into(), |_| Ok(running))
    }

    /// Runs a poller that feeds the queue `to`.
    ///
    /// For a controller, use [`ControllerBuilder::poll`](crate::controller::ControllerBuilder::poll) instead.
    pub fn poller<K, I, Q>(name: impl Into<String>, poller: Poller<I>, to: &Q) -> Self
    where
        I: IntoIterator<Item = K> + 'static,
        Q: Enqueue<K> + Clone + Send + 'static,
        K: 'static,
    {
        let (name, to) = (name.into(), to.clone());
        let mut poller = poller.name(name.clone());
        // Created here, so that its status is available before the start.
        let source = poller.source();
        let start = move |env: &StartEnv<'_>| poller.or_thread_options(env.options).start(&to);
        Self { source: Some(source), ..Self::new("poller", name, start) }
    }
}

impl<K: Key + Sync + fmt::Debug> From<Controller<K>> for Component {
    fn from(controller: Controller<K>) -> Self {
        let handle = controller.handle();
        let (asked, checked, leading, stopped) = (handle.clone(), handle.clone(), handle.clone(), handle.clone());
        let recorded = handle.clone();
        #[cfg(feature = "serve")]
        let (measured, searched) = (handle.clone(), handle.clone());
        #[cfg(feature = "metrics")]
        let exporter = handle.clone();
        let name = controller.name().to_owned();
        let component =
            Self::new("controller", name, move |env| controller.start_as(env.pool, env.leading, env.options));
        let status = Box::new(move || asked.status().shown());
        let entry = ControllerEntry {
            handle: Box::new(handle),
            status,
            health: Box::new(move || checked.health().shown()),
            #[cfg(feature = "serve")]
            metrics: Box::new(move || (measured.metrics(), measured.health().sources)),
            #[cfg(feature = "serve")]
            find_key: Box::new(move |shown| searched.find_key(shown).map(KeyStatus::shown)),
            record_runs: Box::new(move || recorded.record_runs()),
            lead: Box::new(move |fence| leading.lead(fence)),
            stop: Box::new(move || stopped.close()),
            #[cfg(feature = "metrics")]
            export: Box::new(move || exporter.export()),
        };
        Self { controller: Some(entry), ..component }
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> From<Running<Watch<K, T>>> for Component {
    fn from(watch: Running<Watch<K, T>>) -> Self {
        let (source, lists) = (watch.source(), !watch.may_end());
        Self { kind: "watch", source: lists.then(|| source.clone()), ..Self::running(source.name(), watch) }
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Component").field("name", &self.name).finish_non_exhaustive()
    }
}

type FunctionBody = Box<dyn FnOnce(&Context) -> Result<(), BoxError> + Send>;

/// Calls a function on its own thread.
fn start_function(name: String, body: FunctionBody, env: &StartEnv<'_>) -> Result<Running<()>, StartError> {
    let group = ThreadGroup::new(ThreadGroupKind::Component, name, env.clock.clone(), 1);
    let stop = CancellationToken::new();
    let own = Arc::clone(&group);
    let cx = Context::detached_with(group.clock.clone(), stop.clone()).in_term(env.fence.clone());
    let thread = move || {
        let run = || match body(&cx) {
            Err(error)
                if cx.is_cancelled() && matches!(find(&*error), Some(Cancelled::Aborted | Cancelled::TermEnded)) =>
            {
                Ok(())
            }
            ended => ended,
        };
        if let Err(error) = unless_it_panics(run) {
            own.fail(error);
        }
    };
    let component = group.name.as_str();
    log::info!(component; "{component}: the component starts");
    let joiners = vec![group.start_function(env.options, thread)?];
    let handle = Handle::new(group, joiners, move || stop.cancel()).that_may_end();
    Ok(Running::new((), handle, Duration::MAX))
}
