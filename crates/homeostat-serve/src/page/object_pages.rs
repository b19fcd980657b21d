//! The pages of objects: the objects of one kind, and one object as `kubectl describe` shows it.

use std::fmt::Write;
use std::time::SystemTime;

use serde_json::Value;

use super::data::{ChipColour, DASH, cell, chip, detail, heading, most, remark, row_name, table};
use super::escape::{line, lines, name, path};
use super::event_pages::{self, EventPage, count, is_events, last_seen, type_chip};
use super::object_parts::{age, long_age, object_link, readiness, referenced, text, time_of};
use super::tab::Tab;
use super::units::size;
use crate::api::full_name;
use homeostat_objects::{Client, ClientError, EventRecorder, Kind, ObjectKey, Query, SharedObject, ValueRef};

/// The largest number of objects that a page lists.
const MOST_OBJECTS: usize = 200;

/// The largest number of events that a page shows.
const MOST_EVENTS: usize = 50;

/// The context of a page about objects.
pub(super) struct ObjectPage<'a> {
    pub(super) manager: &'a str,
    pub(super) client: &'a dyn Client,
    pub(super) kind: &'a Kind,
    /// The command `kubectl` with its options.
    pub(super) kubectl: &'a str,
    pub(super) time: SystemTime,
    /// The served kinds, for links.
    pub(super) kinds: &'a [Kind],
    /// Whether the list shows all objects.
    pub(super) all: bool,
}

impl ObjectPage<'_> {
    fn event_page(&self) -> EventPage<'_> {
        EventPage { kind: self.kind, kinds: self.kinds, time: self.time }
    }

    fn header(&self, out: &mut String, title: &str, chips: &str, has_kind: bool, tab: &Tab) {
        let kind = name(self.kind.name());
        let link = path(&["objects", &full_name(self.kind)]);
        let kind = if has_kind { format!(" / <a href=\"{link}\">{kind}</a>") } else { String::new() };
        // Writing to a `String` cannot fail.
        let _ = write!(
            out,
            "<header {}><nav aria-label=\"Breadcrumb\"><a href=\"/\">{}</a>{kind}</nav><div class=\"title\"><h1>{}</h1>\
             <p class=\"chips\">{chips}</p></div><p class=\"facts\">{}</p></header><main id=\"main\">",
            tab.attributes(),
            name(self.manager),
            name(title),
            name(&self.kind.api_version())
        );
    }

    /// Returns the changing part of a kind's page.
    pub(super) fn list(&self, tab: &Tab) -> String {
        let mut out = String::new();
        self.header(&mut out, self.kind.name(), "", false, tab);
        let all = if self.kind.is_namespaced() { " -A" } else { "" };
        command(&mut out, &format!("{} get {}{all}", self.kubectl, full_name(self.kind)));
        out.push_str("<section aria-labelledby=\"objects\">");
        let most = most(self.all, MOST_OBJECTS);
        // A list over the network ends early. So the objects that are not ready come first among these only.
        let is_local = self.client.capabilities().local;
        let query = if is_local { Query::all() } else { Query::all().limit(most) };
        match self.client.list(self.kind, &query) {
            Err(error) => failed(&mut out, &error),
            Ok(mut list) => {
                let link = if self.all { "" } else { "?all=1#objects" };
                let mut shown = remark(list.items.len().min(most), list.items.len(), link);
                if list.continue_token.is_some() {
                    shown += ", and more";
                    if !self.all {
                        let _ = write!(shown, " <a href=\"{link}\">show all</a>");
                    }
                }
                if is_events(self.kind) {
                    list.items.truncate(most);
                    event_pages::list(&mut out, &list.items, &shown, self.event_page());
                } else {
                    self.rows(&mut out, &list.items, most, &shown);
                }
            }
        }
        out.push_str("</section></main>");
        out
    }

    /// Adds the table of these objects, those that are not ready first.
    fn rows(&self, out: &mut String, objects: &[SharedObject], most: usize, remark: &str) {
        let mut rows: Vec<_> = objects.iter().map(|object| (readiness(object), object)).collect();
        rows.sort_by_key(|(ready, _)| ready.rank);
        out.push_str(&heading("objects", "Objects", remark));
        let heads = [("", "name"), ("", "ready"), ("", "reason"), ("n", "age"), ("", "namespace"), ("why", "message")];
        table(out, "", "Objects", &heads);
        for (ready, object) in rows.into_iter().take(most) {
            let (namespace, created) = (object.namespace(), object.pointer("/metadata/creationTimestamp"));
            let dash = |text: &str| if text.is_empty() { DASH.to_owned() } else { name(text) };
            row_name(out, object_link(self.kind, &object.key()));
            cell(out, "state", "ready", ready.chip);
            cell(out, "wide", "reason", dash(&ready.reason));
            cell(out, "n", "age", age(self.time, created.and_then(ValueRef::as_str)));
            cell(out, "", "namespace", dash(namespace));
            cell(out, "why", "message", detail(&format!("object {}", object.key()), &ready.message));
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table>");
    }

    /// Returns the changing part of an object's page, and whether the object exists. `has_events` says whether the user
    /// may list events. `keys` describes the keys with the name of the object, as HTML.
    pub(super) fn object(&self, key: &ObjectKey, keys: &str, has_events: bool, tab: &Tab) -> (String, bool) {
        let mut out = String::new();
        let object = self.client.get(self.kind, key);
        let chips = object.as_ref().map(|object| readiness(object).chip).unwrap_or_default();
        self.header(&mut out, key.name(), &chips, true, tab);
        let exists = object.is_ok();
        match object {
            Err(error) => failed(&mut out, &error),
            Ok(object) => {
                let namespace = key.namespace();
                let namespace = if namespace.is_empty() { String::new() } else { format!(" -n {namespace}") };
                command(
                    &mut out,
                    &format!("{} describe {} {}{namespace}", self.kubectl, full_name(self.kind), key.name()),
                );
                if is_events(self.kind) {
                    event_pages::about(&mut out, &object.to_value(), self.event_page());
                }
                self.about(&mut out, &object, keys);
                self.conditions(&mut out, &object);
                if has_events {
                    self.events(&mut out, &object);
                }
                for field in ["spec", "status"] {
                    if let Some(value) = object.get(field) {
                        let text = serde_json::to_string_pretty(&value.to_value()).unwrap_or_default();
                        let _ = write!(
                            out,
                            "<details data-id=\"{field}\"><summary>{field}</summary><pre>{}</pre></details>",
                            lines(&text)
                        );
                    }
                }
            }
        }
        out.push_str("</main>");
        (out, exists)
    }

    fn about(&self, out: &mut String, object: &SharedObject, keys: &str) {
        let metadata = object.get("metadata").map(ValueRef::to_value).unwrap_or_default();
        out.push_str("<dl class=\"about\">");
        let mut fact = |name: &str, value: String| {
            if !value.is_empty() {
                let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
            }
        };
        fact("Namespace", name(object.namespace()));
        fact("Keys of its name", keys.to_owned());
        fact("Age", long_age(self.time, metadata["creationTimestamp"].as_str()));
        if let Some(since) = metadata["deletionTimestamp"].as_str() {
            fact("Deletion", format!("requested at {}", time_of(self.time, Some(since))));
        }
        fact("Finalizers", object.finalizers().map(name).collect::<Vec<_>>().join(", "));
        let observed = object.pointer("/status/observedGeneration").and_then(ValueRef::as_i64);
        if let Some(generation) = metadata["generation"].as_i64() {
            let observed = observed.map(|observed| format!(" <small>observed: {observed}</small>")).unwrap_or_default();
            fact("Generation", format!("{generation}{observed}"));
        }
        let owners = object
            .owner_references()
            .map(|owner| referenced(self.kinds, [&owner.api_version, &owner.kind, object.namespace(), &owner.name]));
        let owners: Vec<_> = owners.collect();
        match owners.len() {
            0 => fact("Owner", "none".to_owned()),
            1 => fact("Owner", owners.concat()),
            _ => fact("Owners", owners.join(", ")),
        }
        for (title, field) in [("Labels", "labels"), ("Annotations", "annotations")] {
            let pairs = metadata[field].as_object().into_iter().flatten();
            let pairs = pairs.map(|(key, value)| {
                let value = detail(&format!("{field} {key}"), value.as_str().unwrap_or_default());
                format!("<div class=\"pairs\"><span>{}</span><span>{value}</span></div>", name(key))
            });
            fact(title, pairs.collect());
        }
        out.push_str("</dl>");
    }

    fn conditions(&self, out: &mut String, object: &SharedObject) {
        let conditions = object.pointer("/status/conditions").map(ValueRef::to_value).unwrap_or_default();
        let Some(conditions) = conditions.as_array().filter(|conditions| !conditions.is_empty()) else { return };
        out.push_str("<section aria-labelledby=\"conditions\">");
        out.push_str(&heading("conditions", "Conditions", &size(conditions.len())));
        let heads = [("", "type"), ("", "status"), ("", "reason"), ("n", "since"), ("why", "message")];
        table(out, "", "Conditions", &heads);
        for condition in conditions {
            row_name(out, name(text(condition, "type")));
            cell(out, "state", "status", status_of(condition));
            cell(out, "wide", "reason", name(text(condition, "reason")));
            cell(out, "n", "since", time_of(self.time, condition["lastTransitionTime"].as_str()));
            cell(
                out,
                "why",
                "message",
                detail(&format!("condition {}", text(condition, "type")), text(condition, "message")),
            );
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></section>");
    }

    fn events(&self, out: &mut String, object: &SharedObject) {
        out.push_str("<section aria-labelledby=\"events\">");
        let query = Query::all().field("regarding.uid", object.uid());
        let query = if object.namespace().is_empty() { query } else { query.namespace(object.namespace()) };
        match self.client.list(&EventRecorder::KIND, &query) {
            Err(error) => failed(out, &error),
            Ok(list) => {
                let mut events: Vec<_> = list.items.iter().map(SharedObject::to_value).collect();
                // The times are in one format, so their texts sort like the times.
                events.sort_by(|one, other| last_seen(other).cmp(last_seen(one)));
                out.push_str(&heading("events", "Events", &size(events.len())));
                if events.is_empty() {
                    out.push_str("<p class=\"calm\">None.</p></section>");
                    return;
                }
                let heads = [
                    ("", "reason"),
                    ("", "type"),
                    ("n", "last seen"),
                    ("n", "count"),
                    ("", "from"),
                    ("why", "message"),
                ];
                table(out, "", "Events, the newest first", &heads);
                for event in events.iter().take(MOST_EVENTS) {
                    row_name(out, name(text(event, "reason")));
                    cell(out, "state", "type", type_chip(event));
                    cell(out, "n", "last seen", time_of(self.time, Some(last_seen(event))));
                    cell(out, "n", "count", count(event));
                    cell(out, "wide", "from", name(text(event, "reportingController")));
                    cell(
                        out,
                        "why",
                        "message",
                        detail(&format!("event {}", event["metadata"]["name"]), text(event, "note")),
                    );
                    out.push_str("</tr>");
                }
                out.push_str("</tbody></table>");
            }
        }
        out.push_str("</section>");
    }
}

fn command(out: &mut String, command: &str) {
    let _ = write!(out, "<pre class=\"command\">{}</pre>", line(command));
}

fn failed(out: &mut String, error: &ClientError) {
    let _ = write!(out, "<p class=\"reasons\">{}</p>", line(&error.to_string()));
}

/// Returns the status of a condition. Only the meaning of `Ready` and `Available` is known.
fn status_of(condition: &Value) -> String {
    let status = text(condition, "status");
    let is_known = matches!(text(condition, "type"), "Ready" | "Available");
    let colour = match status {
        "True" if is_known => ChipColour::Good,
        "False" if is_known => ChipColour::Bad,
        "Unknown" => ChipColour::Warn,
        _ => ChipColour::Calm,
    };
    chip(colour, status)
}
