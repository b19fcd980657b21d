//! Kinds that come with columns.

use serde_json::{Value, json};

use super::column::PrintColumn;
use super::core_event::CORE_EVENT;
use super::resource::{ObjectSource, ServedResource};
use crate::objects::{Kind, SharedObject, ValueRef};

/// The kind of namespaces.
pub(crate) const NAMESPACE: Kind = Kind::cluster("", "v1", "Namespace");

impl ServedResource {
    /// Returns the kind of the events that an [`EventRecorder`](crate::objects::EventRecorder) writes, with the columns of
    /// `kubectl`: `Event` in the group `events.k8s.io`.
    #[must_use]
    pub fn events() -> Self {
        Self::new(Kind::namespaced("events.k8s.io", "v1", "Event"))
            .short_name("ev")
            .with_status(false)
            .column(PrintColumn::computed("Last Seen", "date", last_seen))
            .column(PrintColumn::new("Type", "string", ".type"))
            .column(PrintColumn::new("Reason", "string", ".reason"))
            .column(PrintColumn::computed("Object", "string", |event| regarding(event, "regarding")))
            .column(PrintColumn::new("Message", "string", ".note"))
    }

    /// Returns the kind of the older events in the core group, with the columns of `kubectl`.
    ///
    /// These are objects of their own. [`serve_events`](crate::serve::ObjectApiBuilder::serve_events) shows the events of a recorder
    /// in this form.
    #[must_use]
    pub fn core_events() -> Self {
        Self::new(CORE_EVENT)
            .short_name("ev")
            .with_status(false)
            .column(PrintColumn::computed("Last Seen", "date", last_seen))
            .column(PrintColumn::new("Type", "string", ".type"))
            .column(PrintColumn::new("Reason", "string", ".reason"))
            .column(PrintColumn::computed("Object", "string", |event| regarding(event, "involvedObject")))
            .column(PrintColumn::new("Message", "string", ".message"))
    }

    /// Returns the events of [`events`](Self::events) in the form of the core group. They can only be read.
    pub(crate) fn core_event_view() -> Self {
        Self { source: ObjectSource::Events, ..Self::core_events() }
    }

    /// Returns the namespaces of a server that stores none: a namespace exists as long as an object is in it.
    pub(crate) fn virtual_namespaces() -> Self {
        let status = PrintColumn::new("Status", "string", ".status.phase").description("The phase of the namespace.");
        let namespaces = Self::new(NAMESPACE).short_name("ns").with_status(false).column(status);
        Self { source: ObjectSource::Namespaces, ..namespaces }
    }
}

fn last_seen(event: &SharedObject) -> Value {
    let times = [
        "/series/lastObservedTime",
        "/deprecatedLastTimestamp",
        "/lastTimestamp",
        "/eventTime",
        "/metadata/creationTimestamp",
    ];
    let text = times.iter().find_map(|path| event.pointer(path).and_then(ValueRef::as_str));
    text.map_or(Value::Null, Value::from)
}

/// Returns the object of an event in the form `site/home`.
fn regarding(event: &SharedObject, field: &str) -> Value {
    let object = event.get(field);
    let text = |name: &str| object.and_then(|object| object.get(name)?.as_str()).unwrap_or_default();
    json!(format!("{}/{}", text("kind").to_lowercase(), text("name")))
}
