//! The page of one key: its state, why it ran, its last runs and its next run.

use std::fmt::Write;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::actions;
use super::actions::buttons;
use super::data::{ChipColour, chip, controller_link};
use super::escape::{key, line, lines, name, plain, segment};
use super::known_keys::{MOST_VISITED, visit_keys};
use super::object_parts::object_link;
use super::past_actions::{ActionTarget, PastAction, PastActions};
use super::runs::{self, RunRows};
use super::suspension::{Suspension, failed_chips, is_suspended};
use super::tab::{Tab, TabLevel};
use super::units::{self, ago, ahead, date, size, span, time};
use crate::status::{Control, RecentRun, RunLogs, UserAction};
use homeostat::controller::{ActiveRun, ControllerPhase, ControllerStatus, FailedKey, RunOutcome};
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
    /// The first request of a person for a run since the last one ended.
    request: Option<PastAction>,
    /// The oldest first.
    recent_runs: Vec<Arc<RecentRun>>,
    /// Acts on the key, if users may.
    control: Option<Control>,
}

/// Why a key is unknown.
pub(super) struct UnknownKey {
    /// Whether the page has looked at all keys of the controller.
    has_seen_all: bool,
}

impl KeyStatus {
    /// Finds the key that `Debug` formats as `shown`, if it runs, waits, has failed, is suspended, or has run lately.
    pub(super) fn find(
        manager: &Manager,
        runs: &RunLogs,
        controller: &str,
        shown: &str,
        past: &PastActions,
    ) -> Result<Self, UnknownKey> {
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
        let (Some(state), Some(status)) = (state, status) else { return Err(UnknownKey { has_seen_all }) };
        let key = Self::new(&status, &recent, shown, state, past);
        Ok(Self { control: control.or(key.control), ..key })
    }

    /// Creates the status of a key of this controller from its recent runs and its state in the queue.
    pub(super) fn new(
        controller: &ControllerStatus,
        recent_runs: &[Arc<RecentRun>],
        shown: &str,
        state: KeyState,
        past: &PastActions,
    ) -> Self {
        let recent_runs: Vec<_> = recent_runs.iter().filter(|run| run.key == shown).cloned().collect();
        let failed = controller.failing.iter().chain(&controller.parked).find(|failed| failed.key == shown).cloned();
        let last_end = recent_runs.last().and_then(|run| run.ended());
        let waits = match (&controller.oldest_waiting, state) {
            (Some((oldest, age)), KeyState::Ready(_)) => Some((*age, oldest == shown)),
            _ => None,
        };
        Self {
            key: shown.to_owned(),
            suspension: Suspension::of_key(controller, shown, past),
            request: past.request(&ActionTarget::key(&controller.name, shown), failed.is_some(), last_end),
            state,
            phase: controller.phase,
            waits,
            running: controller.running.iter().find(|run| run.key == shown).cloned(),
            failed,
            suspended: is_suspended(controller, shown),
            control: recent_runs.iter().rev().find_map(|run| run.control.clone()),
            recent_runs,
        }
    }
}

impl KeyStatus {
    /// Returns the control of the key, if users may act on it.
    pub(super) fn control(&self) -> Option<&Control> {
        self.control.as_ref()
    }

    /// Returns the actions that make sense now.
    pub(super) fn actions(&self) -> Vec<(UserAction, &'static str)> {
        let suspension = if self.suspended { (UserAction::Resume, "Resume") } else { (UserAction::Suspend, "Suspend") };
        let text = match (&self.running, &self.failed) {
            (Some(_), _) => "Run again afterwards",
            (None, Some(_)) => "Retry now",
            (None, None) => "Run now",
        };
        let retry = (UserAction::Retry, text);
        if self.control.is_none() { Vec::new() } else { vec![retry, suspension] }
    }

    /// Returns the state as chips.
    pub(super) fn chips(&self) -> String {
        match (state(self), &self.failed) {
            (("suspended", _), Some(failed)) => failed_chips(failed, true),
            ((state, colour), _) => chip(colour, state),
        }
    }

    /// Returns the last known error, and whether the key still fails.
    pub(super) fn last_error(&self) -> Option<(&str, bool)> {
        let failed = self.failed.as_ref().map(|failed| (failed.error.as_str(), true));
        failed.or_else(|| self.recent_runs.iter().rev().find_map(|run| Some((run.outcome.error()?, false))))
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
    (token, allowed): (&str, &[(UserAction, &str)]),
    past: &PastActions,
    objects: &[(Kind, ObjectKey)],
    tab: &Tab,
) -> String {
    let mut out = header(controller, &status.key, page_time, &status.chips(), tab);
    let target = ActionTarget::key(controller, &status.key);
    actions::notice(past, &mut out, page_time.times(), &target, |past| effect(past, status, page_time));
    buttons(&mut out, &target, token, allowed);
    out.push_str("<dl class=\"about\">");
    for (kind, object) in objects {
        let _ = write!(out, "<div><dt>Object</dt><dd>{} {}</dd></div>", name(kind.name()), object_link(kind, object));
    }
    about(&mut out, controller, status, page_time, past);
    out.push_str("</dl>");
    let newest: Vec<_> = status.recent_runs.iter().rev().cloned().collect();
    let remark = ("Last runs", "of the last 512 runs and 256 failures of the controller");
    let rows = RunRows { controller, has_keys: false, runs: &newest, most: newest.len(), past };
    runs::section(&mut out, remark, &rows, page_time.times());
    actions::section(past, &mut out, page_time.times(), allowed.is_empty(), |past| *past == target);
    out.push_str("</main>");
    out
}

/// Returns the changing part of an unknown key's page.
pub(super) fn unknown(controller: &str, shown: &str, key: &UnknownKey, page_time: &PageTime<'_>, tab: &Tab) -> String {
    let mut out = header(controller, shown, page_time, "", tab);
    let known = "It has not failed, is not suspended, and is not among the recent runs of its controller.";
    let waits = if key.has_seen_all {
        "It does not run or wait: no run of it is due, and it runs at its next change or request.".to_owned()
    } else {
        format!(
            "It may be waiting: this page looks at {} keys of a controller, and this one has more. A search for a part \
             of the name has the same limit.",
            size(MOST_VISITED)
        )
    };
    let query = segment(plain(shown));
    let _ = write!(
        out,
        "<p>The controller knows no key with this name. {known} {waits}</p>\
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
        fact("Now", &format!("runs for {} on {}", ago(time, run.elapsed), name(&run.thread)));
        fact("Deadline", &deadline(run, time));
        fact("Why it began", &began(status, page_time, run.elapsed));
    }
    if let Some((age, is_oldest)) = status.waits {
        fact("Waits", &format!("{} {}", if is_oldest { "for" } else { "for at most" }, ago(time, age)));
    }
    if let Some(last) = status.recent_runs.last() {
        let ended = ago(time, now.saturating_duration_since(last.started).saturating_sub(last.took));
        let previous = status.recent_runs.iter().nth_back(1);
        let request = past.request_of(controller, last, previous.map(AsRef::as_ref));
        fact("Last run", &format!("{}, ended {ended} ago", runs::why(last, request.as_ref())));
    }
    fact("Next run", &next(status, page_time));
    if let Some(failed) = &status.failed {
        let lasts = ago(time, now.saturating_duration_since(failed.failing_since));
        let tries = if failed.failures == 1 { "1 try" } else { &format!("{} tries in a row", failed.failures) };
        fact("Fails", &format!("for {lasts}, {tries}"));
        let failures = status.recent_runs.iter().rev().take_while(|run| !run.is_success());
        let first = failures.filter(|run| run.outcome.error().is_some()).last();
        let failure = |ago: Duration, error: String| {
            let at = time.checked_sub(ago).map(|at| format!("{} {}", date(at), units::time(at))).unwrap_or_default();
            format!("{at} <small>{} ago</small>{error}", units::ago(time, ago))
        };
        let error = format!("<pre>{}</pre>", lines(&failed.error));
        fact("Last failure", &failure(now.saturating_duration_since(failed.since), error));
        if let Some(first) = first.filter(|_| failed.failures > 1) {
            let title = if first.attempt == 1 { "First failure" } else { "First known failure" };
            let ago = now.saturating_duration_since(first.started).saturating_sub(first.took);
            let error = first.outcome.error().unwrap_or_default();
            let is_same = error == failed.error;
            let error =
                if is_same { ", with the same error".to_owned() } else { format!("<pre>{}</pre>", lines(error)) };
            fact(title, &failure(ago, error));
        }
    }
}

/// Describes the deadline of an active run.
fn deadline(run: &ActiveRun, time: SystemTime) -> String {
    let Some(timeout) = run.timeout else { return "none: the controller has no timeout".to_owned() };
    let of = format!("<small>{} after its start</small>", span(timeout));
    match run.elapsed.checked_sub(timeout) {
        Some(late) if run.overdue => format!(
            "<b class=\"bad\">passed by {}</b> {of} – the run ignores its cancellation; only a restart of the program ends it",
            ago(time, late)
        ),
        Some(_) => format!("passed just now {of}"),
        None => format!("in {} {of}", ahead(time, timeout.saturating_sub(run.elapsed))),
    }
}

/// How much later than asked for a run may begin to count as the one that the previous run asked for.
const SLACK: Duration = Duration::from_secs(1);

/// Describes why an active run began, as far as requests of people and the end of the previous run tell, in the words
/// of [`runs::why`]. All reasons of a run are known when it ends.
fn began(status: &KeyStatus, page_time: &PageTime<'_>, elapsed: Duration) -> String {
    let now = page_time.now;
    let is_before = |request: &&PastAction| now.saturating_duration_since(request.at) >= elapsed;
    if let Some(request) = status.request.as_ref().filter(is_before) {
        return format!("requested by {} <small>at {}</small>", name(&request.user), time(request.time));
    }
    let unknown = "not known before the run ends <small>";
    let Some(previous) = status.recent_runs.last() else {
        return format!("{unknown}no earlier run of the key is known</small>");
    };
    let since_end = now.saturating_duration_since(previous.started).saturating_sub(previous.took);
    let idle = since_end.saturating_sub(elapsed);
    let is_due = |after: Duration| idle >= after && idle < after.saturating_add(SLACK);
    match (&previous.outcome, previous.retry_after) {
        (RunOutcome::Failed(_), Some(after)) if is_due(after) => {
            format!("retry, {} after the failed run", span(idle))
        }
        (RunOutcome::Requeued(after), _) if is_due(*after) => {
            format!("requeue, {} after the previous run", span(*after))
        }
        _ => format!("{unknown}it began {} after the previous run, which {}</small>", span(idle), ended(previous)),
    }
}

fn ended(run: &RecentRun) -> String {
    match &run.outcome {
        RunOutcome::Failed(error) => format!("failed: {}", line(error)),
        _ => format!("ended: {}", line(&run.result())),
    }
}

/// Returns when a controller in this phase starts to take keys. `None` if it takes them now.
pub(super) fn when_taken(phase: ControllerPhase) -> Option<&'static str> {
    match phase {
        ControllerPhase::Running => None,
        ControllerPhase::Syncing => Some("once the first listings of the controller have completed"),
        ControllerPhase::Standby => Some("once this process leads"),
        ControllerPhase::Suspended => Some("after the resume of the controller"),
        _ => Some("never: the controller has stopped"),
    }
}

/// Returns the effect of an action on the key, in a word and a sentence.
fn effect(past: &PastAction, status: &KeyStatus, page_time: &PageTime<'_>) -> (&'static str, String) {
    let of_controller = when_taken(status.phase).map(|when| format!("; its runs begin {when}")).unwrap_or_default();
    match past.action {
        UserAction::Suspend => {
            let active = if status.running.is_some() { "; the active run continues" } else { "" };
            ("Done.", format!("suspended this key: no run starts before its resume{active}"))
        }
        UserAction::Resume => ("Done.", format!("resumed this key{of_controller}")),
        UserAction::Retry => {
            let since = page_time.now.saturating_duration_since(past.at);
            let last = status.recent_runs.last().filter(|run| run.ended().is_none_or(|end| end >= past.at));
            let (word, what) = match (&status.running, status.state, last) {
                (Some(run), ..) if run.elapsed <= since => ("Done.", "it runs now".to_owned()),
                _ if status.suspension.is_some() => ("Queued.", "it begins after resume".to_owned()),
                (None, KeyState::Idle | KeyState::Delayed(_), Some(last)) => {
                    let word = if last.outcome.error().is_some() { "Still failing." } else { "Done." };
                    (word, format!("it has ended: {}", line(&last.result())))
                }
                _ => ("Queued.", format!("it begins {}", next(status, page_time))),
            };
            (word, format!("requested a run of this key: {what}"))
        }
    }
}

/// Describes when the key runs next.
fn next(status: &KeyStatus, page_time: &PageTime<'_>) -> String {
    if let Some(suspension) = &status.suspension {
        let condition = match status.state {
            KeyState::Idle if status.request.is_none() => ", once it changes or is requested",
            KeyState::Processing(PendingRerun::None) => ", if the active run asks for it",
            _ => "",
        };
        return suspension.next_if(status.request.is_some(), condition, page_time.times());
    }
    let at = |due: Option<Instant>| match due {
        Some(due) if due <= page_time.now => "now".to_owned(),
        Some(due) => format!("in {}", ahead(page_time.time, due.saturating_duration_since(page_time.now))),
        None => "not before it is resumed or requested".to_owned(),
    };
    match status.state {
        KeyState::Ready(priority) => {
            let when = when_taken(status.phase).unwrap_or("as soon as a thread is free");
            format!("{when} <small>priority: {}</small>", format!("{priority:?}").to_lowercase())
        }
        KeyState::Delayed(due) => at(due),
        KeyState::Processing(PendingRerun::None) => "as the active run decides".to_owned(),
        KeyState::Processing(PendingRerun::At(due)) => format!("after the active run, {}", at(due)),
        KeyState::Processing(_) => "right after the active run: the key was requested meanwhile".to_owned(),
        _ => "at its next change or request".to_owned(),
    }
}
