//! Decides which objects expire, and which of their times counts.

use jiff::Timestamp;

use super::change::Location;
use crate::{Kind, SharedObject};

/// The paths of an event's times. The latest one counts.
const TIMES: [&str; 5] = [
    "/series/lastObservedTime",
    "/deprecatedLastTimestamp",
    "/lastTimestamp",
    "/eventTime",
    "/metadata/creationTimestamp",
];

/// Returns whether objects of this kind expire.
pub(crate) fn expires(kind: &Kind) -> bool {
    kind.name() == "Event" && ["", "events.k8s.io"].contains(&kind.group())
}

/// Returns the latest time of an event; `None` for any other object, and for an event that is already being deleted.
pub(crate) fn last_time(location: &Location, object: &SharedObject) -> Option<Timestamp> {
    if !expires(&location.kind) || object.is_deleting() {
        return None;
    }
    TIMES.iter().filter_map(|path| object.pointer(path)?.as_str()?.parse().ok()).max()
}
