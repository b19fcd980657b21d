//! Kinds with predefined columns.

use serde_json::{Value, json};

use super::column::PrintColumn;
use super::core_event::{CORE_EVENT, CORE_SELECTABLE, SELECTABLE, STORED_EVENT};
use super::resource::{ObjectSource, ServedResource};
use homeostat_objects::{Kind, SharedObject, ValueRef};

/// The kind of namespaces.
pub(crate) const NAMESPACE: Kind = Kind::cluster("", "v1", "Namespace");

impl ServedResource {
    /// Creates the kind of events that an [`EventRecorder`](homeostat_objects::EventRecorder) writes, with the columns
    /// of `kubectl`: `Event` in the group `events.k8s.io`.
    #[must_use]
    pub fn events() -> Self {
        event_columns(Self::new(STORED_EVENT), SELECTABLE)
    }

    /// Creates the kind of older events in the core group, with the columns of `kubectl`.
    ///
    /// These are separate objects. To serve a recorder's events in this form, use
    /// [`serve_events`](crate::ObjectApiBuilder::serve_events).
    #[must_use]
    pub fn core_events() -> Self {
        event_columns(Self::new(CORE_EVENT), CORE_SELECTABLE)
    }

    /// Returns a view of [`events`](Self::events) in the form of the core group.
    pub(crate) fn core_event_view() -> Self {
        Self { source: ObjectSource::Events, ..Self::core_events() }
    }

    /// Returns the namespaces of a server that stores none: a namespace exists while it contains an object.
    pub(crate) fn virtual_namespaces() -> Self {
        let status = PrintColumn::new("Status", "string", ".status.phase").description("The phase of the namespace.");
        let namespaces = Self::new(NAMESPACE).short_name("ns").with_status(false).column(status);
        Self { source: ObjectSource::Namespaces, ..namespaces }
    }
}

/// Adds the columns of events, with the name last and no age, and the selectable fields.
fn event_columns(events: ServedResource, selectable: &'static [&'static str]) -> ServedResource {
    let text = |name: &str, value: fn(&SharedObject) -> Value| PrintColumn::computed(name, "string", value);
    let mut events = events
        .short_name("ev")
        .with_status(false)
        .column(PrintColumn::computed("Last Seen", "date", last_seen).description("The time of the last occurrence."))
        .column(PrintColumn::new("Type", "string", ".type").description("`Normal` or `Warning`."))
        .column(PrintColumn::new("Reason", "string", ".reason").description("The reason, one word."))
        .column(text("Object", regarded).description("The object of the event."))
        .column(text("Subobject", |event| json!(read(event, REGARDING, "fieldPath"))).wide())
        .column(text("Source", source).description("The component that reports, and its instance.").wide())
        .column(text("Message", |event| json!(meta_string(event, &["message", "note"]).trim())))
        .column(PrintColumn::computed("First Seen", "date", first_seen).wide())
        .column(PrintColumn::computed("Count", "integer", count).format("int32").wide())
        .column(text("Name", |event| json!(event.name())).format("name").wide());
    events.has_all_columns = true;
    events.selectable = Some(selectable);
    events
}

/// The field for the object of an event, in each group.
const REGARDING: &[&str] = &["involvedObject", "regarding"];

/// Returns the first text in these fields that is not empty.
fn meta_string<'a>(event: &'a SharedObject, fields: &[&str]) -> &'a str {
    let texts = fields.iter().filter_map(|field| event.get(field)?.as_str());
    texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

/// Returns a text inside one of these fields.
fn read<'a>(event: &'a SharedObject, fields: &[&str], name: &str) -> &'a str {
    let texts = fields.iter().filter_map(|field| event.get(field)?.get(name)?.as_str());
    texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

fn time(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { text.into() }
}

fn first_seen(event: &SharedObject) -> Value {
    time(meta_string(event, &["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"]))
}

fn last_seen(event: &SharedObject) -> Value {
    match read(event, &["series"], "lastObservedTime") {
        "" => match meta_string(event, &["lastTimestamp", "deprecatedLastTimestamp"]) {
            "" => first_seen(event),
            last => last.into(),
        },
        last => last.into(),
    }
}

fn count(event: &SharedObject) -> Value {
    let in_series = event.get("series").and_then(|series| series.get("count"));
    let count = in_series.or_else(|| event.get("count")).or_else(|| event.get("deprecatedCount"));
    // In the newer form, an event that occurred once has no count.
    json!(count.and_then(ValueRef::as_i64).filter(|count| *count != 0).unwrap_or(1))
}

fn source(event: &SharedObject) -> Value {
    let fields = ["source", "deprecatedSource"];
    let either = |name: &str, others: &[&str]| match read(event, &fields, name) {
        "" => meta_string(event, others).to_owned(),
        text => text.to_owned(),
    };
    let component = either("component", &["reportingComponent", "reportingController"]);
    let instance = either("host", &["reportingInstance"]);
    if instance.is_empty() { component.into() } else { format!("{component}, {instance}").into() }
}

/// Returns the object of an event, such as `site/home`.
fn regarded(event: &SharedObject) -> Value {
    let kind = read(event, REGARDING, "kind").to_lowercase();
    match read(event, REGARDING, "name") {
        "" => kind.into(),
        name => format!("{kind}/{name}").into(),
    }
}
