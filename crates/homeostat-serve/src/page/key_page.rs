//! The page of one key: its state, why it ran, its last runs and its next run.

mod effect;

use std::fmt::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::actions::{self, UserRights, buttons};
use super::active_run;
use super::clock_times::{clock_time, happened, happens, lasts};
use super::data::{ChipColour, chip, controller_link};
use super::effects::KnownControllers;
use super::escape::{key, line, lines, name, plain, segment};
use super::known_keys::{MOST_VISITED, visit_keys};
use super::object_parts::object_link;
use super::past_actions::{ActionTarget, PastAction, PastActions};
use super::runs::{self, RunRows};
use super::suspension::{AFTER_RESUME, Suspension, after_resume_and, failed_chips, is_suspended, when_taken};
use super::tab::{Tab, TabLevel};
use super::units::{ago, size, time};
use crate::status::{BegunRun, Control, RecentRun, RunLogs, UserAction};
use homeostat::controller::{ActiveRun, ControllerPhase, ControllerStatus, FailedKey};
use homeostat::manager::Manager;
use homeostat::queue::{KeyState, PendingRerun};
use homeostat_objects::{Kind, ObjectKey};

/// The time that a page shows, and the name of the manager.
pub(super) struct PageTime<'a> {
    pub(super) manager: &'a str,
    pub(super) now: Instant,
    /// The same time on the wall clock.
    pub(super) time: SystemTime,
}

impl PageTime<'_> {
    fn times(&self) -> (Instant, SystemTime) {
        (self.now, self.time)
    }
}

/// The state of one key: its active run, its failure, its recent runs and its next run.
pub(super) struct KeyStatus {
    key: String,
    state: KeyState,
    /// The phase of its controller.
    phase: ControllerPhase,
    /// The longest wait of a ready key, and whether this key is the one. `None` if this key is not ready.
    waits: Option<(Duration, bool)>,
    running: Option<ActiveRun>,
    failed: Option<FailedKey<String>>,
    /// Whether the key has a suspension of its own.
    suspended: bool,
    suspension: Option<Suspension>,
    /// The requests of people for a run that has not begun or ended, the oldest first.
    requests: Vec<PastAction>,
    /// The oldest first.
    recent_runs: Vec<Arc<RecentRun>>,
    /// The time since which all runs of the controller are kept. `None` if that is the begin.
    complete_since: Option<Instant>,
    /// Acts on the key, if users may.
    control: Option<Control>,
}

/// The last known error of a key.
pub(super) struct LastError<'a> {
    pub(super) error: &'a str,
    /// The run with the error, if the key has succeeded since.
    pub(super) recovered_from: Option<&'a RecentRun>,
}

/// Why a key is unknown.
pub(super) struct UnknownKey {
    /// Whether the page has looked at all keys of the controller.
    has_seen_all: bool,
    /// The time since which all runs of the controller are known. `None` if that is the begin.
    complete_since: Option<Instant>,
}

impl KeyStatus {
    /// Finds the key that `Debug` formats as `shown`, if it runs, waits, has failed, is suspended, or has run lately.
    /// Also returns the status of its controller.
    pub(super) fn find(
        manager: &Manager,
        runs: &RunLogs,
        controller: &str,
        shown: &str,
        past: &PastActions,
    ) -> Result<(Self, ControllerStatus), UnknownKey> {
        let recent = runs.of(controller);
        let (mut state, mut control) =
            (recent.iter().rev().find(|run| run.key == shown).map(|run| run.key_state()), None);
        let controls = runs.controls(controller);
        let mut has_seen_all = true;
        if state.is_none() {
            has_seen_all = visit_keys(manager, controller, |key| {
                if format!("{key:?}") != shown {
                    return ControlFlow::Continue(());
                }
                state = Some((key.state_reader())());
                control = controls.as_ref().and_then(|controls| controls.of_key(key));
                ControlFlow::Break(())
            });
        }
        let status = manager.status().controllers.into_iter().find(|status| status.name == controller);
        let (Some(state), Some(status)) = (state, status) else {
            return Err(UnknownKey { has_seen_all, complete_since: runs.complete_since(controller) });
        };
        let key = Self::new(&status, (&recent, runs.complete_since(controller)), shown, state, past);
        Ok((Self { control: control.or(key.control), ..key }, status))
    }

    /// Creates the status of a key of this controller from the recent runs, the time since which all are kept, and its
    /// state in the queue.
    pub(super) fn new(
        controller: &ControllerStatus,
        (recent_runs, complete_since): (&[Arc<RecentRun>], Option<Instant>),
        shown: &str,
        state: KeyState,
        past: &PastActions,
    ) -> Self {
        let recent_runs: Vec<_> = recent_runs.iter().filter(|run| run.key == shown).cloned().collect();
        let failed = controller.failing.iter().chain(&controller.parked).find(|failed| failed.key == shown).cloned();
        // A request during a run is one for a further run.
        let last = recent_runs.last();
        let mut requests = past.requests(&ActionTarget::key(&controller.name, shown), failed.is_some(), None);
        requests.retain(|request| last.is_none_or(|last| request.at > last.started));
        let waits = match (&controller.oldest_waiting, state) {
            (Some((oldest, age)), KeyState::Ready(_)) => Some((*age, oldest == shown)),
            _ => None,
        };
        Self {
            key: shown.to_owned(),
            suspension: Suspension::of_key(controller, shown, past),
            requests,
            state,
            phase: controller.phase,
            waits,
            running: controller.running.iter().find(|run| run.key == shown).cloned(),
            failed,
            suspended: is_suspended(controller, shown),
            control: recent_runs.iter().rev().find_map(|run| run.control.clone()),
            recent_runs,
            complete_since,
        }
    }
}

impl KeyStatus {
    /// Returns the control of the key, if users may act on it.
    pub(super) fn control(&self) -> Option<&Control> {
        self.control.as_ref()
    }

    /// Returns the first request of a person for the next run.
    fn request(&self, now: Instant) -> Option<&PastAction> {
        let started = self.running.as_ref().map(|run| BegunRun::active(run, now).started);
        self.requests.iter().find(|request| started.is_none_or(|started| request.at > started))
    }

    /// Returns the request of a person for a run right after the active one.
    fn requested_rerun(&self, now: Instant) -> Option<&PastAction> {
        let is_pending = match self.state {
            KeyState::Processing(PendingRerun::At(due)) => due.is_some_and(|due| due <= now),
            KeyState::Processing(pending) => pending != PendingRerun::None,
            _ => false,
        };
        self.request(now).filter(|_| is_pending && self.running.is_some())
    }

    /// Returns the actions that make sense now.
    pub(super) fn actions(&self, now: Instant) -> Vec<(UserAction, &'static str)> {
        let suspension = if self.suspended { (UserAction::Resume, "Resume") } else { (UserAction::Suspend, "Suspend") };
        let text = match (&self.running, &self.failed, self.suspension.is_some()) {
            (Some(_), _, true) => "Run again after resume",
            (Some(run), ..) if run.overdue => "Run again if this run ever ends",
            (Some(_), ..) => "Run again afterwards",
            (None, Some(_), true) => "Retry after resume",
            (None, Some(_), false) => "Retry now",
            (None, None, true) => "Run after resume",
            (None, None, false) => "Run now",
        };
        let retry = self.requested_rerun(now).is_none().then_some((UserAction::Retry, text));
        if self.control.is_none() { Vec::new() } else { retry.into_iter().chain([suspension]).collect() }
    }

    /// Returns the state as chips.
    pub(super) fn chips(&self) -> String {
        match (state(self), &self.failed) {
            (("suspended", _), Some(failed)) => failed_chips(failed, true),
            ((state, colour), _) => chip(colour, state),
        }
    }

    /// Describes the state in a few words, as HTML: `failing, 9 tries, last 27 s ago`.
    pub(super) fn in_short(&self, (now, time): (Instant, SystemTime)) -> String {
        let (state, _) = state(self);
        let tries = self.failed.as_ref().map(|failed| match failed.failures {
            1 => ", 1 try".to_owned(),
            tries => format!(", {tries} tries"),
        });
        let last = self.failed.as_ref().map(|failed| now.saturating_duration_since(failed.since));
        let last = last.or_else(|| Some(self.last_run()?.ended_ago(now)));
        let last = last.map(|last| format!(", last {} ago", ago(time, last)));
        format!("{state}{}{}", tries.unwrap_or_default(), last.unwrap_or_default())
    }

    /// Returns the last run that has ended, if it is known.
    pub(super) fn last_run(&self) -> Option<&RecentRun> {
        self.recent_runs.last().map(AsRef::as_ref)
    }

    /// Returns the time before which later runs than the last known one may be missing.
    pub(super) fn gap(&self) -> Option<Instant> {
        // The last failure of a failing key is always kept.
        let last = self.last_run().filter(|_| self.failed.is_none())?.ended()?;
        self.complete_since.filter(|since| last < *since)
    }

    /// Returns the last known error.
    pub(super) fn last_error(&self) -> Option<LastError<'_>> {
        if let Some(failed) = &self.failed {
            return Some(LastError { error: &failed.error, recovered_from: None });
        }
        let (place, run) = self.recent_runs.iter().enumerate().rfind(|(_, run)| run.outcome.error().is_some())?;
        let has_recovered = self.recent_runs[place..].iter().any(|later| later.is_success());
        Some(LastError { error: run.outcome.error()?, recovered_from: has_recovered.then_some(run) })
    }

    /// Returns the tab of the page.
    pub(super) fn tab(&self, controller: &str, manager: &str) -> Tab {
        let (state, colour) = state(self);
        let level = match colour {
            ChipColour::Bad => TabLevel::Bad,
            ChipColour::Warn => TabLevel::Warn,
            _ => TabLevel::Good,
        };
        let begin = if level == TabLevel::Good { String::new() } else { format!("{state} · ") };
        let title = format!("{begin}{} · {controller} · {manager}", plain(&self.key));
        Tab { level, words: state.to_owned(), title }
    }
}

/// Returns the part of the page that changes.
pub(super) fn live_part(
    controller: &str,
    status: &KeyStatus,
    page_time: &PageTime<'_>,
    (rights, allowed): (&UserRights, &[(UserAction, &str)]),
    (past, logs, status_of_controller): (&PastActions, &RunLogs, &ControllerStatus),
    objects: &[(Kind, ObjectKey)],
    tab: &Tab,
) -> String {
    let mut out = header(controller, &status.key, page_time, &status.chips(), tab);
    let target = ActionTarget::key(controller, &status.key);
    actions::notice(past, &mut out, page_time.now, &target, |past| effect::of(past, status, page_time));
    buttons(&mut out, &target, rights, allowed);
    out.push_str("<dl class=\"about\">");
    for (kind, object) in objects {
        let _ = write!(out, "<div><dt>Object</dt><dd>{} {}</dd></div>", name(kind.name()), object_link(kind, object));
    }
    about(&mut out, controller, status, page_time, past);
    out.push_str("</dl>");
    let newest: Vec<_> = status.recent_runs.iter().rev().cloned().collect();
    let remark = ("Last runs", &*kept());
    let rows = RunRows { controller, has_keys: false, runs: &newest, most: newest.len(), past };
    runs::section(&mut out, remark, &rows, page_time.times());
    let known = KnownControllers::new(logs, std::slice::from_ref(status_of_controller));
    actions::section(&mut out, past, known, page_time.times(), |past| *past == target);
    out.push_str("</main>");
    out
}

/// Describes which runs are kept.
fn kept() -> String {
    let [failed, others, failing] = [RecentRun::MOST_FAILED, RecentRun::MOST, RecentRun::MOST_FAILING].map(size);
    format!(
        "This key's runs, if among the controller's last {failed} failed or {others} other runs. The first and the last \
         failure in a row are always kept, for up to {failing} keys. Older runs are gone."
    )
}

/// Returns the changing part of an unknown key's page.
pub(super) fn unknown(controller: &str, shown: &str, key: &UnknownKey, page_time: &PageTime<'_>, tab: &Tab) -> String {
    let mut out = header(controller, shown, page_time, "", tab);
    let since =
        key.complete_since.map(|since| happened(page_time.time, page_time.now.saturating_duration_since(since)));
    let since = since.map_or_else(|| "since the start of these pages".to_owned(), |since| format!("since {since}"));
    let known =
        format!("It is not failing or suspended, and none of the runs of its controller {since} is of this key.");
    let waits = if key.has_seen_all {
        "It does not run or wait: no run of it is due. If it exists, it runs at its next change or request.".to_owned()
    } else {
        format!(
            "It may be waiting: this page looks at {} keys of a controller, and this one has more. A search for a part \
             of the name has the same limit.",
            size(MOST_VISITED)
        )
    };
    let states = if key.has_seen_all { "is idle or does not exist" } else { "is idle, waits or does not exist" };
    let query = segment(plain(shown));
    let _ = write!(
        out,
        "<p>Nothing is known about this key: it {states}. {known} {waits}</p>\
         <p><a href=\"/search?q={query}\">Find this name in all controllers and objects</a></p></main>"
    );
    out
}

/// Returns the header, and the beginning of the content.
fn header(controller: &str, shown: &str, page_time: &PageTime<'_>, chip: &str, tab: &Tab) -> String {
    let full = plain(shown);
    let full = if key(shown).contains("title=") {
        format!(
            "<details class=\"full\" data-id=\"name\"><summary>the whole name</summary><pre>{}</pre></details>",
            line(full)
        )
    } else {
        String::new()
    };
    format!(
        "<header {}><nav aria-label=\"Breadcrumb\"><a href=\"/\">{}</a> / {}</nav><div class=\"title\">\
         <h1 class=\"key\">{}</h1><p class=\"chips\">{chip}</p></div><p class=\"facts\">{}</p>{full}</header>\
         <main id=\"main\">",
        tab.attributes(),
        name(page_time.manager),
        controller_link(controller),
        key(shown),
        time(page_time.time),
    )
}

fn state(status: &KeyStatus) -> (&'static str, ChipColour) {
    let parked = status.failed.as_ref().map(|failed| failed.parked);
    match (&status.running, status.state, parked) {
        (Some(run), ..) if run.overdue => ("overdue", ChipColour::Bad),
        (Some(_), ..) | (None, KeyState::Processing(_), _) => ("running", ChipColour::Good),
        _ if status.suspended => ("suspended", ChipColour::Warn),
        (_, _, Some(true)) => ("parked", ChipColour::Bad),
        (_, _, Some(false)) => ("failing", ChipColour::Warn),
        (_, KeyState::Ready(_), _) => ("waiting", ChipColour::Calm),
        (_, KeyState::Delayed(_), _) => ("delayed", ChipColour::Calm),
        _ => ("idle", ChipColour::Calm),
    }
}

fn about(out: &mut String, controller: &str, status: &KeyStatus, page_time: &PageTime<'_>, past: &PastActions) {
    let PageTime { now, time, .. } = *page_time;
    let mut fact = |name: &str, value: &str| {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    };
    if let Some(run) = &status.running {
        fact("Now", &format!("runs for {} on {}", lasts(time, run.elapsed), name(&run.thread)));
        fact("Deadline", &active_run::deadline(run, time));
        fact("Why it began", &active_run::began(controller, run, status.last_run(), now, past));
    }
    if let Some((age, is_oldest)) = status.waits.filter(|_| status.suspension.is_none()) {
        let words = if is_oldest { "for" } else { "as other keys do; the longest wait of the controller is" };
        fact("Waits", &format!("{words} {}", lasts(time, age)));
    }
    if let Some(last) = status.last_run() {
        let ended = happened(time, last.ended_ago(now));
        let previous = status.recent_runs.iter().nth_back(1);
        let request = past.request_of(controller, last.into(), previous.map(AsRef::as_ref));
        let why = runs::why(last.reasons, request.as_ref());
        let gap = status.gap().map(|end| happened(time, now.saturating_duration_since(end)));
        let gap = gap.map(|end| format!(" <small>later runs before {end} may be missing here</small>"));
        let end = runs::ended_as(last);
        fact("Last run", &format!("{end} at {ended}; why it began: {why}{}", gap.unwrap_or_default()));
    }
    fact("Next run", &next(status, page_time));
    if let Some(failed) = &status.failed {
        let lasts = lasts(time, now.saturating_duration_since(failed.failing_since));
        let tries = if failed.failures == 1 { "1 try" } else { &format!("{} tries in a row", failed.failures) };
        fact("Fails", &format!("for {lasts}, {tries}"));
        let failures = status.recent_runs.iter().rev().take_while(|run| !run.is_success());
        let first = failures.filter(|run| run.outcome.error().is_some()).last();
        let failure = |ago: Duration, error: String| happened(time, ago) + &error;
        let error = format!("<pre>{}</pre>", lines(&failed.error));
        fact("Last failure", &failure(now.saturating_duration_since(failed.since), error));
        if let Some(first) = first.filter(|_| failed.failures > 1) {
            let title = if first.attempt == 1 { "First failure" } else { "First known failure" };
            let ago = first.ended_ago(now);
            let error = first.outcome.error().unwrap_or_default();
            let is_same = error == failed.error;
            let error =
                if is_same { ", with the same error".to_owned() } else { format!("<pre>{}</pre>", lines(error)) };
            fact(title, &failure(ago, error));
        }
    }
}

/// Describes when the key runs next.
fn next(status: &KeyStatus, page_time: &PageTime<'_>) -> String {
    let request = status.request(page_time.now);
    if let Some(suspension) = &status.suspension {
        let due = if let KeyState::Delayed(due) = status.state { due } else { None };
        let named = if status.failed.is_some() { "its retry time " } else { "" };
        let when = match status.state {
            _ if request.is_some() => AFTER_RESUME.to_owned(),
            KeyState::Idle => format!("{AFTER_RESUME}, once it changes or is requested"),
            KeyState::Processing(PendingRerun::None) => format!("{AFTER_RESUME}, if the active run asks for it"),
            _ => after_resume_and(due, named, page_time.times()),
        };
        return suspension.next_when(&when, request, page_time.times());
    }
    let at = |due: Option<Instant>| match due {
        Some(due) if due <= page_time.now => "now".to_owned(),
        Some(due) => happens(page_time.time, due.saturating_duration_since(page_time.now)),
        None => "not before it is resumed or requested".to_owned(),
    };
    let active = match &status.running {
        Some(run) if run.overdue => "the active run, if it ever ends",
        _ => "the active run",
    };
    if let Some(request) = status.requested_rerun(page_time.now) {
        let at = clock_time(page_time.time, request.time);
        return format!("right after {active} <small>requested by {} at {at}</small>", name(&request.user));
    }
    match status.state {
        KeyState::Ready(priority) => {
            let when = when_taken(status.phase).unwrap_or("as soon as a thread is free");
            format!("{when} <small>priority: {}</small>", format!("{priority:?}").to_lowercase())
        }
        KeyState::Delayed(due) => at(due),
        KeyState::Processing(PendingRerun::None) => "as the active run decides".to_owned(),
        KeyState::Processing(PendingRerun::At(Some(due))) if due <= page_time.now => format!("right after {active}"),
        KeyState::Processing(PendingRerun::At(due)) => format!("after {active}, {}", at(due)),
        KeyState::Processing(_) => format!("right after {active}: the key was requested meanwhile"),
        _ if status.failed.as_ref().is_some_and(|failed| failed.parked) => {
            "at its next change or a retry: given up by itself".to_owned()
        }
        _ => "at its next change or request".to_owned(),
    }
}
