//! The section of sources: pollers and watches.

use super::data::{ChipColour, DASH, PageData, cell, chip, controller_link, detail, heading, row_name, table};
use super::escape::source_name;
use super::units::{count, size};
use homeostat::watch::SourceStatus;

/// Adds the section with the sources of the manager and of all controllers.
pub(super) fn section(out: &mut String, data: &PageData<'_>) {
    let status = data.status;
    let own = status.sources.iter().map(|source| (None, source));
    let of_controllers = status.controllers.iter();
    let of_controllers = of_controllers
        .flat_map(|controller| controller.sources.iter().map(move |source| (Some(controller.name.as_str()), source)));
    table_of(out, &own.chain(of_controllers).collect::<Vec<_>>(), data);
}

/// Adds the section with these sources, each with its controller. No source needs one if all belong to the same.
pub(super) fn table_of(out: &mut String, rows: &[(Option<&str>, &SourceStatus)], data: &PageData<'_>) {
    if rows.is_empty() {
        return;
    }
    out.push_str("<section aria-labelledby=\"sources\">");
    out.push_str(&heading("sources", "Sources", &size(rows.len())));
    let is_of_one = rows.iter().all(|(controller, _)| controller.is_none());
    let mut heads = vec![("", "name"), ("", "state"), ("", "controller")];
    heads.truncate(if is_of_one { 2 } else { 3 });
    heads.extend([("n", "listings"), ("n", "failures"), ("n", "failing for"), ("why", "last error")]);
    table(out, "", "Pollers and watches", &heads);
    for (controller, source) in rows {
        row_name(out, source_name(&source.name));
        cell(out, "state", "state", state(source));
        if !is_of_one {
            cell(out, "", "controller", controller.map_or_else(|| DASH.to_owned(), controller_link));
        }
        cell(out, "n", "listings", count(source.listings));
        cell(out, "n", "failures", failures(source));
        cell(out, "n", "failing for", source.failing_for.map_or_else(|| DASH.to_owned(), |time| data.ago(time)));
        let error = source.last_error.as_deref().unwrap_or_default();
        let error = detail(&format!("source {} {}", controller.unwrap_or_default(), source.name), error);
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

/// Returns the state of a source as a chip.
pub(super) fn state(source: &SourceStatus) -> String {
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
        _ => chip(ChipColour::Good, "synced"),
    }
}
