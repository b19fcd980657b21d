//! Kinds with predefined columns.

use serde_json::{Value, json};

use super::column::{ComputedValue, ServedColumn};
use super::core_event::{CORE_EVENT, CORE_SELECTABLE, SELECTABLE, STORED_EVENT};
use super::resource::{ObjectSource, ServedResource};
use homeostat_objects::{Kind, KindDefinition, PrintColumn, SharedObject, ValueRef};

/// The kind of namespaces.
pub(crate) const NAMESPACE: Kind = Kind::cluster("", "v1", "Namespace");

impl ServedResource {
    /// Creates the kind of events that an [`EventRecorder`](homeostat_objects::EventRecorder) writes, with the columns
    /// of `kubectl`: `Event` in the group `events.k8s.io`.
    #[must_use]
    pub fn events() -> Self {
        events_of(STORED_EVENT, SELECTABLE)
    }

    /// Creates the kind of older events in the core group, with the columns of `kubectl`.
    ///
    /// These are separate objects. To serve a recorder's events in this form, use
    /// [`serve_events`](crate::ObjectApiBuilder::serve_events).
    #[must_use]
    pub fn core_events() -> Self {
        events_of(CORE_EVENT, CORE_SELECTABLE)
    }

    /// Returns a view of [`events`](Self::events) in the form of the core group.
    pub(crate) fn core_event_view() -> Self {
        Self { source: ObjectSource::Events, ..Self::core_events() }
    }

    /// Returns the namespaces of a server that stores none: a namespace exists while it contains an object.
    pub(crate) fn virtual_namespaces() -> Self {
        let status = PrintColumn::string("Status", ".status.phase").description("The phase of the namespace.");
        let namespaces = KindDefinition::new(NAMESPACE).short_name("ns").with_status(false).column(status);
        Self { source: ObjectSource::Namespaces, ..Self::new(namespaces) }
    }
}

/// Returns events with their selectable fields, and with computed columns: the name is last, and there is no age.
fn events_of(kind: Kind, selectable: &[&str]) -> ServedResource {
    let text = |name: &str, path: &str| PrintColumn::string(name, path);
    let columns: [(PrintColumn, ComputedValue); 10] = [
        (PrintColumn::date("Last Seen", ".lastTimestamp").description("The time of the last occurrence."), last_seen),
        (text("Type", ".type").description("`Normal` or `Warning`."), |event| field(event, "type")),
        (text("Reason", ".reason").description("The reason, one word."), |event| field(event, "reason")),
        (text("Object", ".regarding").description("The object of the event."), regarded),
        (text("Subobject", ".regarding.fieldPath").wide(), |event| json!(read(event, REGARDING, "fieldPath"))),
        (text("Source", ".source").description("The component that reports, and its instance.").wide(), source),
        (text("Message", ".note"), |event| json!(meta_string(event, &["message", "note"]).trim())),
        (PrintColumn::date("First Seen", ".firstTimestamp").wide(), first_seen),
        (PrintColumn::integer("Count", ".count").format("int32").wide(), count),
        (text("Name", ".metadata.name").format("name").wide(), |event| json!(event.name())),
    ];
    let definition = KindDefinition::new(kind).short_name("ev").with_status(false);
    let definition = selectable.iter().fold(definition, |definition, path| definition.selectable_field(*path));
    let columns = columns.iter().map(|(like, value)| ServedColumn::computed(like, *value)).collect();
    ServedResource { columns, ..ServedResource::new(definition) }
}

fn field(event: &SharedObject, name: &str) -> Value {
    event.get(name).map_or(Value::Null, ValueRef::to_value)
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
