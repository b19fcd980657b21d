//! The effect of an action on a key, for the message on its page.

use super::{KeyStatus, PageTime, next};
use crate::page::clock_times::clock_time;
use crate::page::past_actions::PastAction;
use crate::page::suspension::{resume_effect, suspend_effect};
use crate::page::{effects, runs};
use crate::status::{BegunRun, RecentRun, UserAction};
use homeostat::queue::{KeyState, PendingRerun};

/// Returns the effect of an action on the key, in a word and a sentence.
pub(super) fn of(past: &PastAction, status: &KeyStatus, page_time: &PageTime<'_>) -> (&'static str, String) {
    let ended = effects::next_run(past, &status.recent_runs);
    let ran = |run| effects::ran(run, page_time.times());
    match past.action {
        UserAction::Suspend => ("Done.", suspend_effect("key", status.running.is_some().into())),
        UserAction::Resume => {
            let effect = match (&status.running, &status.suspension, ended) {
                (Some(_), ..) => "resumed this key: it runs now".to_owned(),
                (None, Some(_), _) => resume_effect("key", status.phase),
                (None, None, Some(run)) => {
                    format!("resumed this key: it {}; it runs {}", ran(run), next(status, page_time))
                }
                (None, None, None) => format!("resumed this key: it runs {}", next(status, page_time)),
            };
            ("Done.", effect)
        }
        UserAction::Retry => {
            let (word, what) = retry_effect(past, status, ended, page_time);
            (word, format!("requested a run of this key: {what}"))
        }
    }
}

/// Returns how far a requested run of the key is, in a word and a sentence. `ended` is the first run after the request.
fn retry_effect(
    past: &PastAction,
    status: &KeyStatus,
    ended: Option<&RecentRun>,
    page_time: &PageTime<'_>,
) -> (&'static str, String) {
    let since = page_time.now.saturating_duration_since(past.at);
    if let Some(run) = ended {
        let ran = effects::ran(run, page_time.times());
        return match &status.failed {
            Some(_) if run.outcome.error().is_some() => {
                ("Still failing.", format!("it {ran}; next run: {}", next(status, page_time)))
            }
            _ => ("Done.", format!("it {ran}")),
        };
    }
    match (&status.running, status.state) {
        // The elapsed time may have been read after `now`.
        (Some(run), state)
            if run.elapsed <= since
                || (state == KeyState::Processing(PendingRerun::None)
                    && BegunRun::active(run, page_time.now).started >= past.at) =>
        {
            let began = page_time.time.checked_sub(run.elapsed);
            let at = began.map(|began| format!(" at {}", clock_time(page_time.time, began))).unwrap_or_default();
            ("Running.", format!("it began{at}"))
        }
        _ if status.suspension.is_some() => ("Queued.", "it begins after resume".to_owned()),
        _ => {
            let before = status.last_run().filter(|run| run.ended().is_some_and(|end| end >= past.at));
            let before = before.map(|run| format!("the run that was active then {}; ", runs::ended_as(run)));
            ("Queued.", format!("{}it begins {}", before.unwrap_or_default(), next(status, page_time)))
        }
    }
}
