//! The last actions of users on controllers and keys.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use super::escape::path;
use crate::status::{BegunRun, RecentRun, UserAction};
use crate::sync::Mutex;
use homeostat::queue::Reasons;

/// The number of past actions that are kept.
const MOST_ACTIONS: usize = 200;

/// How long an action may take until its effect.
pub(super) const SLACK: Duration = Duration::from_secs(1);

/// The controller or the key of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ActionTarget {
    pub(super) controller: String,
    /// The key, formatted by `Debug`. `None` for all keys of the controller.
    pub(super) key: Option<String>,
}

impl ActionTarget {
    pub(super) fn controller(name: &str) -> Self {
        Self { controller: name.to_owned(), key: None }
    }

    pub(super) fn key(controller: &str, shown: &str) -> Self {
        Self { controller: controller.to_owned(), key: Some(shown.to_owned()) }
    }

    pub(super) fn page_segments(&self) -> Vec<&str> {
        match &self.key {
            Some(key) => vec!["keys", &self.controller, key],
            None => vec!["controllers", &self.controller],
        }
    }

    /// Returns the path of the target's page.
    pub(super) fn page(&self) -> String {
        path(&self.page_segments())
    }

    /// Returns the path of an action, in segments.
    pub(super) fn segments(&self, action: UserAction) -> Vec<String> {
        self.page_segments().into_iter().chain([action.name()]).map(str::to_owned).collect()
    }
}

/// An action that was done.
#[derive(Clone, Debug)]
pub(super) struct PastAction {
    pub(super) action: UserAction,
    pub(super) target: ActionTarget,
    pub(super) user: String,
    pub(super) client: IpAddr,
    /// The time just before its effect.
    pub(super) at: Instant,
    pub(super) time: SystemTime,
}

/// The last actions, oldest first.
#[derive(Default)]
pub(super) struct PastActions(Mutex<VecDeque<PastAction>>);

impl PastActions {
    pub(super) fn add(&self, action: PastAction) {
        let mut actions = self.0.lock();
        if actions.len() >= MOST_ACTIONS {
            actions.pop_front();
        }
        actions.push_back(action);
    }

    /// Returns the action that suspended a target, unless a person has resumed it since.
    pub(super) fn suspension(&self, target: &ActionTarget) -> Option<PastAction> {
        let actions = self.0.lock();
        let mut of_target = actions.iter().rev().filter(|past| past.target == *target);
        let last = of_target.find(|past| past.action != UserAction::Retry).cloned();
        last.filter(|past| past.action == UserAction::Suspend)
    }

    /// Returns the first resume of its target after an action.
    pub(super) fn resume_of(&self, suspend: &PastAction) -> Option<PastAction> {
        let is_its = |past: &&PastAction| {
            past.action == UserAction::Resume && past.target == suspend.target && past.at > suspend.at
        };
        self.0.lock().iter().find(is_its).cloned()
    }

    /// Returns the person's request that a run with the reason *manual* follows, if a person requested it: the first
    /// one. `previous` is the previous run of the key, if it is known.
    pub(super) fn request_of(
        &self,
        controller: &str,
        run: BegunRun<'_>,
        previous: Option<&RecentRun>,
    ) -> Option<PastAction> {
        self.requests_of(controller, run, previous).into_iter().next()
    }

    /// Returns all such requests, the oldest first.
    pub(super) fn requests_of(
        &self,
        controller: &str,
        run: BegunRun<'_>,
        previous: Option<&RecentRun>,
    ) -> Vec<PastAction> {
        if !run.reasons.contains(Reasons::MANUAL) {
            return Vec::new();
        }
        let has_failed = run.has_failed || previous.is_some_and(|previous| previous.outcome.error().is_some());
        let queued = run.queued_for.and_then(|queued_for| run.started.checked_sub(queued_for));
        let since = match previous {
            // A request during the previous run is of this run.
            Some(previous) => previous.started.checked_add(Duration::from_nanos(1)),
            None => queued.and_then(|queued| queued.checked_sub(SLACK)),
        };
        let mut requests = self.requests(&ActionTarget::key(controller, run.key), has_failed, since);
        requests.retain(|request| request.at <= run.started);
        // Without the previous run, an early request may be of that one. The last one before the wait is of this run.
        let before = requests.iter().filter(|request| queued.is_none_or(|queued| request.at <= queued)).count();
        let first = if previous.is_none() { before.saturating_sub(1) } else { 0 };
        requests.split_off(first.min(requests.len()))
    }

    /// Returns the first request of a person for a run of a key since then. A failed key may also have been asked for
    /// with all failed keys of its controller.
    pub(super) fn request(&self, key: &ActionTarget, has_failed: bool, since: Option<Instant>) -> Option<PastAction> {
        self.requests(key, has_failed, since).into_iter().next()
    }

    /// Returns all such requests, the oldest first.
    pub(super) fn requests(&self, key: &ActionTarget, has_failed: bool, since: Option<Instant>) -> Vec<PastAction> {
        let all = ActionTarget::controller(&key.controller);
        let actions = self.0.lock();
        let requests = actions.iter().filter(|past| {
            let is_about = past.target == *key || (has_failed && past.target == all);
            past.action == UserAction::Retry && is_about && since.is_none_or(|since| past.at >= since)
        });
        requests.cloned().collect()
    }

    /// Returns the last actions on these targets, at most this many, the newest first.
    pub(super) fn last(&self, most: usize, is_shown: impl Fn(&ActionTarget) -> bool) -> Vec<PastAction> {
        let actions = self.0.lock();
        actions.iter().rev().filter(|past| is_shown(&past.target)).take(most).cloned().collect()
    }
}
