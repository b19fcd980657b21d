//! The parts of the object pages about events: the list of events, and what one event tells.

use std::fmt::Write;
use std::time::SystemTime;

use serde_json::Value;

use super::data::{ChipColour, DASH, cell, chip, heading, row_name, table};
use super::escape::{lines, name};
use super::object_parts::{object_path, referenced, text, time_of};
use homeostat_objects::{EventRecorder, Kind, SharedObject};

/// Returns whether a kind is that of events.
pub(super) fn is_events(kind: &Kind) -> bool {
    *kind == EventRecorder::KIND
}

/// Returns the type of an event as a chip.
pub(super) fn type_chip(event: &Value) -> String {
    let colour = if text(event, "type") == "Warning" { ChipColour::Warn } else { ChipColour::Calm };
    chip(colour, text(event, "type"))
}

/// Returns how often an event has happened.
pub(super) fn count(event: &Value) -> u64 {
    let count = event.pointer("/series/count").or(event.get("deprecatedCount")).and_then(Value::as_u64);
    count.unwrap_or(1).max(1)
}

/// Returns the time of the last repetition.
pub(super) fn last_seen(event: &Value) -> &str {
    let fields = ["/series/lastObservedTime", "/deprecatedLastTimestamp", "/eventTime"];
    fields.iter().find_map(|field| event.pointer(field)?.as_str()).unwrap_or_default()
}

/// The context of a page about events.
#[derive(Clone, Copy)]
pub(super) struct EventPage<'a> {
    pub(super) kind: &'a Kind,
    /// The served kinds, for links.
    pub(super) kinds: &'a [Kind],
    pub(super) time: SystemTime,
}

/// Adds the table of all events. `remark` tells their number.
pub(super) fn list(out: &mut String, events: &[SharedObject], remark: &str, page: EventPage<'_>) {
    let mut events: Vec<_> = events.iter().map(|event| (event.key(), event.to_value())).collect();
    // The times are in one format, so their texts sort like the times.
    events.sort_by(|(_, one), (_, other)| last_seen(other).cmp(last_seen(one)));
    out.push_str(&heading("objects", "Objects", remark));
    table(out, "now", "Events, the newest first", &[("", "reason"), ("", "type"), ("", "object"), ("n", "last seen")]);
    for (key, event) in &events {
        row_name(out, format_args!("<a href=\"{}\">{}</a>", object_path(page.kind, key), reason(event)));
        cell(out, "state", "type", type_chip(event));
        cell(out, "wide", "object", regarding(event, page));
        cell(out, "n", "last seen", time_of(page.time, Some(last_seen(event))));
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table>");
}

/// Adds the facts of an event.
pub(super) fn about(out: &mut String, event: &Value, page: EventPage<'_>) {
    out.push_str("<section aria-labelledby=\"event\">");
    out.push_str(&heading("event", "Event", ""));
    out.push_str("<dl class=\"about\">");
    let mut fact = |name: &str, value: String| {
        // Writing to a `String` cannot fail.
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    };
    fact("Reason", reason(event));
    fact("Type", type_chip(event));
    fact("Note", format!("<pre>{}</pre>", lines(text(event, "note"))));
    fact("Regarding", regarding(event, page));
    fact("From", name(text(event, "reportingController")));
    fact("Count", super::units::count(count(event)));
    fact("Last seen", time_of(page.time, Some(last_seen(event))));
    out.push_str("</dl></section>");
}

/// Returns the object of an event, with a link if its kind is served.
fn regarding(event: &Value, page: EventPage<'_>) -> String {
    let Some(regarding) = event.get("regarding").filter(|regarding| regarding.is_object()) else {
        return DASH.to_owned();
    };
    let [version, kind, namespace, object] =
        ["apiVersion", "kind", "namespace", "name"].map(|field| text(regarding, field));
    referenced(page.kinds, [version, kind, namespace, object])
}

fn reason(event: &Value) -> String {
    match text(event, "reason") {
        "" => DASH.to_owned(),
        reason => name(reason),
    }
}
