//! The section of health checks: each check with its results.

use std::fmt::Write;

use super::data::{ChipColour, DASH, PageData, cell, chip, heading, row_name, table};
use super::reasons;
use crate::status::{CheckKind, CheckOwner, CheckResult};

/// A check, and its results for liveness and readiness if it has them.
struct CheckRow<'a> {
    check: &'a CheckResult,
    live: Option<&'a CheckResult>,
    ready: Option<&'a CheckResult>,
}

impl CheckRow<'_> {
    fn fails(&self) -> bool {
        [self.live, self.ready].into_iter().flatten().any(|result| result.failure.is_some())
    }
}

/// How many checks are visible without a click.
const MOST_ROWS: usize = 12;

/// Adds the section. The page's header has the reasons of failures.
pub(super) fn section(out: &mut String, data: &PageData<'_>) {
    let mut rows: Vec<CheckRow<'_>> = Vec::new();
    for result in data.live {
        rows.push(CheckRow { check: result, live: Some(result), ready: None });
    }
    for result in data.ready {
        // Two checks may have one name.
        let is_same = |check: &CheckResult| (&check.name, check.owner) == (&result.name, result.owner);
        match rows.iter_mut().find(|row| is_same(row.check) && row.ready.is_none()) {
            Some(row) => row.ready = Some(result),
            None => rows.push(CheckRow { check: result, live: None, ready: Some(result) }),
        }
    }
    rows.sort_by_key(|row| !row.fails());
    let failed = rows.iter().filter(|row| row.fails()).count();
    out.push_str("<section aria-labelledby=\"checks\">");
    out.push_str(&heading("checks", "Health checks", &format!("{} pass, {failed} fail", rows.len() - failed)));
    // The failed ones and some others are always visible.
    let (first, more) = rows.split_at(rows.len().min(failed.max(MOST_ROWS)));
    table_of(out, first, data);
    if !more.is_empty() {
        let _ = write!(out, "<details data-id=\"checks\"><summary>{} more, which pass</summary>", more.len());
        table_of(out, more, data);
        out.push_str("</details>");
    }
    out.push_str("</section>");
}

fn table_of(out: &mut String, rows: &[CheckRow<'_>], data: &PageData<'_>) {
    let heads = [("", "check"), ("", "of"), ("", "live"), ("", "ready"), ("why", "reason")];
    table(out, "now", "Health checks", &heads);
    for row in rows {
        row_name(out, reasons::subject(row.check, data));
        cell(out, "", "of", owner(row.check, data));
        cell(out, "", "live", result(row.live));
        cell(out, "", "ready", result(row.ready));
        let results = [(CheckKind::Live, row.live), (CheckKind::Ready, row.ready)].into_iter();
        let failed = results.filter_map(|(kind, result)| Some((kind, result.filter(|of| of.failure.is_some())?)));
        let mut reasons: Vec<_> = failed.map(|(kind, result)| reasons::in_cell(kind, result, data)).collect();
        reasons.dedup();
        cell(out, "why", "reason", reasons.join("<br>"));
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
}

/// Describes the owner of a check.
fn owner(check: &CheckResult, data: &PageData<'_>) -> &'static str {
    let status = data.status;
    match check.owner {
        CheckOwner::ObjectStore => "object store",
        CheckOwner::Program => "added check",
        CheckOwner::Manager if status.controllers.iter().any(|of| of.name == check.name) => "controller",
        CheckOwner::Manager if status.sources.iter().any(|of| of.name == check.name) => "source",
        CheckOwner::Manager if check.name == status.name => "manager",
        CheckOwner::Manager => "component",
    }
}

fn result(result: Option<&CheckResult>) -> String {
    match result.map(|result| result.failure.is_some()) {
        None => DASH.to_owned(),
        Some(true) => chip(ChipColour::Bad, "fails"),
        Some(false) => chip(ChipColour::Good, "ok"),
    }
}
