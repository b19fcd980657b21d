//! The section of health checks: each check with its results.

use std::fmt::Write;

use super::data::{ChipColour, DASH, PageData, cell, chip, detail, heading, row_name, table};
use super::escape::name;
use crate::status::CheckResult;

/// A check, and its results for liveness and readiness if it has them.
struct CheckRow<'a> {
    name: &'a str,
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
        rows.push(CheckRow { name: &result.name, live: Some(result), ready: None });
    }
    for result in data.ready {
        // Two checks may have one name.
        match rows.iter_mut().find(|row| row.name == result.name && row.ready.is_none()) {
            Some(row) => row.ready = Some(result),
            None => rows.push(CheckRow { name: &result.name, live: None, ready: Some(result) }),
        }
    }
    rows.sort_by_key(|row| !row.fails());
    let failed = rows.iter().filter(|row| row.fails()).count();
    out.push_str("<section aria-labelledby=\"checks\">");
    out.push_str(&heading("checks", "Health checks", &format!("{} pass, {failed} fail", rows.len() - failed)));
    // The failed ones and some others are always visible.
    let (first, more) = rows.split_at(rows.len().min(failed.max(MOST_ROWS)));
    table_of(out, first);
    if !more.is_empty() {
        let _ = write!(out, "<details data-id=\"checks\"><summary>{} more, which pass</summary>", more.len());
        table_of(out, more);
        out.push_str("</details>");
    }
    out.push_str("</section>");
}

fn table_of(out: &mut String, rows: &[CheckRow<'_>]) {
    table(out, "now", "Health checks", &[("", "check"), ("", "live"), ("", "ready"), ("why", "reason")]);
    for row in rows {
        row_name(out, name(row.name));
        cell(out, "", "live", result(row.live));
        cell(out, "", "ready", result(row.ready));
        let failures = [row.live, row.ready].into_iter().flatten().filter_map(|result| result.failure.as_deref());
        let mut reasons: Vec<_> = failures.collect();
        reasons.dedup();
        cell(out, "why", "reason", detail(&format!("check {}", row.name), &reasons.join("\n")));
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
}

fn result(result: Option<&CheckResult>) -> String {
    match result.map(|result| result.failure.is_some()) {
        None => DASH.to_owned(),
        Some(true) => chip(ChipColour::Bad, "fails"),
        Some(false) => chip(ChipColour::Good, "ok"),
    }
}
