//! The suspension of a key, and the words for its next run.

use super::data::{ChipColour, DASH, PageData, chip};
use super::escape::name;
use super::past_actions::{ActionTarget, PastAction, PastActions};
use super::units::{ahead, time};
use homeostat::controller::{ControllerPhase, ControllerStatus, FailedKey};

/// A suspension that holds for a key: that of its controller, or its own.
pub(super) struct Suspension {
    of_controller: bool,
    /// The action of a person that suspended it, if it is known.
    by: Option<PastAction>,
}

impl Suspension {
    /// Returns the suspension that holds for a key.
    pub(super) fn of_key(controller: &ControllerStatus, key: &str, past: &PastActions) -> Option<Self> {
        Self::of_controller(controller, past).or_else(|| {
            let by = || past.suspension(&ActionTarget::key(&controller.name, key));
            is_suspended(controller, key).then(|| Self { of_controller: false, by: by() })
        })
    }

    /// Returns the suspension of all keys of a controller.
    pub(super) fn of_controller(controller: &ControllerStatus, past: &PastActions) -> Option<Self> {
        let by = || past.suspension(&ActionTarget::controller(&controller.name));
        (controller.phase == ControllerPhase::Suspended).then(|| Self { of_controller: true, by: by() })
    }

    /// Returns the action of a person that suspended it, if it is known.
    pub(super) fn by(&self) -> Option<&PastAction> {
        self.by.as_ref()
    }

    /// Describes the next run, as HTML. `is_requested` says whether a person has asked for it meanwhile.
    pub(super) fn next(&self, is_requested: bool) -> String {
        let begin = if is_requested { "requested" } else { "suspended" };
        let of = self.of_controller.then(|| "the controller is suspended".to_owned());
        let facts: Vec<_> = of.into_iter().chain(self.since()).collect();
        let facts = if facts.is_empty() { String::new() } else { format!(" <small>{}</small>", facts.join(", ")) };
        format!("{begin} – runs after resume{facts}")
    }

    /// Returns since when and by whom, as HTML, if it is known.
    pub(super) fn since(&self) -> Option<String> {
        self.by.as_ref().map(|by| format!("since {}, by {}", time(by.time), name(&by.user)))
    }
}

/// Returns whether a key has a suspension of its own.
pub(super) fn is_suspended(controller: &ControllerStatus, key: &str) -> bool {
    controller.suspended.iter().any(|suspended| suspended == key)
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
            ("wide", suspension.next(true))
        }
        _ if failed.parked => ("n", DASH.to_owned()),
        (Some(suspension), _) => ("wide", suspension.next(false)),
        (None, Some(next)) => {
            let rest = next.saturating_duration_since(data.now());
            ("n", format!("in {}", ahead(data.status.time_of_day, rest)))
        }
        (None, None) => ("n", "now".to_owned()),
    }
}
