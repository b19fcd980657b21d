//! The reasons of failed checks: with the times and units of the page, and with links.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use super::data::{PageData, controller_link, detail, key_link};
use super::escape::{lines, name, source_name};
use super::units::{set_span, time};
use crate::status::{CheckKind, CheckOwner, CheckResult};
use homeostat::controller::{ActiveRun, ControllerStatus};
use homeostat::rt::one_line;
use homeostat::watch::SourceStatus;

/// The largest number of reasons of one check.
const MOST: usize = 5;

/// One reason of a failed check.
struct Reason {
    /// Since when it has failed the check, if known.
    since: Option<SystemTime>,
    /// As HTML.
    text: String,
    /// The error behind it.
    error: String,
}

/// Returns the subject of a check, as HTML. The check of a controller links to its page.
pub(super) fn subject(check: &CheckResult, data: &PageData<'_>) -> String {
    if controller(check, data).is_some() { controller_link(&check.name) } else { name(&check.name) }
}

/// Adds the failed checks that `is_shown` accepts, with their reasons. A check that fails in both groups is listed
/// once.
pub(super) fn list(out: &mut String, data: &PageData<'_>, is_shown: impl Fn(&CheckResult) -> bool) {
    let PageData { live, ready, .. } = *data;
    let new = ready.iter().filter(|result| !live.contains(result));
    let all = live.iter().map(|result| (CheckKind::Live, result)).chain(new.map(|result| (CheckKind::Ready, result)));
    let failed = all.filter(|(_, result)| result.failure.is_some() && is_shown(result));
    let items = failed.map(|(kind, result)| {
        let word = if kind == CheckKind::Live { "not live" } else { "not ready" };
        format!("<li><b>{word}</b> {}</li>", sentence(kind, result, data))
    });
    let items: String = items.collect();
    if !items.is_empty() {
        // Writing to a `String` cannot fail.
        let _ = write!(out, "<ul class=\"reasons\" aria-label=\"Reasons\">{items}</ul>");
    }
}

/// Returns the subject and the reasons of a failed check, as HTML with whole errors.
fn sentence(kind: CheckKind, check: &CheckResult, data: &PageData<'_>) -> String {
    let reasons = of_check(kind, check, data);
    let since = reasons.iter().filter_map(|reason| reason.since).min();
    let since = since.map(|since| format!(" since {}", time(since))).unwrap_or_default();
    let more = match reasons.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!("; <a href=\"/#attention\">and {more} more</a>"),
    };
    let shown: Vec<_> = reasons.iter().take(MOST).map(|reason| reason.html(|error| lines(error).to_string())).collect();
    let kind = if controller(check, data).is_some() { "controller " } else { "" };
    format!("{kind}{}{since}: {}{more}", subject(check, data), shown.join("; "))
}

/// Returns the reasons of a failed check for a cell of a table, as HTML. A long error needs a click.
pub(super) fn in_cell(kind: CheckKind, check: &CheckResult, data: &PageData<'_>) -> String {
    let reasons = of_check(kind, check, data);
    let shown = reasons.iter().take(MOST).enumerate();
    let shown = shown.map(|(at, reason)| reason.html(|error| detail(&format!("check {} {at}", check.name), error)));
    let more = reasons.len().saturating_sub(MOST);
    let more = if more > 0 { format!("<br>and {more} more") } else { String::new() };
    shown.collect::<Vec<_>>().join("<br>") + &more
}

/// Returns the controller with the name of this check.
pub(super) fn controller<'a>(check: &CheckResult, data: &'a PageData<'_>) -> Option<&'a ControllerStatus> {
    let is_its = |of: &&ControllerStatus| check.owner == CheckOwner::Manager && of.name == check.name;
    data.status.controllers.iter().find(is_its)
}

fn of_check(kind: CheckKind, check: &CheckResult, data: &PageData<'_>) -> Vec<Reason> {
    let failure = check.failure.as_deref().unwrap_or_default();
    // The failure of a component has no other facts.
    let has_ended = data.status.failure.as_ref().is_some_and(|(component, _)| *component == check.name);
    let mut reasons = Vec::new();
    if check.owner == CheckOwner::Manager && !has_ended {
        let of_sources = |source: &SourceStatus, is_component| of_source(kind, source, is_component, data);
        if let Some(controller) = controller(check, data) {
            if kind == CheckKind::Live {
                let overdue = controller.running.iter().filter(|run| run.overdue);
                reasons.extend(overdue.map(|run| of_run(controller, run, data)));
            }
            // The check may ignore a source, such as one that has ended.
            let named = controller.sources.iter().filter(|source| failure.contains(&one_line(&source.name)));
            reasons.extend(named.filter_map(|source| of_sources(source, false)));
        } else {
            let own = data.status.sources.iter().filter(|source| source.name == check.name);
            reasons.extend(own.filter_map(|source| of_sources(source, true)));
        }
    }
    if reasons.is_empty() {
        reasons.push(Reason { since: None, text: String::new(), error: failure.to_owned() });
    }
    reasons
}

fn of_run(controller: &ControllerStatus, run: &ActiveRun, data: &PageData<'_>) -> Reason {
    let deadline =
        run.timeout.map_or_else(|| "past its deadline".to_owned(), |of| format!("deadline {}", set_span(of)));
    let late = run.timeout.map(|timeout| run.elapsed.saturating_sub(timeout));
    let text = format!("{} runs for {}, {deadline}", key_link(&controller.name, &run.key), data.ago(run.elapsed));
    Reason { since: begin(late, data), text, error: String::new() }
}

/// Returns why a source fails a check. `is_component` says whether the check has its name.
fn of_source(kind: CheckKind, source: &SourceStatus, is_component: bool, data: &PageData<'_>) -> Option<Reason> {
    let subject = if is_component { String::new() } else { format!("{} ", source_name(&source.name)) };
    if kind == CheckKind::Live {
        let listing = source.listing_for.filter(|_| source.overdue)?;
        let text = format!("{subject}lists for {}, past its deadline", data.ago(listing));
        return Some(Reason { since: None, text, error: String::new() });
    }
    let failing = source.failing_for.map(|time| {
        let tries = source.failures_in_a_row;
        format!("fails for {} ({tries} in a row)", data.ago(time))
    });
    let text = match (source.synced, failing) {
        (true, failing) => format!("{subject}{}", failing?),
        (false, None) => format!("{subject}has not completed its first listing"),
        (false, Some(failing)) => format!("{subject}has not completed its first listing and {failing}"),
    };
    let error = source.last_error.clone().filter(|_| source.failing_for.is_some()).unwrap_or_default();
    Some(Reason { since: begin(source.failing_for, data), text, error })
}

fn begin(age: Option<Duration>, data: &PageData<'_>) -> Option<SystemTime> {
    data.status.time_of_day.checked_sub(age?)
}

impl Reason {
    fn html(&self, show: impl FnOnce(&str) -> String) -> String {
        match (self.text.as_str(), self.error.as_str()) {
            ("", error) => show(error),
            (text, "") => text.to_owned(),
            (text, error) => format!("{text}: {}", show(error)),
        }
    }
}
