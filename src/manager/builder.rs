//! The settings of a manager.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::handle::Manager;
use super::state::{ManagerInner, ManagerPhase, ManagerState};
use crate::base::cancel::CancellationToken;
use crate::base::clock::Clock;
use crate::base::error::StartError;
use crate::base::sync::Mutex;
use crate::base::thread::ThreadOptions;
use crate::base::wait::{AutoResetEvent, Latch};
use crate::manager::election::Elector;
use crate::run::pool::{PoolBuilder, WorkerPool};

impl Manager {
    /// Settings for a manager.
    pub fn builder() -> ManagerBuilder {
        ManagerBuilder::new()
    }
}

/// The settings of a [`Manager`].
///
/// # Examples
///
/// ```
/// use homeostat::Manager;
///
/// let error = Manager::builder().threads(0).build().unwrap_err();
/// assert_eq!(error.to_string(), "threads is 0, but must be at least 1");
/// ```
#[must_use = "settings do nothing until the manager is built"]
pub struct ManagerBuilder {
    name: String,
    /// As far as it is set here; the rest is the manager's.
    pool: PoolBuilder,
    clock: Clock,
    grace: Duration,
    abort_grace: Duration,
    abort_on: Vec<CancellationToken>,
    options: ThreadOptions,
    unready_after: Duration,
    elector: Option<Arc<dyn Elector>>,
}

impl ManagerBuilder {
    pub(super) fn new() -> Self {
        Self {
            name: "manager".to_owned(),
            pool: WorkerPool::builder(),
            clock: Clock::system(),
            grace: Duration::from_secs(30),
            abort_grace: Duration::from_secs(1),
            abort_on: Vec::new(),
            options: ThreadOptions::new(),
            unready_after: Duration::from_secs(120),
            elector: None,
        }
    }

    /// The name in log lines, and of the threads of the shared pool (`<name>-pool-0` and so on). Default `manager`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many threads the controllers share, and so how many runs there are at once. Default: 4.
    pub fn threads(mut self, threads: usize) -> Self {
        self.pool = self.pool.threads(threads);
        self
    }

    /// How many threads may be started in place of those whose runs are stuck. Default: 4.
    pub fn spares(mut self, spares: usize) -> Self {
        self.pool = self.pool.spares(spares);
        self
    }

    /// The clock that it and its controllers go by. Default: the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// How long components may take to finish what they have begun once they are to stop. It is one period for all, and begins for all at
    /// the same time. Default: 30 s.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long what has been aborted may take to end; then it is named and left to itself. An elector has as long to resign.
    /// Default: 1 s.
    pub fn abort_grace(mut self, grace: Duration) -> Self {
        self.abort_grace = grace;
        self
    }

    /// Once this token is cancelled, everything stops and is aborted at once: for a second signal. Given several times, any one of
    /// the tokens does it.
    pub fn abort_on(mut self, abort: &CancellationToken) -> Self {
        self.abort_on.push(abort.clone());
        self
    }

    /// How its threads are made: those of the shared pool among them, and those of every component that has no thread options
    /// of its own. A watch that is added already has its thread.
    pub fn thread_options(mut self, options: ThreadOptions) -> Self {
        self.options = options;
        self
    }

    /// How long a source (a poller or a watch) may fail before [`Manager::ready`] says so, counted from the first failure since it
    /// last succeeded. A controller can have a [bound of its own](crate::controller::ControllerBuilder::unready_after). Choose it longer than the
    /// periods of the polls: a poll that fails once counts as failing until the next one. Default: two minutes.
    pub fn unready_after(mut self, bound: Duration) -> Self {
        self.unready_after = bound;
        self
    }

    /// Decides whether this process leads. Default: it does. The leadership is given back when everything has ended; if something
    /// had to be left to itself, with the process.
    pub fn elector(mut self, elector: impl Elector + 'static) -> Self {
        self.elector = Some(Arc::new(elector));
        self
    }

    /// The manager.
    ///
    /// # Errors
    ///
    /// If it has no name, or the number of threads is zero.
    pub fn build(self) -> Result<Manager, StartError> {
        if self.name.is_empty() {
            return Err(StartError::named("name", &self.name, "is empty"));
        }
        StartError::check_name(&self.name)?;
        self.pool.check()?;
        let pool = self
            .pool
            .name(format!("{}-pool", self.name))
            .clock(self.clock.clone())
            .shutdown_grace(Duration::ZERO)
            .thread_options(self.options.clone());
        let state = ManagerState {
            phase: ManagerPhase::Idle,
            pending: VecDeque::new(),
            adding: Vec::new(),
            started: Vec::new(),
            removals: Vec::new(),
            names: HashSet::new(),
            controllers: HashMap::new(),
            watches: HashMap::new(),
            pool: None,
            at_end: Vec::new(),
            sources: HashMap::new(),
            failure: None,
            leading: false,
            lost: false,
        };
        let abort = CancellationToken::new();
        let ended = Latch::new(self.clock.clone());
        let abort_on = self.abort_on.into_iter().map(|token| {
            let own = abort.clone();
            token.on_cancel(move || own.cancel())
        });
        Ok(Manager {
            inner: Arc::new(ManagerInner {
                _abort_on: abort_on.collect(),
                name: self.name,
                signal: AutoResetEvent::new(self.clock.clone()),
                clock: self.clock,
                grace: self.grace,
                abort_grace: self.abort_grace,
                options: self.options,
                unready_after: self.unready_after,
                pool,
                elector: self.elector,
                stop: CancellationToken::new(),
                abort,
                resign: CancellationToken::new(),
                state: Mutex::new(state),
                outcome: Mutex::new(None),
                ended,
            }),
        })
    }
}

impl fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerBuilder")
            .field("name", &self.name)
            .field("threads", &self.pool.threads)
            .field("shutdown_grace", &self.grace)
            .field("elector", &self.elector.is_some())
            .finish_non_exhaustive()
    }
}
