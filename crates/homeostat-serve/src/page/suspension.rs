//! The suspension of a key, and the words for its next run.

use std::collections::BTreeSet;
use std::time::{Instant, SystemTime};

use super::clock_times::clock_time;
use super::data::{ChipColour, PageData, chip};
use super::escape::name;
use super::past_actions::{ActionTarget, PastAction, PastActions, SLACK};
use super::units::{ahead, time};
use homeostat::controller::{ControllerPhase, ControllerStatus, FailedKey};

/// When a suspended key runs next.
pub(super) const AFTER_RESUME: &str = "after resume";

/// Returns when a suspended key runs next if its delay ends at this time. `named` names the delay.
pub(super) fn after_resume_and(due: Option<Instant>, named: &str, (now, today): (Instant, SystemTime)) -> String {
    let rest = due.map(|due| due.saturating_duration_since(now)).filter(|rest| !rest.is_zero());
    let due = rest.and_then(|rest| today.checked_add(rest));
    due.map_or_else(
        || AFTER_RESUME.to_owned(),
        |due| format!("{AFTER_RESUME}, not before {named}{}", clock_time(today, due)),
    )
}

/// The suspension of a key. Either the key or its controller is suspended.
pub(super) struct Suspension {
    of_controller: bool,
    pub(super) since: Instant,
    /// The person that suspended it. `None` for the program.
    by: Option<PastAction>,
}

impl Suspension {
    fn new(since: Instant, target: &ActionTarget, past: &PastActions) -> Self {
        let is_its = |by: &PastAction| since.checked_duration_since(by.at).is_some_and(|later| later < SLACK);
        Self { of_controller: target.key.is_none(), since, by: past.suspension(target).filter(is_its) }
    }

    /// Returns the suspension that holds for a key.
    pub(super) fn of_key(controller: &ControllerStatus, key: &str, past: &PastActions) -> Option<Self> {
        Self::of_controller(controller, past).or_else(|| {
            let (_, since) = controller.suspended.iter().find(|(suspended, _)| suspended == key)?;
            Some(Self::new(*since, &ActionTarget::key(&controller.name, key), past))
        })
    }

    /// Returns the suspension of all keys of a controller.
    pub(super) fn of_controller(controller: &ControllerStatus, past: &PastActions) -> Option<Self> {
        let since = controller.suspended_since.filter(|_| controller.phase == ControllerPhase::Suspended)?;
        Some(Self::new(since, &ActionTarget::controller(&controller.name), past))
    }

    /// Describes the next run, as HTML. `when` names its time, and `request` is a person's request for it.
    pub(super) fn next_when(&self, when: &str, request: Option<&PastAction>, times: (Instant, SystemTime)) -> String {
        let of = if self.of_controller { "the controller is " } else { "" };
        let request = request.map(|request| format!("; {}", self.requested(request))).unwrap_or_default();
        format!("{when} <small>{of}suspended {}{request}</small>", self.since(times))
    }

    /// Describes the next run, which nobody has requested, as HTML.
    pub(super) fn next(&self, times: (Instant, SystemTime)) -> String {
        self.next_when(AFTER_RESUME, None, times)
    }

    /// Describes the next run in a row of a table. That the controller is suspended is said once, above.
    fn next_in_row(&self, when: &str, request: Option<&PastAction>, times: (Instant, SystemTime)) -> String {
        match (self.of_controller, request) {
            (true, Some(request)) => format!("{when} <small>{}</small>", self.requested(request)),
            (true, None) => when.to_owned(),
            (false, _) => self.next_when(when, request, times),
        }
    }

    /// Names a request for a run, with its person if another one has suspended the key.
    fn requested(&self, request: &PastAction) -> String {
        let is_same = self.by.as_ref().is_some_and(|by| by.user == request.user);
        let by = if is_same { String::new() } else { format!(" by {}", name(&request.user)) };
        format!("run requested at {}{by}", time(request.time))
    }

    /// Returns the begin of the suspension and the person, as HTML.
    pub(super) fn since(&self, (now, today): (Instant, SystemTime)) -> String {
        let since = today.checked_sub(now.saturating_duration_since(self.since)).map(time).unwrap_or_default();
        let by = self.by.as_ref().map_or_else(|| "the program, which gives no reason".to_owned(), |by| name(&by.user));
        format!("since {since}, by {by}")
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

/// Returns the effect of suspending this key or controller, with this number of active runs.
pub(super) fn suspend_effect(what: &str, active: usize) -> String {
    let active = match active {
        0 => "",
        1 => "; the active run continues",
        _ => "; the active runs continue",
    };
    format!("suspended this {what}: no run starts before its resume{active}")
}

/// Returns the effect of resuming this key or controller.
pub(super) fn resume_effect(what: &str, phase: ControllerPhase) -> String {
    let when = when_taken(phase).map(|when| format!("; its runs begin {when}")).unwrap_or_default();
    format!("resumed this {what}{when}")
}

/// Returns whether a key has a suspension of its own.
pub(super) fn is_suspended(controller: &ControllerStatus, key: &str) -> bool {
    controller.suspended.iter().any(|(suspended, _)| suspended == key)
}

/// Returns the keys with a suspension of their own.
pub(super) fn suspended_keys(controller: &ControllerStatus) -> BTreeSet<&str> {
    controller.suspended.iter().map(|(suspended, _)| suspended.as_str()).collect()
}

/// Returns the chips of a failed key.
pub(super) fn failed_chips(failed: &FailedKey<String>, is_suspended: bool) -> String {
    let (colour, state) = if failed.parked { (ChipColour::Bad, "parked") } else { (ChipColour::Warn, "failing") };
    let suspended = if is_suspended { chip(ChipColour::Warn, "suspended") + " " } else { String::new() };
    suspended + &chip(colour, state)
}

/// Describes the next try of a failed key, with the class of its cell and as HTML.
pub(super) fn next_try(
    controller: &ControllerStatus,
    failed: &FailedKey<String>,
    data: &PageData<'_>,
) -> (&'static str, String) {
    let target = ActionTarget::key(&controller.name, &failed.key);
    let suspension = Suspension::of_key(controller, &failed.key, data.past);
    let request = data.past.request(&target, true, Some(failed.since));
    match (suspension, failed.next_try) {
        (Some(suspension), _) if request.is_some() => {
            ("wide", suspension.next_in_row(AFTER_RESUME, request.as_ref(), data.times()))
        }
        _ if failed.parked => ("wide", "none: given up <small>until a change or a retry</small>".to_owned()),
        (Some(suspension), next) => {
            let when = after_resume_and(next, "", data.times());
            ("wide", suspension.next_in_row(&when, None, data.times()))
        }
        (None, Some(next)) => {
            let rest = next.saturating_duration_since(data.now());
            ("n", format!("in {}", ahead(data.status.time_of_day, rest)))
        }
        (None, None) => ("n", "now".to_owned()),
    }
}
