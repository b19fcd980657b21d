//! The section of sources: pollers and watches.

use super::data::{ChipColour, DASH, PageData, cell, chip, detail, heading, row_name, table};
use super::escape::line;
use super::units::{count, size, span};
use homeostat::watch::SourceStatus;

/// Adds the section.
pub(super) fn section(out: &mut String, data: &PageData<'_>) {
    let status = data.status;
    let own = status.sources.iter().map(|source| ("", source));
    let of_controllers = status.controllers.iter();
    let of_controllers = of_controllers
        .flat_map(|controller| controller.sources.iter().map(move |source| (controller.name.as_str(), source)));
    let rows: Vec<_> = own.chain(of_controllers).collect();
    if rows.is_empty() {
        return;
    }
    out.push_str("<section aria-labelledby=\"sources\">");
    out.push_str(&heading("sources", "Sources", &size(rows.len())));
    let heads = [
        ("", "name"),
        ("", "state"),
        ("", "controller"),
        ("n", "listings"),
        ("n", "failures"),
        ("n", "failing for"),
        ("why", "last error"),
    ];
    table(out, "", "Pollers and watches", &heads);
    for (controller, source) in rows {
        row_name(out, line(&source.name));
        cell(out, "state", "state", state(source));
        cell(out, "", "controller", if controller.is_empty() { DASH.to_owned() } else { line(controller).to_string() });
        cell(out, "n", "listings", count(source.listings));
        cell(out, "n", "failures", failures(source));
        cell(out, "n", "failing for", source.failing_for.map_or_else(|| DASH.to_owned(), span));
        let error = source.last_error.as_deref().unwrap_or_default();
        let error = detail(&format!("source {controller} {}", source.name), error);
        // An error of the past stays visible, in a muted colour.
        let class = if source.failing_for.is_some() { "why" } else { "why none" };
        cell(out, class, "last error", error);
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
        SourceStatus { overdue: true, .. } => chip(ChipColour::Bad, "overdue"),
        SourceStatus { failing_for: Some(_), failures_in_a_row: 1, .. } => chip(ChipColour::Bad, "1 failure"),
        SourceStatus { failing_for: Some(_), failures_in_a_row, .. } => {
            chip(ChipColour::Bad, format_args!("{failures_in_a_row} failures"))
        }
        SourceStatus { synced: false, .. } => chip(ChipColour::Warn, "first listing"),
        SourceStatus { undecodable: 1.., .. } => {
            chip(ChipColour::Warn, format_args!("{} undecodable", source.undecodable))
        }
        _ => chip(ChipColour::Good, "follows"),
    }
}
