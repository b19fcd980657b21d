//! The components of a manager.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::group::{ThreadGroup, ThreadGroupKind};
use crate::base::running::{Runnable, Running};
use crate::base::thread::{ThreadOptions, unless_it_panics};
use crate::controller::{Controller, ManagedController};
use crate::queue::{Enqueue, Key};
use crate::run::context::Context;
use crate::run::error::{BoxError, Cancelled, find};
use crate::run::fence::Fence;
use crate::run::pool::WorkerPool;
use crate::watch::source::SourceHandle;
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
#[must_use = "a component does nothing until `Manager::add` is called"]
pub struct Component {
    pub(super) facts: ComponentFacts,
    pub(super) start: ComponentStart,
}

pub(super) struct ComponentFacts {
    pub(super) name: String,
    /// The kind of the component, for errors.
    pub(super) kind: &'static str,
    /// Whether the component starts only once this process leads.
    pub(super) waits_to_lead: bool,
    pub(super) controller: Option<Arc<dyn ManagedController>>,
    /// The source of a poller or watch that lists.
    pub(super) source: Option<SourceHandle>,
    /// The [`Watch`] of a watch, with any type of keys and values.
    pub(super) watch: Option<Box<dyn Any + Send + Sync>>,
}

pub(super) type ComponentStart = Box<dyn FnOnce(&StartEnv<'_>) -> Result<Box<dyn Runnable>, StartError> + Send>;

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
        let facts = ComponentFacts { name, kind, waits_to_lead: false, controller: None, source: None, watch: None };
        Self { facts, start }
    }

    /// Runs a function on its own thread, `<name>-0`.
    ///
    /// Its context is cancelled when the component stops. The function may return at any time. An error or a panic
    /// fails the manager, except the [`Cancelled`] error of an aborted context. Give a call that blocks a timeout, or
    /// end it from [`on_cancel`](crate::CancellationToken::on_cancel) of the context's token.
    pub fn function<E: Into<BoxError>>(
        name: impl Into<String>,
        function: impl FnOnce(&Context) -> Result<(), E> + Send + 'static,
    ) -> Self {
        let name = name.into();
        let (own, body): (_, FunctionBody) = (name.clone(), Box::new(move |cx| function(cx).map_err(Into::into)));
        Self::new("function", name, move |env| start_function(own, body, env))
    }

    /// Starts the component only once this process leads.
    ///
    /// A loss of leadership stops it. Controllers need no such wait: they start with the manager, and run keys once
    /// this process leads. Without an [`Elector`](crate::Elector), the component starts with the manager.
    pub fn when_leading(mut self) -> Self {
        self.facts.waits_to_lead = true;
        self
    }

    /// Adds something that already runs. The manager stops it.
    ///
    /// `name` is its name in the manager. All components are stopped at once, before the elector resigns. Therefore do
    /// not add a server on which the elector or another component keeps a lease: drop it after the manager.
    ///
    /// # Failures
    ///
    /// The manager fails if the component [has failed](Runnable::failure), even if it was stopped or removed before.
    /// For example, a controller fails if its sources do not sync, and a nested manager fails with its first failed
    /// component. A panic that ends a thread is a failure too.
    ///
    /// An end without a stop and without a failure is a failure only if the component [may not end](Runnable::may_end)
    /// by itself:
    ///
    /// - Workers (they end with their queue), subscriptions, watches of a channel and managers may end.
    /// - Pollers, other watches, controllers, servers and pools may not. Your own type may not, unless it says so.
    pub fn running(name: impl Into<String>, running: impl Runnable + 'static) -> Self {
        Self::new(running.kind(), name.into(), |_| Ok(running))
    }

    /// Runs a poller that feeds the queue `to`.
    ///
    /// For a controller, use [`ControllerBuilder::poll`](crate::controller::ControllerBuilder::poll) instead, unless
    /// the listing needs the handle of the controller.
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
        let start = move |env: &StartEnv<'_>| poller.in_pool(&env.pool.timer.waker(), env.options).start(&to);
        let mut component = Self::new("poller", name, start);
        component.facts.source = Some(source);
        component
    }
}

impl<K: Key + Sync + fmt::Debug> From<Controller<K>> for Component {
    fn from(controller: Controller<K>) -> Self {
        let (name, managed) = (controller.name().to_owned(), controller.managed());
        let start = move |env: &StartEnv<'_>| controller.start_as(env.pool, env.leading, env.options);
        let mut component = Self::new("controller", name, start);
        component.facts.controller = Some(managed);
        component
    }
}

impl<K: Key + Sync, T: Send + Sync + 'static> From<Running<Watch<K, T>>> for Component {
    fn from(watch: Running<Watch<K, T>>) -> Self {
        let (source, lists) = (watch.source(), !watch.may_end());
        let handle = watch.watch().clone();
        let mut component = Self::new("watch", source.name().to_owned(), |_| Ok(watch));
        component.facts.source = lists.then_some(source);
        component.facts.watch = Some(Box::new(handle));
        component
    }
}

/// A value that [`Manager::add`](crate::Manager::add) takes: a [`Component`], a [`Controller`] or a running [`Watch`].
///
/// Each type that converts into a [`Component`] has this trait. For a type of your own, implement
/// `From<YourType> for Component`.
///
/// # Examples
///
/// ```
/// use homeostat::{Component, Context, Manager};
///
/// struct Beat(&'static str);
///
/// impl From<Beat> for Component {
///     fn from(beat: Beat) -> Self {
///         Component::function(beat.0, |_cx: &Context| Ok::<_, std::io::Error>(log::info!("still there")))
///     }
/// }
///
/// let manager = Manager::builder().build()?;
/// manager.add(Beat("beat"))?;
/// # Ok::<_, homeostat::StartError>(())
/// ```
#[diagnostic::on_unimplemented(
    note = "call `.build()?` on a builder, give a poller to a controller's builder, and pass what runs to `Component::running`; a `Push` is not added: give its `.watch()` to a controller"
)]
pub trait IntoComponent: Into<Component> {}

// The compiler then reports the trait above, with its note.
#[diagnostic::do_not_recommend]
impl<T: Into<Component>> IntoComponent for T {}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Component").field("name", &self.facts.name).finish_non_exhaustive()
    }
}

type FunctionBody = Box<dyn FnOnce(&Context) -> Result<(), BoxError> + Send>;

/// Calls a function on its own thread.
fn start_function(name: String, body: FunctionBody, env: &StartEnv<'_>) -> Result<Running<()>, StartError> {
    let group = ThreadGroup::new(ThreadGroupKind::Component, name, env.clock.clone(), 1);
    let stop = CancellationToken::new();
    let (own, stopped, ended) = (Arc::clone(&group), Arc::clone(&group), stop.clone());
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
            own.end.fail(Arc::new(error));
        }
        // Callbacks of a token that outlives the function run here, where the manager waits for them.
        ended.cancel();
    };
    let component = group.name.as_str();
    log::info!(component; "{component}: the component starts");
    let handle = group.start_function(env.options, thread, move || stopped.cancel_aside(&stop))?;
    Ok(Running::new((), handle.that_may_end(), Duration::MAX))
}
