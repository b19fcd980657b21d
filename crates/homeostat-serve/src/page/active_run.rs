//! The active run of a key: its deadline, and why it began.

use std::time::{Instant, SystemTime};

use super::clock_times::{clock_time, happens};
use super::escape::line;
use super::past_actions::PastActions;
use super::runs;
use super::units::{ago, span, time};
use crate::status::{BegunRun, RecentRun};
use homeostat::controller::ActiveRun;

/// Describes the deadline of an active run.
pub(super) fn deadline(run: &ActiveRun, time: SystemTime) -> String {
    let Some(timeout) = run.timeout else { return "none: the controller has no timeout".to_owned() };
    let of = format!("{} after its start", span(timeout));
    match run.elapsed.checked_sub(timeout) {
        Some(late) if run.overdue => {
            let at = time.checked_sub(late).map(|at| format!(" at {}", clock_time(time, at))).unwrap_or_default();
            format!(
                "<b class=\"bad\">passed{at}</b> <small>{} ago, {of}</small> – the run ignores its cancellation; only a \
                 restart of the program ends it",
                ago(time, late)
            )
        }
        Some(_) => format!("passed just now <small>{of}</small>"),
        None => format!("{}<small>, {of}</small>", happens(time, timeout.saturating_sub(run.elapsed))),
    }
}

/// Describes why an active run began, and the end of the previous one.
pub(super) fn began(
    controller: &str,
    run: &ActiveRun,
    previous: Option<&RecentRun>,
    now: Instant,
    past: &PastActions,
) -> String {
    let request = past.request_of(controller, BegunRun::active(run, now), previous);
    let why = runs::why_at_length(run.reasons, request.as_ref());
    let at = request.map(|request| format!("at {}; ", time(request.time))).unwrap_or_default();
    let Some(previous) = previous else {
        return format!("{why} <small>{at}no earlier run of the key is known</small>");
    };
    let idle = span(previous.ended_ago(now).saturating_sub(run.elapsed));
    let error = previous.outcome.error().map(|error| format!(": {}", line(error))).unwrap_or_default();
    format!(
        "{why} <small>{at}it began {idle} after the previous run, which {}{error}</small>",
        runs::ended_as(previous)
    )
}
