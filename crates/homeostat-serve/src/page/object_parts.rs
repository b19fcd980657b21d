//! Small parts of the pages about objects.

use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::Value;

use super::data::DASH;
use super::escape::{name, path};
use super::units::ago;
use crate::api::full_name;
use homeostat_objects::{Kind, ObjectKey};

/// Returns a link to an object's page.
pub(super) fn object_link(kind: &Kind, key: &ObjectKey) -> String {
    format!("<a class=\"key\" href=\"{}\">{}</a>", object_path(kind, key), name(key.name()))
}

/// Returns the path of an object's page.
pub(super) fn object_path(kind: &Kind, key: &ObjectKey) -> String {
    let kind = full_name(kind);
    let segments = ["objects", &kind, key.namespace(), key.name()];
    path(&segments.into_iter().filter(|segment| !segment.is_empty()).collect::<Vec<_>>())
}

pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Returns the time since a timestamp, as HTML.
pub(super) fn age(now: SystemTime, since: Option<&str>) -> String {
    let since = since.and_then(|since| since.parse::<Timestamp>().ok()).map(SystemTime::from);
    let age = since.and_then(|since| now.duration_since(since).ok());
    age.map_or_else(|| DASH.to_owned(), |age| ago(now, age))
}
