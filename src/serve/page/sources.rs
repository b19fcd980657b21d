//! The section of sources: pollers and watches.

use std::fmt::Write;

use super::data::{PageData, Tone, cell, chip, detail, heading};
use super::escape::line;
use super::units::{count, size, span};
use crate::watch::source::SourceStatus;

/// Adds the section.
pub(super) fn section(out: &mut String, data: &PageData<'_>) {
    let status = data.status;
    let own = status.sources.iter().map(|source| ("–", source));
    let of_controllers = status.controllers.iter();
    let of_controllers = of_controllers
        .flat_map(|controller| controller.sources.iter().map(move |source| (controller.name.as_str(), source)));
    let rows: Vec<_> = own.chain(of_controllers).collect();
    if rows.is_empty() {
        return;
    }
    out.push_str("<section aria-labelledby=\"sources\">");
    out.push_str(&heading("sources", "Sources", &size(rows.len())));
    out.push_str(
        "<table class=\"cards\"><thead><tr><th>name</th><th>controller</th><th>state</th><th class=\"n\">listings</th>\
         <th class=\"n\">failures</th><th class=\"n\">failing for</th><th>last error</th></tr></thead><tbody>",
    );
    for (controller, source) in rows {
        let _ = write!(out, "<tr><th scope=\"row\" data-label=\"name\">{}</th>", line(&source.name));
        cell(out, "", "controller", line(controller));
        cell(out, "", "state", state(source));
        cell(out, "n", "listings", count(source.listings));
        cell(out, "n", "failures", failures(source));
        cell(out, "n", "failing for", source.failing_for.map_or_else(|| "–".to_owned(), span));
        let error = source.last_error.as_deref().unwrap_or_default();
        let error = detail(&format!("source {controller} {}", source.name), error);
        // An error of the past is kept, in a quiet colour.
        let tone = if source.failing_for.is_some() { "why" } else { "why none" };
        cell(out, tone, "last error", error);
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></section>");
}

fn failures(source: &SourceStatus) -> String {
    let class = if source.failures == 0 { "none" } else { "" };
    format!("<span class=\"{class}\">{}</span>", count(source.failures))
}

fn state(source: &SourceStatus) -> String {
    match source {
        SourceStatus { overdue: true, .. } => chip(Tone::Bad, "overdue"),
        SourceStatus { failing_for: Some(_), failures_in_a_row: 1, .. } => chip(Tone::Bad, "1 failure"),
        SourceStatus { failing_for: Some(_), failures_in_a_row, .. } => {
            chip(Tone::Bad, format_args!("{failures_in_a_row} failures"))
        }
        SourceStatus { synced: false, .. } => chip(Tone::Warn, "first listing"),
        SourceStatus { undecodable: 1.., .. } => chip(Tone::Warn, format_args!("{} undecodable", source.undecodable)),
        _ => chip(Tone::Good, "follows"),
    }
}
