//! Converts a change to the event that a watch with a selection sees.

use std::fmt::Display;

use crate::json::meta_mut;
use crate::{Query, SharedObject, WatchEvent};

/// Returns the event for readers of the selected objects; `None` if they see no change.
///
/// `old` is the object before the change; `None` if the change creates it. For a removal, `object` is the last state.
/// Ignores the namespace.
pub fn event_of(
    old: Option<&SharedObject>,
    object: &SharedObject,
    removed: bool,
    version: impl Display,
    query: &Query,
) -> Option<WatchEvent<SharedObject>> {
    let was = old.filter(|old| query.selects_content(*old));
    let is = !removed && query.selects_content(object);
    match was {
        None if is => Some(WatchEvent::Added(object.clone())),
        None => None,
        Some(_) if is => Some(WatchEvent::Modified(object.clone())),
        Some(_) if removed => Some(WatchEvent::Deleted(object.clone())),
        Some(old) => Some(WatchEvent::Deleted(as_of(old, version))),
    }
}

/// Returns the last state that a query selects, with the version at which the object has left the selection.
fn as_of(old: &SharedObject, version: impl Display) -> SharedObject {
    let mut last = old.to_value();
    meta_mut(&mut last).insert("resourceVersion".to_owned(), version.to_string().into());
    SharedObject::from(last)
}
