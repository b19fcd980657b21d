//! Small parts of the pages about objects.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::Value;

use super::clock_times::{happened, lasts};
use super::data::{ChipColour, DASH, chip};
use super::escape::{name, path};
use super::units::ago;
use crate::api::{full_name, ready_condition};
use homeostat_objects::{Kind, ObjectKey, SharedObject};

/// Returns a link to an object's page.
pub(super) fn object_link(kind: &Kind, key: &ObjectKey) -> String {
    format!("<a class=\"key\" href=\"{}\">{}</a>", object_path(kind, key), name(key.name()))
}

/// Names a referenced object, with a link if its kind is served. `reference` has the API version, the kind, the
/// namespace and the name.
pub(super) fn referenced(kinds: &[Kind], reference: [&str; 4]) -> String {
    let [version, kind, namespace, object] = reference;
    let served = kinds.iter().find(|served| served.name() == kind && served.api_version() == version);
    let key = served.and_then(|served| match (served.is_namespaced(), namespace) {
        (true, "") => None,
        (true, namespace) => Some((served, ObjectKey::new(namespace, object))),
        (false, _) => Some((served, ObjectKey::cluster(object))),
    });
    format!("{} {}", name(kind), key.map_or_else(|| name(object), |(served, key)| object_link(served, &key)))
}

/// Returns the path of an object's page.
pub(super) fn object_path(kind: &Kind, key: &ObjectKey) -> String {
    let kind = full_name(kind);
    let segments = ["objects", &kind, key.namespace(), key.name()];
    path(&segments.into_iter().filter(|segment| !segment.is_empty()).collect::<Vec<_>>())
}

/// Whether an object is ready, for a list.
pub(super) struct Readiness {
    /// Objects that are not ready come first.
    pub(super) rank: u8,
    /// As HTML.
    pub(super) chip: String,
    pub(super) reason: String,
    pub(super) message: String,
    /// The last change of the condition's status.
    pub(super) since: Option<SystemTime>,
}

/// Returns the readiness of an object. It is empty if the object has no condition `Ready`.
pub(super) fn readiness(object: &SharedObject) -> Readiness {
    let condition = ready_condition(object).unwrap_or_default();
    let (rank, chip) = match (text(&condition, "status"), object.is_deleting()) {
        ("False", false) => (0, chip(ChipColour::Bad, "not ready")),
        (_, true) => (1, chip(ChipColour::Warn, "deleting")),
        ("True", _) => (3, chip(ChipColour::Good, "ready")),
        ("", _) => (3, String::new()),
        _ => (2, chip(ChipColour::Warn, "unknown")),
    };
    let [reason, message] = ["reason", "message"].map(|field| text(&condition, field).to_owned());
    let since = text(&condition, "lastTransitionTime").parse::<Timestamp>().ok().map(SystemTime::from);
    Readiness { rank, chip, reason, message, since }
}

pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Returns the time since a timestamp.
fn time_since(now: SystemTime, since: Option<&str>) -> Option<Duration> {
    let since = since.and_then(|since| since.parse::<Timestamp>().ok()).map(SystemTime::from);
    since.and_then(|since| now.duration_since(since).ok())
}

/// Returns the time since a timestamp, as HTML.
pub(super) fn age(now: SystemTime, since: Option<&str>) -> String {
    time_since(now, since).map_or_else(|| DASH.to_owned(), |age| ago(now, age))
}

/// Returns the time since a timestamp and its clock time, as HTML.
pub(super) fn long_age(now: SystemTime, since: Option<&str>) -> String {
    time_since(now, since).map_or_else(|| DASH.to_owned(), |age| lasts(now, age))
}

/// Returns the clock time of a timestamp and the time since then, as HTML.
pub(super) fn time_of(now: SystemTime, at: Option<&str>) -> String {
    time_since(now, at).map_or_else(|| DASH.to_owned(), |age| happened(now, age))
}
