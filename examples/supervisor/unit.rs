//! Where one service stands, and what has to be done next: a pure decision that starts, signals and waits for nothing.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Instant;

use homeostat::run::{CrashLoopGuard, Failure, RetryDecision};
use homeostat::{Exponential, RetryPolicy};

use crate::config::Service;
use crate::process::Process;
use crate::supervisor::{self, Name};
use crate::table::span;

/// What the supervisor knows about one service.
#[derive(Debug)]
pub(crate) struct Unit {
    /// The definition by which it was last started, or that it has adopted since.
    pub(crate) service: Arc<Service>,
    pub(crate) phase: Phase,
    /// When the phase began.
    pub(crate) since: Instant,
    pub(crate) starts: u64,
    pub(crate) last_exit: Option<ExitStatus>,
}

#[derive(Debug)]
pub(crate) enum Phase {
    /// Not started, or stopped.
    Down,
    /// A reconcile is starting it at this moment.
    Starting,
    /// It could not be started; the work queue's backoff decides about the next try.
    Failed(String),
    Running(Arc<Process>),
    /// Told to stop. Killed at `kill_at`, unless that has been done.
    Stopping {
        process: Arc<Process>,
        kill_at: Instant,
        killed: bool,
    },
    /// Ended by itself, and comes back at `until`.
    Backoff {
        until: Instant,
    },
    /// Ended by itself, and its policy is not to restart it.
    Ended,
}

/// What brings a unit nearer to what is wanted.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing, until something changes.
    Rest,
    /// Nothing, until then.
    Wait(Instant),
    /// The same, after a run that has ended by itself.
    ComeBack(Instant),
    Start(Arc<Service>),
    /// Go on under this definition.
    Adopt(Arc<Service>),
    /// Send the stop signal.
    Stop(Arc<Process>),
    /// The time to stop by itself is over.
    Kill,
    /// The process is gone: say what follows.
    Settle(ExitStatus),
    /// There is no process, and none is wanted.
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

    /// Whether there is a process, or will be in a moment.
    pub(crate) fn is_alive(&self) -> bool {
        self.process().is_some() || matches!(self.phase, Phase::Starting)
    }

    pub(crate) fn restarts(&self) -> u64 {
        self.starts.saturating_sub(1)
    }

    /// What to do next, if `wanted` is what ought to run.
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

    /// `otherwise`, if `service` is no news.
    fn adopt_or(&self, service: &Arc<Service>, otherwise: Step) -> Step {
        if *service == self.service { otherwise } else { Step::Adopt(Arc::clone(service)) }
    }

    /// Whether the policy has another run follow the last one.
    fn comes_back(&self) -> bool {
        self.last_exit.is_none_or(|exit| self.service.restart.follows(exit.success()))
    }

    /// Takes up a definition that differs in how to supervise, not in what to run.
    pub(crate) fn adopt(&mut self, service: Arc<Service>, now: Instant) {
        log::info!("{}: has new settings", service.name);
        self.service = service;
        match self.phase {
            Phase::Backoff { .. } if !self.comes_back() => self.enter(Phase::Ended, now),
            Phase::Ended if self.comes_back() => self.enter(Phase::Down, now),
            _ => {}
        }
    }

    /// Takes up `service` for a start. A new launch begins with a clean record.
    pub(crate) fn begin(&mut self, service: Arc<Service>, guard: &CrashLoopGuard<Name>, now: Instant) {
        if service.launch != self.service.launch {
            guard.forget(&service.name);
        }
        self.service = service;
        self.enter(Phase::Starting, now);
    }

    /// The start has succeeded, or has not.
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

    /// `process` has until `kill_at` to end by itself.
    pub(crate) fn stopping(&mut self, process: &Arc<Process>, kill_at: Instant, now: Instant) {
        let process = Arc::clone(process);
        self.enter(Phase::Stopping { process, kill_at, killed: false }, now);
    }

    /// Kills the process and its group, if that has not been done.
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

    /// The process has ended. With a `guard`, its policy decides about a restart if it was not told to end.
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

    /// Everything is being stopped: what was about to start will not.
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

/// The retry policy: when to start again a service that has ended by itself or could not be started. An edit and a signal end any
/// backoff at once: it has no floor.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) backoff: Exponential,
}

impl RetryPolicy<Name> for Rules {
    fn decide(&self, failure: &Failure<'_, Name>) -> RetryDecision {
        match failure.error.downcast_ref() {
            Some(supervisor::Failure::Ended { back_in, .. }) => RetryDecision::Retry(*back_in),
            _ => self.backoff.decide(failure),
        }
    }
}
