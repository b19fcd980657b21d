//! The runs that followed the actions of people, from the recent runs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::clock_times::{clock_time, happens};
use super::past_actions::{ActionTarget, PastAction, PastActions, SLACK};
use super::runs::ended_as;
use super::suspension::{AFTER_RESUME, is_suspended, when_taken};
use super::units::size;
use crate::status::{RecentRun, RunLogs, UserAction};
use homeostat::controller::{ControllerPhase, ControllerStatus};

/// The keys that have run since a person requested their runs.
#[derive(Default)]
pub(super) struct RequestedRuns<'a> {
    recovered: usize,
    failed: usize,
    /// The keys with any run that began since.
    pub(super) begun: HashSet<&'a str>,
}

impl<'a> RequestedRuns<'a> {
    /// Finds the runs that followed a request among the runs of its controller.
    pub(super) fn of(request: &PastAction, past: &PastActions, runs: &'a [Arc<RecentRun>]) -> Self {
        let (mut last, mut ended) = (HashMap::new(), Self::default());
        for run in runs {
            let previous = last.insert(&run.key, run);
            // Only the first run of a key can follow the request.
            if run.started < request.at || !ended.begun.insert(&run.key) {
                continue;
            }
            let of = past.requests_of(&request.target.controller, (&**run).into(), previous.map(AsRef::as_ref));
            if of.iter().any(|of| of.target == request.target && of.at == request.at) {
                ended.failed += usize::from(run.outcome.error().is_some());
                ended.recovered += usize::from(run.is_success());
            }
        }
        ended
    }

    /// Counts the runs in words. Returns `None` without runs.
    pub(super) fn words(&self) -> Option<String> {
        let Self { recovered, failed, .. } = *self;
        let all = recovered + failed;
        let words = || format!("{} ran, {} recovered, {} failed again", size(all), size(recovered), size(failed));
        (all > 0).then(words)
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

/// The status and the runs of the controllers on which people acted.
pub(super) struct KnownControllers<'a> {
    logs: &'a RunLogs,
    status: &'a [ControllerStatus],
    /// The runs of the controllers that a section has asked for, and the times since which all are kept.
    runs: BTreeMap<String, (Vec<Arc<RecentRun>>, Option<Instant>)>,
}

impl<'a> KnownControllers<'a> {
    pub(super) fn new(logs: &'a RunLogs, status: &'a [ControllerStatus]) -> Self {
        Self { logs, status, runs: BTreeMap::new() }
    }

    /// Describes the runs that an action caused, or what it waits for, as HTML.
    pub(super) fn followed(&mut self, action: &PastAction, past: &PastActions, times: (Instant, SystemTime)) -> String {
        let ActionTarget { controller, key } = &action.target;
        let Some(status) = self.status.iter().find(|status| status.name == *controller) else {
            return "its controller has been removed".to_owned();
        };
        if action.action == UserAction::Suspend {
            let is_held = match key {
                Some(key) => is_suspended(status, key),
                None => status.phase == ControllerPhase::Suspended,
            };
            return match past.resume_of(action) {
                Some(resume) => format!("suspended until {}", clock_time(times.1, resume.time)),
                None if is_held => "still suspended".to_owned(),
                None => "resumed since, by the program".to_owned(),
            };
        }
        let logs = self.logs;
        let known = self.runs.entry(controller.clone());
        // The times are read after the runs: they tell no gap that is not there.
        let (runs, since) = known.or_insert_with(|| (logs.of(controller), logs.complete_since(controller)));
        let is_complete = since.is_some_and(|since| since <= action.at);
        let unknown = || if is_complete { open(action, status, times) } else { "no longer known".to_owned() };
        let is_first = |run: &RecentRun| {
            let is_soon = run.started.saturating_duration_since(action.at) < SLACK;
            let before = runs.iter().rfind(|before| before.key == run.key && before.started < action.at);
            let is_next =
                |before: &Arc<RecentRun>| !before.is_success() && before.attempt.saturating_add(1) == run.attempt;
            is_complete || is_soon || before.is_some_and(is_next)
        };
        match (next_run(action, runs), key, action.action) {
            (None, ..) => unknown(),
            (Some(_), None, UserAction::Retry) => {
                let words = RequestedRuns::of(action, past, runs).words();
                let least = if is_complete { "" } else { "at least " };
                words.map_or_else(unknown, |words| format!("{least}{words}"))
            }
            (Some(_), None, _) => "its keys run again".to_owned(),
            (Some(run), Some(_), _) if is_first(run) => ran(run, times),
            (Some(run), Some(_), _) => format!("{} <small>earlier runs are no longer kept</small>", ran(run, times)),
        }
    }
}

/// Describes what an action waits for, if no run that began after it has ended, as HTML.
fn open(action: &PastAction, status: &ControllerStatus, (now, today): (Instant, SystemTime)) -> String {
    let Some(key) = &action.target.key else {
        let when = when_taken(status.phase).map(str::to_owned);
        return when.unwrap_or_else(|| "no run that began since has ended".to_owned());
    };
    let failed = status.failing.iter().find(|failed| failed.key == *key);
    let next = failed.and_then(|failed| failed.next_try).map(|next| next.saturating_duration_since(now));
    if let Some(run) = status.running.iter().find(|run| run.key == *key) {
        let is_earlier = run.elapsed > now.saturating_duration_since(action.at);
        return if is_earlier { "after the active run" } else { "it runs now" }.to_owned();
    }
    if is_suspended(status, key) {
        return AFTER_RESUME.to_owned();
    }
    if let Some(when) = when_taken(status.phase) {
        return when.to_owned();
    }
    let next = next.filter(|rest| !rest.is_zero()).map(|rest| format!("next try {}", happens(today, rest)));
    next.unwrap_or_else(|| "no run that began since has ended".to_owned())
}
