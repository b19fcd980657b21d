//! The settings of a manager.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::handle::Manager;
use super::state::{ManagerInner, Settings};
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::end::End;
use crate::base::error::StartError;
use crate::base::sync::Mutex;
use crate::base::thread::ThreadOptions;
use crate::base::wait::{AutoResetEvent, Monitor};
use crate::manager::election::Elector;
use crate::run::pool::WorkerPool;

impl Manager {
    /// Returns a builder with the default settings.
    pub fn builder() -> ManagerBuilder {
        ManagerBuilder(Settings {
            name: "manager".to_owned(),
            pool: WorkerPool::builder(),
            grace: Duration::from_secs(30),
            abort_grace: Duration::from_secs(1),
            abort: CancellationToken::new(),
            abort_on: Vec::new(),
            unready_after: Duration::from_secs(120),
            elector: None,
        })
    }
}

/// The settings of a [`Manager`].
///
/// It has no `add`, `start` or `run` (`rustc` reports E0599): [`build`](Self::build) makes the manager, which has them.
///
/// # Examples
///
/// ```
/// use homeostat::Manager;
///
/// let error = Manager::builder().threads(0).build().unwrap_err();
/// assert_eq!(error.to_string(), "threads is 0, but must be at least 1");
/// ```
#[must_use = "settings do nothing until `build` is called"]
pub struct ManagerBuilder(Settings);

impl ManagerBuilder {
    /// Sets the manager's name, in log lines and thread names (`<name>-pool-0` and so on). Default: `manager`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.name = name.into();
        self
    }

    /// Sets the number of threads that the controllers share. It also limits the runs at once. Default: 4.
    pub fn threads(mut self, threads: usize) -> Self {
        self.0.pool = self.0.pool.threads(threads);
        self
    }

    /// Sets the number of extra threads that may replace threads with stuck runs. Default: 4.
    pub fn spares(mut self, spares: usize) -> Self {
        self.0.pool = self.0.pool.spares(spares);
        self
    }

    /// Sets the clock of the manager and its controllers. Default: the system clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.0.pool = self.0.pool.clock(clock);
        self
    }

    /// Sets the time that components have to finish their work after a stop.
    ///
    /// All components share one period, which begins for all at the same time. Default: 30 s.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.0.grace = grace;
        self
    }

    /// Sets the time that aborted components have to end.
    ///
    /// After that the manager names the threads that still run, and returns without them. An elector has as long to
    /// resign. Default: 1 s.
    pub fn abort_grace(mut self, grace: Duration) -> Self {
        self.0.abort_grace = grace;
        self
    }

    /// Stops and aborts everything at once when this token is cancelled, for example on a second signal.
    ///
    /// May be called several times: each token aborts the manager.
    pub fn abort_on(mut self, abort: &CancellationToken) -> Self {
        let own = self.0.abort.clone();
        self.0.abort_on.push(abort.on_cancel(move || own.cancel()));
        self
    }

    /// Sets the options of all threads that the manager starts.
    ///
    /// They apply to the shared pool, and to components without thread options. A watch that is added already has its
    /// thread.
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.0.pool = self.0.pool.thread_options(options);
        self
    }

    /// Sets the time that a source may fail before [`Manager::ready`] reports it.
    ///
    /// A source is a poller or a watch. The time counts from its first failure since its last success. A controller can
    /// set [its own bound](crate::controller::ControllerBuilder::unready_after). Use a bound longer than the poll
    /// periods: a poll that fails once counts as failing until the next poll. Default: two minutes.
    pub fn unready_after(mut self, bound: Duration) -> Self {
        self.0.unready_after = bound;
        self
    }

    /// Sets the elector that decides whether this process leads. Default: this process always leads.
    ///
    /// The manager resigns when everything has ended. If threads still run then, it keeps the leadership until the
    /// process exits.
    pub fn elector(mut self, elector: impl Elector + 'static) -> Self {
        self.0.elector = Some(Arc::new(elector));
        self
    }

    /// Builds the manager.
    ///
    /// # Errors
    ///
    /// Returns [`StartError`] if the name is empty or invalid, if the number of threads is zero, or if the abort grace
    /// is longer than the [margin](Elector::stop_margin) of the elector.
    pub fn build(self) -> Result<Manager, StartError> {
        let mut settings = self.0;
        StartError::check_required_name(&settings.name)?;
        settings.pool.check()?;
        if let Some(margin) = settings.elector.as_ref().and_then(|elector| elector.stop_margin())
            && margin < settings.abort_grace
        {
            let rule = "at most the stop margin of the elector, after which another process may lead";
            return Err(StartError::setting("abort_grace", &settings.abort_grace, rule));
        }
        settings.pool = settings.pool.name(format!("{}-pool", settings.name)).shutdown_grace(Duration::ZERO);
        let clock = settings.pool.clock.clone();
        Ok(Manager {
            inner: Arc::new(ManagerInner {
                settings,
                signal: AutoResetEvent::new(clock.clone()),
                stop: CancellationToken::new(),
                state: Mutex::default(),
                starting_watches: Monitor::of(clock.clone(), Vec::new()),
                end: End::new(clock.clone()),
                clock,
            }),
        })
    }
}

impl fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerBuilder")
            .field("name", &self.0.name)
            .field("threads", &self.0.pool.threads)
            .field("shutdown_grace", &self.0.grace)
            .field("elector", &self.0.elector.is_some())
            .finish_non_exhaustive()
    }
}
