//! The status of a manager as a table, and its liveness and readiness.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use super::election::Holder;
use super::handle::Manager;
use super::state::ManagerPhase;
use crate::base::text::{OneLine, bounded, one_line};
use crate::base::time::Rounded;
use crate::controller::ControllerStatus;
use crate::run::error::Chain;
use crate::watch::source::{SourceHandle, SourceStatus};

/// The status of a manager, its controllers and its sources. Displays as a table.
///
/// With the feature `signals`, `Manager::run_until_signal` prints the same table at SIGUSR1.
///
/// # Examples
///
/// ```
/// use homeostat::{Action, BoxError, Context, Controller, Manager};
///
/// let manager = Manager::builder().build()?;
/// let reconcile = |_cx: &Context, _vm: &&str| -> Result<Action, BoxError> { Ok(Action::await_change()) };
/// manager.add(Controller::builder("vm", reconcile).build()?)?;
/// let table = manager.status().to_string();
/// assert!(table.starts_with("manager: not started\n"));
/// assert!(table.contains("vm          syncing"));
/// # Ok::<_, homeostat::StartError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ManagerStatus {
    /// The manager's name.
    pub name: String,
    /// The time of this status. Ages and delays count from here.
    pub taken_at: Instant,
    /// The same time on the wall clock.
    pub time_of_day: SystemTime,
    /// Its current activity, in a few words.
    pub doing: &'static str,
    /// The leader, if there is an elector and it knows the leader.
    pub leader: Option<Holder>,
    /// The time for which the leader has led. It compares the wall clocks of two processes, so it may be wrong by their
    /// difference.
    pub leader_for: Option<Duration>,
    /// Whether this process leads. Without an elector, it leads from the start of the manager.
    pub leading: bool,
    /// Whether there is an elector.
    pub elected: bool,
    /// The number of threads that its controllers share. Extra threads may replace those with stuck runs.
    pub threads: usize,
    /// The names of its components, sorted.
    pub components: Vec<String>,
    /// The first component that failed, which stopped the manager, and its error with all sources.
    pub failure: Option<(String, String)>,
    /// Its controllers, by name.
    pub controllers: Vec<ControllerStatus>,
    /// Its pollers and watches, by name. The status of a controller contains the sources that it owns.
    pub sources: Vec<SourceStatus>,
}

/// The result of a health check: ok, or the reasons for a failure.
///
/// # Examples
///
/// ```
/// use homeostat::Manager;
///
/// let manager = Manager::builder().build()?;
/// let ready = manager.ready();
/// assert!(!ready.is_ok());
/// assert_eq!(ready.to_string(), "manager: not started");
/// assert_eq!(manager.live().to_string(), "ok");
/// # Ok::<_, homeostat::StartError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    reasons: Vec<String>,
    /// The name of the part of each reason.
    names: Vec<String>,
}

impl Health {
    /// Returns whether all is well.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.reasons.is_empty()
    }

    /// Returns the reasons for the failure. Empty if all is well.
    #[must_use]
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }

    /// Returns the name of a component, or of the manager, with each reason.
    pub fn by_name(&self) -> impl Iterator<Item = (&str, &str)> {
        self.names.iter().zip(&self.reasons).map(|(name, reason)| (name.as_str(), reason.as_str()))
    }

    /// Adds one line. Control characters are escaped.
    fn add(&mut self, name: &str, reason: &dyn fmt::Display) {
        self.names.push(name.to_owned());
        self.reasons.push(format!("{}: {}", OneLine(name), OneLine(reason)));
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ok() { f.write_str("ok") } else { f.write_str(&self.reasons.join("; ")) }
    }
}

impl Manager {
    /// Returns the status of the manager. Visits only the suspended keys and the failed keys of each controller.
    #[must_use]
    pub fn status(&self) -> ManagerStatus {
        self.status_with(self.all_managed().iter().map(|(_, controller)| controller.status()).collect())
    }

    /// Returns the same status, but no keys: each controller shows its phase, counts, measurements and sources. Visits
    /// no keys, so frequent calls are cheap.
    #[must_use]
    pub fn summary(&self) -> ManagerStatus {
        self.status_with(self.controllers())
    }

    /// Returns the status of each controller without its keys, by name; see [`summary`](Self::summary).
    #[must_use]
    pub fn controllers(&self) -> Vec<ControllerStatus> {
        self.all_managed().iter().map(|(_, controller)| controller.summary()).collect()
    }

    fn status_with(&self, controllers: Vec<ControllerStatus>) -> ManagerStatus {
        let leader = self.leader();
        let since = leader.as_ref().and_then(|leader| leader.since);
        let leader_for = since.and_then(|since| self.inner.clock.time_of_day().duration_since(since).ok());
        ManagerStatus {
            name: self.inner.settings.name.clone(),
            taken_at: self.inner.clock.now(),
            time_of_day: self.inner.clock.time_of_day(),
            doing: self.doing(),
            leader,
            leader_for,
            leading: self.is_leading(),
            elected: self.inner.settings.elector.is_some(),
            threads: self.inner.settings.pool.threads,
            components: self.components(),
            failure: self.failure(),
            controllers,
            sources: self.sources(),
        }
    }

    /// Asks the elector for the leader, without the lock: it may read a file.
    pub(super) fn leader(&self) -> Option<Holder> {
        self.inner.settings.elector.as_ref().and_then(|elector| elector.leader())
    }

    /// Returns the names of the components, sorted.
    #[must_use]
    pub fn components(&self) -> Vec<String> {
        self.inner.state.lock().components.iter().map(|member| member.facts.name.clone()).collect()
    }

    /// Returns the first component that has failed, and its error with all sources.
    fn failure(&self) -> Option<(String, String)> {
        let (component, error) = self.inner.state.lock().failure.clone()?;
        // Without the lock: formatting an error is user code.
        Some((component, bounded(Chain(&**error).to_string())))
    }

    fn doing(&self) -> &'static str {
        let phase = self.inner.state.lock().phase;
        match (phase, self.is_leading()) {
            (ManagerPhase::Idle, _) => "not started",
            (ManagerPhase::Starting, _) => "starting",
            (ManagerPhase::Running, true) => "running",
            (ManagerPhase::Running, false) => "running, another process leads",
            (ManagerPhase::Stopping, _) => "stopping",
            (ManagerPhase::Ended, _) => "ended",
        }
    }

    /// Returns the status of the components that list, by name.
    pub(super) fn sources(&self) -> Vec<SourceStatus> {
        let state = self.inner.state.lock();
        let handles: Vec<_> = state.components.iter().filter_map(|member| member.facts.source.clone()).collect();
        drop(state);
        handles.iter().map(SourceHandle::status).collect()
    }

    /// Returns whether nothing is stuck and no component has failed.
    ///
    /// A run or listing past its deadline counts as stuck. The deadline of a poll is one period. The deadline of an
    /// object listing is the list timeout of its watch. Includes the sources of controllers, the watches that they
    /// read, and the manager's own pollers and watches. Each reason names a controller with its key or source, or a
    /// poller or watch.
    ///
    /// Visits runs and sources, not waiting keys, so frequent calls are cheap.
    #[must_use]
    pub fn live(&self) -> Health {
        let mut health = Health::default();
        if let Some((component, error)) = self.failure() {
            health.add(&component, &error);
        }
        for source in self.sources().iter().filter(|source| source.overdue) {
            health.add(&source.name, &source.overdue_text());
        }
        for (name, controller) in self.all_managed() {
            controller.stuck().iter().for_each(|reason| health.add(&name, reason));
        }
        health
    }

    /// Returns whether the manager runs and all its sources work.
    ///
    /// All first listings must be complete, including the listings of sources that were added later. No source may have
    /// been failing for longer than [`ManagerBuilder::unready_after`](crate::manager::ManagerBuilder::unready_after).
    /// Each reason names a controller with its source, or a poller or watch. A process that waits to lead is ready.
    ///
    /// Visits sources, not keys, so frequent calls are cheap.
    #[must_use]
    pub fn ready(&self) -> Health {
        let mut health = Health::default();
        let doing = self.doing();
        if !doing.starts_with("running") {
            health.add(&self.inner.settings.name, &doing);
            return health;
        }
        let bound = self.inner.settings.unready_after;
        for source in self.sources() {
            if !source.synced {
                health.add(&source.name, &format!("its first listing has not completed{}", source.why()));
            } else if let Some(fault) = source.failing_beyond(bound) {
                health.add(&source.name, &fault);
            }
        }
        for (name, controller) in self.all_managed() {
            controller.unready(bound).iter().for_each(|reason| health.add(&name, reason));
        }
        health
    }
}

/// The number of failing and parked keys of a controller in the table.
const SHOWN_KEYS: usize = 5;

impl fmt::Display for ManagerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", OneLine(&self.name), self.doing)?;
        if let Some(leader) = &self.leader {
            write!(f, "; the leader is {}", OneLine(leader))?;
        }
        if let Some(time) = self.leader_for {
            write!(f, ", for {}", Rounded(time))?;
        }
        writeln!(f)?;
        let names = self.controllers.iter().map(|controller| one_line(&controller.name).chars().count());
        let width = names.max().unwrap_or(0).max(10);
        let heads = "phase       active    ready  delayed  failing   parked       runs   errors";
        writeln!(f, "{:width$}  {heads}", "controller")?;
        for controller in &self.controllers {
            let metrics = &controller.metrics;
            writeln!(
                f,
                "{:width$}  {:9}  {:>7}  {:>7}  {:>7}  {:>7}  {:>7}  {:>9}  {:>7}",
                OneLine(&controller.name),
                controller.phase,
                format!("{}/{}", metrics.runs.active, metrics.max_concurrent_reconciles),
                metrics.queue.depth(),
                metrics.queue.delayed,
                metrics.failing,
                metrics.parked,
                metrics.runs.runs(),
                metrics.runs.errors(),
            )?;
        }
        if let Some((component, error)) = &self.failure {
            writeln!(f, "{}: failed: {}", OneLine(component), OneLine(error))?;
        }
        self.controllers.iter().try_for_each(|controller| details(f, controller, self.taken_at))?;
        self.sources.iter().filter(|source| source.fault().is_some()).try_for_each(|source| writeln!(f, "{source}"))
    }
}

fn details(f: &mut fmt::Formatter<'_>, controller: &ControllerStatus, now: Instant) -> fmt::Result {
    let name = OneLine(&controller.name);
    for gate in &controller.gates {
        writeln!(f, "{name}: {}", OneLine(gate))?;
    }
    for source in controller.sources.iter().filter(|source| source.fault().is_some()) {
        writeln!(f, "{name}: {source}")?;
    }
    for run in &controller.running {
        let overdue = if run.overdue { ", past its deadline" } else { "" };
        let (key, thread) = (OneLine(&run.key), OneLine(&run.thread));
        writeln!(f, "{name}: {key} has been running for {} on {thread}{overdue}", Rounded(run.elapsed))?;
    }
    if let Some((key, age)) = &controller.oldest_waiting {
        writeln!(f, "{name}: {} has been waiting for {}", OneLine(key), Rounded(*age))?;
    }
    let failed_keys = controller.failing.iter().chain(&controller.parked);
    for failed in failed_keys.clone().take(SHOWN_KEYS) {
        let fate = if failed.parked { "is parked" } else { "is failing" };
        let times =
            if failed.failures == 1 { "failed once".to_owned() } else { format!("failed {} times", failed.failures) };
        let (key, error) = (OneLine(&failed.key), OneLine(&failed.error));
        write!(f, "{name}: {key} {fate}, {times}")?;
        if let Some(next) = failed.next_try {
            write!(f, ", next try in {}", Rounded(next.saturating_duration_since(now)))?;
        }
        writeln!(f, ": {error}")?;
    }
    let more = failed_keys.count().saturating_sub(SHOWN_KEYS);
    if more > 0 {
        writeln!(f, "{name}: {more} more keys have failed")?;
    }
    Ok(())
}
