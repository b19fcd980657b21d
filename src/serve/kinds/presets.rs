//! Kinds that come with columns.

use serde_json::{Value, json};

use super::column::PrintColumn;
use super::core_event::CORE_EVENT;
use super::resource::ServedResource;
use crate::objects::{Kind, SharedObject, ValueRef};

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
        Self { is_view: true, ..Self::core_events() }
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
