//! Events of `events.k8s.io` in the form of the core group. A plain value.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::objects::json::whole_seconds;
use crate::objects::{Kind, SharedObject};

/// The kind of the events in the core group.
pub(crate) const CORE_EVENT: Kind = Kind::namespaced("", "v1", "Event");

/// The fields of the core group that have another name in `events.k8s.io`.
const RENAMED: [(&str, &str); 3] =
    [("involvedObject", "regarding"), ("message", "note"), ("reportingComponent", "reportingController")];

/// Returns the path in `events.k8s.io` of a path in the core group, such as `involvedObject.name`.
pub(crate) fn stored_path(path: &str) -> String {
    let (field, rest) = path.split_once('.').map_or((path, None), |(field, rest)| (field, Some(rest)));
    // The field selector `source` of Kubernetes means the component.
    if field == "source" && matches!(rest, None | Some("component")) {
        return "reportingController".to_owned();
    }
    let stored = RENAMED.iter().find(|(core, _)| *core == field).map_or(field, |(_, stored)| *stored);
    rest.map_or_else(|| stored.to_owned(), |rest| format!("{stored}.{rest}"))
}

/// Returns an event of `events.k8s.io` as an event of the core group.
pub(crate) fn core_event(event: &SharedObject) -> SharedObject {
    let mut event = event.to_value();
    if let Some(fields) = event.as_object_mut() {
        convert(fields);
    }
    event.into()
}

fn convert(fields: &mut Map<String, Value>) {
    fields.insert("apiVersion".to_owned(), CORE_EVENT.api_version().into());
    for (core, stored) in RENAMED {
        if let Some(value) = fields.remove(stored) {
            fields.insert(core.to_owned(), value);
        }
    }
    let time = |value: Option<&Value>| Some(seconds(value?.as_str()?));
    let series = fields.get("series");
    let first = time(fields.get("eventTime"));
    let last = time(series.and_then(|series| series.get("lastObservedTime"))).or_else(|| first.clone());
    let count = series.and_then(|series| series.get("count")).cloned().unwrap_or_else(|| json!(1));
    let source = fields.get("reportingComponent").map(|component| json!({"component": component}));
    // Servers convert older events into these fields.
    for (core, deprecated, computed) in [
        ("firstTimestamp", "deprecatedFirstTimestamp", first.map(Value::from)),
        ("lastTimestamp", "deprecatedLastTimestamp", last.map(Value::from)),
        ("count", "deprecatedCount", Some(count)),
        ("source", "deprecatedSource", source),
    ] {
        if let Some(value) = fields.remove(deprecated).filter(is_set).or(computed) {
            fields.insert(core.to_owned(), value);
        }
    }
}

/// Returns whether a field has a value other than the default of its type.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Number(number) => number.as_i64() != Some(0),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    }
}

/// Cuts a time to seconds, the only form in which Kubernetes writes the times of core events.
fn seconds(time: &str) -> String {
    time.parse::<Timestamp>().map_or_else(|_| time.to_owned(), |time| whole_seconds(time).to_string())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn converted(event: Value) -> Value {
        core_event(&event.into()).to_value()
    }

    #[test]
    fn fields_have_the_names_of_the_core_group() {
        let metadata = json!({"namespace": "a", "name": "home.1", "resourceVersion": "7"});
        let regarding = json!({"kind": "Site", "namespace": "a", "name": "home"});
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": metadata, "regarding": regarding,
            "type": "Normal", "action": "Start", "reason": "Started", "note": "it runs",
            "eventTime": "2026-05-01T10:00:00.123456Z", "reportingController": "sites", "reportingInstance": "sites-0",
        });
        let once = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": regarding,
            "type": "Normal", "action": "Start", "reason": "Started", "message": "it runs",
            "eventTime": "2026-05-01T10:00:00.123456Z", "reportingComponent": "sites", "reportingInstance": "sites-0",
            "source": {"component": "sites"}, "count": 1,
            "firstTimestamp": "2026-05-01T10:00:00Z", "lastTimestamp": "2026-05-01T10:00:00Z",
        });
        assert_eq!(converted(event.clone()), once);
        let mut repeated = event;
        repeated["series"] = json!({"count": 5, "lastObservedTime": "2026-05-01T10:09:00.999999Z"});
        let repeated = converted(repeated);
        assert_eq!((&repeated["count"], &repeated["series"]["count"]), (&json!(5), &json!(5)));
        assert_eq!(repeated["firstTimestamp"], "2026-05-01T10:00:00Z");
        assert_eq!(repeated["lastTimestamp"], "2026-05-01T10:09:00Z");
    }

    #[test]
    fn older_fields_are_kept() {
        let event = json!({
            "eventTime": null, "reportingController": "", "deprecatedCount": 3,
            "deprecatedSource": {"component": "kubelet", "host": "n1"},
            "deprecatedFirstTimestamp": "2026-05-01T10:00:00Z", "deprecatedLastTimestamp": "2026-05-01T11:00:00Z",
        });
        let core = json!({
            "apiVersion": "v1", "eventTime": null, "reportingComponent": "", "count": 3,
            "source": {"component": "kubelet", "host": "n1"},
            "firstTimestamp": "2026-05-01T10:00:00Z", "lastTimestamp": "2026-05-01T11:00:00Z",
        });
        assert_eq!(converted(event), core);
    }

    #[test]
    fn selectors_find_the_stored_fields() {
        for (path, stored) in [
            ("involvedObject.name", "regarding.name"),
            ("involvedObject.uid", "regarding.uid"),
            ("message", "note"),
            ("source", "reportingController"),
            ("reportingComponent", "reportingController"),
            ("type", "type"),
            ("metadata.name", "metadata.name"),
        ] {
            assert_eq!(stored_path(path), stored);
        }
    }
}
