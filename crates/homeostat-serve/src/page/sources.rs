//! The section of sources: pollers and watches.

use super::data::{ChipColour, DASH, PageData, cell, chip, controller_link, detail, heading, row_name, table};
use super::escape::source_name;
use super::units::{ahead, count, set_span, size};
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
    heads.extend([("n", "tries"), ("n", "last success"), ("n", "next try"), ("why", "last error")]);
    table(out, "", "Pollers and watches", &heads);
    for (controller, source) in rows {
        row_name(out, format_args!("{} <small>{}</small>", source_name(&source.name), kind(source)));
        cell(out, "state", "state", state(source));
        if !is_of_one {
            cell(out, "", "controller", controller.map_or_else(|| DASH.to_owned(), controller_link));
        }
        cell(out, "n", "tries", tries(source));
        cell(
            out,
            "n",
            "last success",
            source.last_success.map_or_else(|| "never".to_owned(), |age| data.ago(age) + " ago"),
        );
        cell(out, "n", "next try", next_try(source, data));
        let error = source.last_error.as_deref().unwrap_or_default();
        let error = detail(&format!("source {} {}", controller.unwrap_or_default(), source.name), error);
        // An error of the past stays visible, in a muted colour.
        let class = if source.failing_for.is_some() { "why" } else { "why none" };
        cell(out, class, "last error", error);
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></section>");
}

fn kind(source: &SourceStatus) -> String {
    source.period.map_or_else(|| "watch".to_owned(), |period| format!("poll every {}", set_span(period)))
}

/// Returns the number of listings, and of failures. The stream of a watch may fail more often than its listings.
fn tries(source: &SourceStatus) -> String {
    let failures = if source.failures == 0 { String::new() } else { format!(", {} failed", count(source.failures)) };
    format!("{}{failures}", count(source.listings))
}

/// Describes the next try of a source, as HTML. A watch that works needs none.
pub(super) fn next_try(source: &SourceStatus, data: &PageData<'_>) -> String {
    match (source.listing_for, source.next_listing) {
        (Some(_), _) => "trying now".to_owned(),
        (None, Some(rest)) => format!("in {}", ahead(data.status.time_of_day, rest)),
        (None, None) if source.period.is_some() || source.failing_for.is_some() => "now".to_owned(),
        (None, None) => DASH.to_owned(),
    }
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
