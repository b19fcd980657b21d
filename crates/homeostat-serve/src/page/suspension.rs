//! The suspension of a key, and the words for its next run.

use std::time::{Instant, SystemTime};

use super::data::{ChipColour, DASH, PageData, chip};
use super::escape::name;
use super::past_actions::{ActionTarget, PastAction, PastActions, SLACK};
use super::units::{ahead, time};
use homeostat::controller::{ControllerPhase, ControllerStatus, FailedKey};

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

    /// Describes the next run, as HTML. `is_requested` says whether a person has asked for it meanwhile. `condition`
    /// must hold too.
    pub(super) fn next_if(&self, is_requested: bool, condition: &str, times: (Instant, SystemTime)) -> String {
        let begin = if is_requested { "requested" } else { "suspended" };
        let of = if self.of_controller { "the controller is suspended, " } else { "" };
        format!("{begin} – runs after resume{condition} <small>{of}{}</small>", self.since(times))
    }

    /// Describes the next run, as HTML.
    pub(super) fn next(&self, is_requested: bool, times: (Instant, SystemTime)) -> String {
        self.next_if(is_requested, "", times)
    }

    /// Describes the next run in a row of a table. That the controller is suspended is said once, above.
    fn next_in_row(&self, is_requested: bool, times: (Instant, SystemTime)) -> String {
        match (self.of_controller, is_requested) {
            (true, true) => "requested – runs after resume".to_owned(),
            (true, false) => "suspended – runs after resume".to_owned(),
            (false, _) => self.next(is_requested, times),
        }
    }

    /// Returns since when and by whom, as HTML.
    pub(super) fn since(&self, (now, today): (Instant, SystemTime)) -> String {
        let since = today.checked_sub(now.saturating_duration_since(self.since)).map(time).unwrap_or_default();
        let by = self.by.as_ref().map_or_else(|| "the program".to_owned(), |by| name(&by.user));
        format!("since {since}, by {by}")
    }
}

/// Returns whether a key has a suspension of its own.
pub(super) fn is_suspended(controller: &ControllerStatus, key: &str) -> bool {
    controller.suspended.iter().any(|(suspended, _)| suspended == key)
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
    match (suspension, failed.next_try) {
        (Some(suspension), _) if data.past.request(&target, true, Some(failed.since)).is_some() => {
            ("wide", suspension.next_in_row(true, data.times()))
        }
        _ if failed.parked => ("n", DASH.to_owned()),
        (Some(suspension), _) => ("wide", suspension.next_in_row(false, data.times())),
        (None, Some(next)) => {
            let rest = next.saturating_duration_since(data.now());
            ("n", format!("in {}", ahead(data.status.time_of_day, rest)))
        }
        (None, None) => ("n", "now".to_owned()),
    }
}
