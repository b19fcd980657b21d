//! What a manager says of itself: a table, and whether it is live and ready.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::unit::Entry;
use super::{Manager, Phase};
use crate::controller::{self, ControllerStatus};

/// What a manager is doing, and why. Its `Display` is a table for people.
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
    /// Its name.
    pub name: String,
    /// What it is doing, in a word or two.
    pub doing: &'static str,
    /// Its controllers, by name.
    pub controllers: Vec<ControllerStatus<String>>,
}

/// Whether all is well, and if not, why not.
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
}

impl Health {
    /// Whether all is well.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.reasons.is_empty()
    }

    /// Why not.
    #[must_use]
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ok() { f.write_str("ok") } else { f.write_str(&self.reasons.join("; ")) }
    }
}

impl Manager {
    /// What it is doing, and why. Looks at every key of every controller.
    #[must_use]
    pub fn status(&self) -> ManagerStatus {
        let state = self.inner.state.lock();
        let doing = match (state.phase, state.leading) {
            (Phase::Idle, _) => "not started",
            (Phase::Starting, _) => "starting",
            (Phase::Running, true) => "running",
            (Phase::Running, false) => "running, another process leads",
            (Phase::Stopping, _) => "stopping",
            (Phase::Ended, _) => "ended",
        };
        drop(state);
        let mut controllers: Vec<_> = self.entries().iter().map(|entry| (entry.status)()).collect();
        controllers.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        ManagerStatus { name: self.inner.name.clone(), doing, controllers }
    }

    /// Tells the `metrics` facade what all controllers have counted; see
    /// [`ControllerHandle::export_metrics`](crate::ControllerHandle::export_metrics).
    #[cfg(feature = "metrics")]
    pub fn export_metrics(&self) {
        for entry in self.entries() {
            (entry.export)();
        }
    }

    /// What is known of the controllers, to be asked without the lock: a key that is shown is user code.
    fn entries(&self) -> Vec<Arc<Entry>> {
        self.inner.state.lock().controllers.values().cloned().collect()
    }

    /// Whether nothing is stuck: no run and no listing is past its deadline, and nothing has failed.
    #[must_use]
    pub fn live(&self) -> Health {
        let mut reasons = Vec::new();
        let failure = {
            let state = self.inner.state.lock();
            for (unit, crew) in &state.crews {
                let overdue = crew.overdue().into_iter();
                reasons.extend(overdue.map(|thread| format!("{unit}: a listing on {thread} is past its deadline")));
            }
            state.failure.clone()
        };
        // Without the lock: an error that is shown is user code.
        reasons.extend(failure.map(|failure| format!("{}: {}", failure.unit, failure.error)));
        for controller in self.status().controllers {
            for run in controller.running.iter().filter(|run| run.overdue) {
                reasons.push(format!("{}: {} has been running for {:?}", controller.name, run.key, run.elapsed));
            }
        }
        Health { reasons }
    }

    /// Whether it runs, and the initial listings of all its controllers are in. A process that waits to lead is ready.
    #[must_use]
    pub fn ready(&self) -> Health {
        let status = self.status();
        let mut reasons = Vec::new();
        if !status.doing.starts_with("running") {
            reasons.push(format!("{}: {}", status.name, status.doing));
            return Health { reasons };
        }
        for controller in status.controllers {
            if controller.phase == controller::Phase::Syncing {
                reasons.push(format!("{}: its initial listings are not in", controller.name));
            }
        }
        Health { reasons }
    }
}

/// How many failing and parked keys of a controller the table shows.
const TROUBLES: usize = 5;

impl fmt::Display for ManagerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.doing)?;
        let width = self.controllers.iter().map(|controller| controller.name.len()).max().unwrap_or(0).max(10);
        writeln!(
            f,
            "{:width$}  {:9}  {:>7}  {:>7}  {:>7}  {:>7}  {:>7}  {:>9}  {:>7}",
            "controller", "phase", "active", "ready", "delayed", "failing", "parked", "runs", "errors"
        )?;
        for controller in &self.controllers {
            let metrics = &controller.metrics;
            writeln!(
                f,
                "{:width$}  {:9}  {:>7}  {:>7}  {:>7}  {:>7}  {:>7}  {:>9}  {:>7}",
                controller.name,
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
        self.controllers.iter().try_for_each(|controller| details(f, controller))
    }
}

fn details(f: &mut fmt::Formatter<'_>, controller: &ControllerStatus<String>) -> fmt::Result {
    let name = &controller.name;
    for run in &controller.running {
        let overdue = if run.overdue { ", past its deadline" } else { "" };
        writeln!(f, "{name}: {} has been running for {} on {}{overdue}", run.key, short(run.elapsed), run.thread)?;
    }
    if let Some((key, age)) = &controller.oldest_waiting {
        writeln!(f, "{name}: {key} has been waiting for {}", short(*age))?;
    }
    let troubles = controller.failing.iter().chain(&controller.parked);
    for trouble in troubles.clone().take(TROUBLES) {
        let fate = if trouble.parked { "is parked" } else { "is failing" };
        writeln!(f, "{name}: {} {fate} after {} tries: {}", trouble.key, trouble.failures, trouble.error)?;
    }
    let more = troubles.count().saturating_sub(TROUBLES);
    if more > 0 {
        writeln!(f, "{name}: {more} more keys are in trouble")?;
    }
    Ok(())
}

/// A duration with three significant digits or so.
fn short(duration: Duration) -> String {
    format!("{duration:.1?}")
}
