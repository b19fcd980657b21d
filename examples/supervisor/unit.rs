//! The state of one service, and its next step: a pure decision that starts, signals and waits for nothing.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use homeostat::run::FailedRun;
use homeostat::{Exponential, RetryPolicy};
use homeostat_host::CrashLoopGuard;

use crate::config::Service;
use crate::process::Process;
use crate::supervisor::{self, Name};
use crate::table::span;

/// One service as the supervisor knows it.
#[derive(Debug)]
pub(crate) struct Unit {
    /// The settings of the last start, or those adopted since.
    pub(crate) service: Arc<Service>,
    pub(crate) phase: Phase,
    /// When the phase started.
    pub(crate) since: Instant,
    pub(crate) starts: u64,
    pub(crate) last_exit: Option<ExitStatus>,
}

#[derive(Debug)]
pub(crate) enum Phase {
    /// Not started, or stopped.
    Down,
    /// A reconcile is starting it now.
    Starting,
    /// The start failed. The backoff of the queue decides when to try again.
    Failed(String),
    Running(Arc<Process>),
    /// Asked to stop. Killed at `kill_at`, unless it has been killed before.
    Stopping {
        process: Arc<Process>,
        kill_at: Instant,
        killed: bool,
    },
    /// Ended by itself, restarts at `until`.
    Backoff {
        until: Instant,
    },
    /// Ended by itself, and is not restarted.
    Ended,
}

/// The next step of a service.
#[derive(Debug)]
pub(crate) enum Step {
    /// Wait for a change.
    Rest,
    /// Wait until this time.
    Wait(Instant),
    /// Wait until this time for the restart of a process that ended by itself.
    ComeBack(Instant),
    Start(Arc<Service>),
    /// Continue with these settings.
    Adopt(Arc<Service>),
    /// Send the stop signal.
    Stop(Arc<Process>),
    /// Kill the process: its time to stop has passed.
    Kill,
    /// The process has ended: choose the next action.
    Settle(ExitStatus),
    /// Forget the service: it has no process and needs none.
    Forget,
}

impl Unit {
    pub(crate) fn new(service: Arc<Service>, now: Instant) -> Self {
        Self { service, phase: Phase::Down, since: now, starts: 0, last_exit: None }
    }

    pub(crate) fn process(&self) -> Option<&Arc<Process>> {
        match &self.phase {
            Phase::Running(process) | Phase::Stopping { process, .. } => Some(process),
            Phase::Down | Phase::Starting | Phase::Failed(_) | Phase::Backoff { .. } | Phase::Ended => None,
        }
    }

    /// Returns whether there is a process, or one is being started.
    pub(crate) fn is_alive(&self) -> bool {
        self.process().is_some() || matches!(self.phase, Phase::Starting)
    }

    pub(crate) fn restarts(&self) -> u64 {
        self.starts.saturating_sub(1)
    }

    /// Returns the next step towards `wanted`, the service that should run.
    pub(crate) fn step(&self, wanted: Option<&Arc<Service>>, now: Instant) -> Step {
        if let Some(exit) = self.process().and_then(|process| process.exit()) {
            return Step::Settle(exit);
        }
        let changed = |service: &Service| service.launch != self.service.launch;
        match &self.phase {
            Phase::Starting | Phase::Stopping { killed: true, .. } => Step::Rest,
            Phase::Stopping { kill_at, .. } if now < *kill_at => Step::Wait(*kill_at),
            Phase::Stopping { .. } => Step::Kill,
            Phase::Running(process) => match wanted {
                Some(service) if !changed(service) => self.adopt_or(service, Step::Rest),
                Some(_) | None => Step::Stop(Arc::clone(process)),
            },
            Phase::Down | Phase::Failed(_) | Phase::Backoff { .. } | Phase::Ended => match (wanted, &self.phase) {
                (None, _) => Step::Forget,
                (Some(service), Phase::Ended) if !changed(service) => self.adopt_or(service, Step::Rest),
                (Some(service), Phase::Backoff { until }) if now < *until && !changed(service) => {
                    self.adopt_or(service, Step::ComeBack(*until))
                }
                (Some(service), _) => Step::Start(Arc::clone(service)),
            },
        }
    }

    /// Returns `otherwise` if `service` has the same settings.
    fn adopt_or(&self, service: &Arc<Service>, otherwise: Step) -> Step {
        if *service == self.service { otherwise } else { Step::Adopt(Arc::clone(service)) }
    }

    /// Returns whether the policy restarts it after the last exit.
    fn comes_back(&self) -> bool {
        self.last_exit.is_none_or(|exit| self.service.restart.follows(exit.success()))
    }

    /// Adopts settings with the same launch.
    pub(crate) fn adopt(&mut self, service: Arc<Service>, now: Instant) {
        log::info!("{}: has new settings", service.name);
        self.service = service;
        match self.phase {
            Phase::Backoff { .. } if !self.comes_back() => self.enter(Phase::Ended, now),
            Phase::Ended if self.comes_back() => self.enter(Phase::Down, now),
            _ => {}
        }
    }

    /// Begins a start with the settings of `service`. A new launch starts with a clean record.
    pub(crate) fn begin(&mut self, service: Arc<Service>, guard: &CrashLoopGuard<Name>, now: Instant) {
        if service.launch != self.service.launch {
            guard.forget(&service.name);
        }
        self.service = service;
        self.enter(Phase::Starting, now);
    }

    /// Records the outcome of the start.
    pub(crate) fn started(
        &mut self,
        outcome: io::Result<Process>,
        guard: &CrashLoopGuard<Name>,
        now: Instant,
    ) -> io::Result<()> {
        match outcome {
            Ok(process) => {
                self.starts += 1;
                guard.started(&self.service.name);
                log::info!("{}: started as pid {} (start {})", self.service.name, process.id(), self.starts);
                self.enter(Phase::Running(Arc::new(process)), now);
                Ok(())
            }
            Err(error) => {
                self.enter(Phase::Failed(error.to_string()), now);
                Err(error)
            }
        }
    }

    /// Records that `process` was asked to stop, and must end before `kill_at`.
    pub(crate) fn stopping(&mut self, process: &Arc<Process>, kill_at: Instant, now: Instant) {
        let process = Arc::clone(process);
        self.enter(Phase::Stopping { process, kill_at, killed: false }, now);
    }

    /// Kills the process and its group, unless they have been killed.
    pub(crate) fn kill(&mut self, now: Instant) -> io::Result<()> {
        let (Phase::Running(process) | Phase::Stopping { process, killed: false, .. }) = &self.phase else {
            return Ok(());
        };
        let process = Arc::clone(process);
        log::warn!("{}: killing pid {} and its group", self.service.name, process.id());
        process.kill()?;
        self.enter(Phase::Stopping { process, kill_at: now, killed: true }, now);
        Ok(())
    }

    /// Records that the process has ended. If nothing asked it to end, the policy of the `guard` decides about a
    /// restart.
    pub(crate) fn settle(&mut self, exit: ExitStatus, guard: Option<&CrashLoopGuard<Name>>, now: Instant) {
        let name = &self.service.name;
        let ran = now.saturating_duration_since(self.since);
        self.last_exit = Some(exit);
        let phase = match (&self.phase, guard) {
            (Phase::Running(_), Some(guard)) if self.comes_back() => {
                let delay = guard.ended(name);
                let restart = if delay.is_zero() { "at once".to_owned() } else { format!("in {}", span(delay)) };
                log::warn!("{name}: ended after {} ({exit}), restart {restart}", span(ran));
                Phase::Backoff { until: now + delay }
            }
            (Phase::Running(_), Some(_)) => {
                log::info!("{name}: ended after {} ({exit}), no restart", span(ran));
                Phase::Ended
            }
            _ => {
                log::info!("{name}: stopped ({exit})");
                Phase::Down
            }
        };
        self.enter(phase, now);
    }

    /// Cancels a pending start, because all services are being stopped.
    pub(crate) fn rest(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Backoff { .. } | Phase::Failed(_)) {
            self.enter(Phase::Down, now);
        }
    }

    fn enter(&mut self, phase: Phase, now: Instant) {
        self.phase = phase;
        self.since = now;
    }
}

/// The retry policy: decides when to start a service again that has ended by itself or could not be started. An edit or
/// a signal ends any backoff at once, because the policy has no floor.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) backoff: Exponential,
}

impl RetryPolicy<Name> for Rules {
    fn decide(&self, failure: &FailedRun<'_, Name>) -> Option<Duration> {
        match failure.error.downcast_ref() {
            Some(supervisor::Failure::Ended { back_in, .. }) => Some(*back_in),
            _ => self.backoff.decide(failure),
        }
    }
}
