//! The runs that followed the actions of people, from the recent runs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::clock_times::{clock_time, happens};
use super::past_actions::{ActionTarget, PastAction, PastActions, SLACK};
use super::runs::ended_as;
use super::suspension::{AFTER_RESUME, is_suspended};
use super::units::size;
use crate::status::{RecentRun, RunLogs, UserAction};
use homeostat::controller::{ControllerPhase, ControllerStatus};

/// The keys that have run since a person requested their runs.
pub(super) struct RequestedRuns {
    pub(super) recovered: HashSet<String>,
    pub(super) failed: HashSet<String>,
}

impl RequestedRuns {
    /// Finds the runs that followed a request among the runs of its controller.
    pub(super) fn of(request: &PastAction, past: &PastActions, runs: &[Arc<RecentRun>]) -> Self {
        let (mut last, mut ended) = (HashMap::new(), Self { recovered: HashSet::new(), failed: HashSet::new() });
        for run in runs {
            let previous = last.insert(&run.key, run);
            if run.started < request.at {
                continue;
            }
            let first = past.request_of(&request.target.controller, (&**run).into(), previous.map(AsRef::as_ref));
            if first.is_some_and(|first| first.target == request.target && first.at == request.at) {
                let keys = if run.outcome.error().is_some() { &mut ended.failed } else { &mut ended.recovered };
                keys.insert(run.key.clone());
            }
        }
        ended
    }

    /// Counts the runs in words. `None` if there are none.
    pub(super) fn words(&self) -> Option<String> {
        let [recovered, failed] = [self.recovered.len(), self.failed.len()];
        let [all, recovered, failed] = [recovered + failed, recovered, failed].map(size);
        (all != "0").then(|| format!("{all} ran, {recovered} recovered, {failed} failed again"))
    }
}

/// Returns the first known run that began after an action on its key, or on all keys of its controller.
pub(super) fn next_run<'a>(action: &PastAction, runs: &'a [Arc<RecentRun>]) -> Option<&'a RecentRun> {
    let is_about = |run: &&Arc<RecentRun>| action.target.key.as_ref().is_none_or(|key| *key == run.key);
    runs.iter().filter(is_about).find(|run| run.started >= action.at).map(AsRef::as_ref)
}

/// Returns the time of the begin of a run, and how it ended, as HTML.
pub(super) fn ran(run: &RecentRun, (now, today): (Instant, SystemTime)) -> String {
    let began = today.checked_sub(now.saturating_duration_since(run.started));
    let at = began.map(|began| format!(" at {}", clock_time(today, began))).unwrap_or_default();
    format!("ran{at} and {}", ended_as(run))
}

/// Describes an action after which no run has ended, as HTML.
fn open(action: &PastAction, controllers: &[ControllerStatus], (now, today): (Instant, SystemTime)) -> String {
    let ActionTarget { controller, key } = &action.target;
    let status = controllers.iter().find(|status| status.name == *controller);
    let waits = status.zip(key.as_ref()).and_then(|(status, key)| {
        let is_key = |shown: &str| shown == key;
        let failed = status.failing.iter().find(|failed| is_key(&failed.key));
        let next = failed.and_then(|failed| failed.next_try).map(|next| next.saturating_duration_since(now));
        if let Some(run) = status.running.iter().find(|run| is_key(&run.key)) {
            let is_earlier = run.elapsed > now.saturating_duration_since(action.at);
            Some(if is_earlier { "after the active run" } else { "it runs now" }.to_owned())
        } else if is_suspended(status, key) || status.phase == ControllerPhase::Suspended {
            Some(AFTER_RESUME.to_owned()).filter(|_| action.action != UserAction::Suspend)
        } else {
            next.filter(|rest| !rest.is_zero()).map(|rest| format!("next try {}", happens(today, rest)))
        }
    });
    waits.unwrap_or_else(|| "no run has ended since".to_owned())
}

/// Describes the runs that followed an action, as HTML. `controllers` tell what it waits for.
pub(super) fn followed(
    action: &PastAction,
    past: &PastActions,
    logs: &RunLogs,
    controllers: &[ControllerStatus],
    times: (Instant, SystemTime),
) -> String {
    let controller = &action.target.controller;
    let runs = logs.of(controller);
    let is_complete = logs.complete_since(controller).is_none_or(|since| since <= action.at);
    let unknown = || if is_complete { open(action, controllers, times) } else { "no longer known".to_owned() };
    let is_first = |run: &RecentRun| {
        let is_soon = run.started.saturating_duration_since(action.at) < SLACK;
        let before = runs.iter().rfind(|before| before.key == run.key && before.started < action.at);
        let is_next =
            before.is_some_and(|before| !before.is_success() && before.attempt.saturating_add(1) == run.attempt);
        is_complete || is_soon || (action.target.key.is_some() && is_next)
    };
    if action.action == UserAction::Suspend
        && let Some(resume) = past.resume_of(action)
    {
        return format!("suspended until {}", clock_time(times.1, resume.time));
    }
    match next_run(action, &runs) {
        None => unknown(),
        Some(_) if action.action == UserAction::Retry && action.target.key.is_none() => {
            RequestedRuns::of(action, past, &runs).words().unwrap_or_else(unknown)
        }
        Some(run) if is_first(run) => ran(run, times),
        Some(run) => format!("{} <small>earlier runs are no longer kept</small>", ran(run, times)),
    }
}
