//! Converts events between the form of the core group and the form of `events.k8s.io`, in which they are stored. Plain
//! values.
//!
//! Both forms have the same fields under different names, as in Kubernetes, so no conversion loses anything.

use serde_json::{Map, Value};

use homeostat_objects::{EventRecorder, Kind};

/// The kind of events in the core group.
pub(crate) const CORE_EVENT: Kind = Kind::namespaced("", "v1", "Event");

/// The kind of stored events.
pub(crate) const STORED_EVENT: Kind = EventRecorder::KIND;

/// The fields with two names: first in the core group, then in `events.k8s.io`.
const RENAMED: [(&str, &str); 7] = [
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("involvedObject", "regarding"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
];

/// The fields that field selectors for core events can use.
pub(crate) const CORE_SELECTABLE: &[&str] = &[
    "involvedObject.apiVersion",
    "involvedObject.fieldPath",
    "involvedObject.kind",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.resourceVersion",
    "involvedObject.uid",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// The fields that field selectors for `events.k8s.io` events can use.
pub(crate) const SELECTABLE: &[&str] = &[
    "reason",
    "regarding.apiVersion",
    "regarding.fieldPath",
    "regarding.kind",
    "regarding.name",
    "regarding.namespace",
    "regarding.resourceVersion",
    "regarding.uid",
    "reportingController",
    "type",
];

/// Converts the path of a field selector in the core group, such as `involvedObject.name`, to a path in
/// `events.k8s.io`.
pub(crate) fn stored_selector(path: &str) -> String {
    // In Kubernetes, the field selector `source` means the component.
    if path == "source" { "reportingController".to_owned() } else { stored_path(path) }
}

/// Converts a path in the core group to a path in `events.k8s.io`.
fn stored_path(path: &str) -> String {
    renamed_path(path, |(core, stored)| (core, stored))
}

/// Converts a path in `events.k8s.io` to a path in the core group.
pub(crate) fn core_path(path: &str) -> String {
    renamed_path(path, |(core, stored)| (stored, core))
}

fn renamed_path(path: &str, order: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str)) -> String {
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (field, rest) = path.split_at(end);
    let renamed = RENAMED.into_iter().map(order).find(|(from, _)| *from == field);
    renamed.map_or_else(|| path.to_owned(), |(_, to)| format!("{to}{rest}"))
}

/// Converts an event of `events.k8s.io`, or a merge patch of one, to the form of the core group.
pub(crate) fn core_event(event: Value) -> Value {
    renamed(event, &CORE_EVENT, core_path)
}

/// Converts an event of the core group, or a merge patch of one, to the form of `events.k8s.io`.
pub(crate) fn stored_event(event: Value) -> Value {
    renamed(event, &STORED_EVENT, stored_path)
}

fn renamed(event: Value, kind: &Kind, name: impl Fn(&str) -> String) -> Value {
    let Value::Object(fields) = event else { return event };
    let mut fields: Map<_, _> = fields.into_iter().map(|(field, value)| (name(&field), value)).collect();
    if let Some(version) = fields.get_mut("apiVersion") {
        *version = kind.api_version().into();
    }
    fields.into()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use serde_json::json;

    use super::*;

    /// The same event in both forms, with all fields.
    fn forms() -> (Value, Value) {
        let metadata = json!({"namespace": "a", "name": "home.1", "resourceVersion": "7"});
        let regarding = json!({"kind": "Site", "namespace": "a", "name": "home"});
        let (source, time) = (json!({"component": "sites", "host": "n1"}), "2026-05-01T10:00:00Z");
        let series = json!({"count": 5, "lastObservedTime": "2026-05-01T10:09:00.999999Z"});
        let (stored, core) = (
            json!({
                "apiVersion": "events.k8s.io/v1", "regarding": regarding, "note": "it runs", "reportingController": "sites",
                "deprecatedSource": source, "deprecatedFirstTimestamp": time, "deprecatedLastTimestamp": time,
                "deprecatedCount": 3,
            }),
            json!({
                "apiVersion": "v1", "involvedObject": regarding, "message": "it runs", "reportingComponent": "sites",
                "source": source, "firstTimestamp": time, "lastTimestamp": time, "count": 3,
            }),
        );
        let common = json!({
            "kind": "Event", "metadata": metadata, "type": "Normal", "action": "Start", "reason": "Started", "series": series,
            "eventTime": "2026-05-01T10:00:00.123456Z", "related": regarding, "reportingInstance": "sites-0",
        });
        let with_common = |mut event: Value| {
            for (name, value) in common.as_object().into_iter().flatten() {
                event[name] = value.clone();
            }
            event
        };
        (with_common(stored), with_common(core))
    }

    #[test]
    fn each_form_becomes_the_other_without_loss() {
        let (stored, core) = forms();
        assert_eq!(core_event(stored.clone()), core);
        assert_eq!(stored_event(core), stored);
    }

    #[test]
    fn a_merge_patch_is_renamed_too() {
        let patch = json!({"count": 2, "lastTimestamp": null, "series": {"count": 2}});
        let stored = json!({"deprecatedCount": 2, "deprecatedLastTimestamp": null, "series": {"count": 2}});
        assert_eq!(stored_event(patch), stored);
        assert_eq!(stored_event(json!(3)), json!(3));
    }

    #[test]
    fn selectors_find_the_stored_fields() {
        for (path, stored) in [
            ("involvedObject.name", "regarding.name"),
            ("involvedObject.uid", "regarding.uid"),
            ("message", "note"),
            ("source", "deprecatedSource"),
            ("source.component", "deprecatedSource.component"),
            ("reportingComponent", "reportingController"),
            ("type", "type"),
            ("metadata.name", "metadata.name"),
        ] {
            assert_eq!(stored_path(path), stored);
        }
        assert_eq!(stored_selector("source"), "reportingController");
        assert_eq!(core_path("regarding.name"), "involvedObject.name");
        assert_eq!(core_path("regarding[a]"), "involvedObject[a]");
    }

    #[test]
    fn all_selectable_fields_have_both_names() {
        let mut stored: Vec<_> = CORE_SELECTABLE.iter().map(|path| stored_selector(path)).collect();
        stored.sort_unstable();
        stored.dedup();
        assert_eq!(stored, SELECTABLE);
    }
}
