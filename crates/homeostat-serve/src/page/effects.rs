//! The runs that followed the actions of people, from the recent runs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::clock_times::clock_time;
use super::past_actions::{PastAction, PastActions, SLACK};
use super::runs::ended_as;
use super::units::size;
use crate::status::{RecentRun, RunLogs, UserAction};

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

/// Describes the runs that followed an action, as HTML.
pub(super) fn followed(
    action: &PastAction,
    past: &PastActions,
    logs: &RunLogs,
    times: (Instant, SystemTime),
) -> String {
    let controller = &action.target.controller;
    let runs = logs.of(controller);
    let is_complete = logs.complete_since(controller).is_none_or(|since| since <= action.at);
    let unknown = if is_complete { "no run has ended since" } else { "no longer known" }.to_owned();
    let is_first = |run: &RecentRun| is_complete || run.started.saturating_duration_since(action.at) < SLACK;
    if action.action == UserAction::Suspend
        && let Some(resume) = past.resume_of(action)
    {
        return format!("suspended until {}", clock_time(times.1, resume.time));
    }
    match next_run(action, &runs) {
        None => unknown,
        Some(_) if action.action == UserAction::Retry && action.target.key.is_none() => {
            RequestedRuns::of(action, past, &runs).words().unwrap_or(unknown)
        }
        Some(run) if is_first(run) => ran(run, times),
        Some(run) => format!("{} <small>earlier runs are no longer kept</small>", ran(run, times)),
    }
}
