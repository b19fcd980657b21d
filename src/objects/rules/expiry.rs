//! Decides which objects expire, and by which of their times.

use jiff::Timestamp;

use super::change::Location;
use crate::objects::{Kind, SharedObject};

/// The paths of the times of an event. The latest one counts.
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

/// Returns the latest time that an event states; `None` for any other object, and for an event that is being deleted already.
pub(crate) fn last_time(location: &Location, object: &SharedObject) -> Option<Timestamp> {
    if !expires(&location.kind) || object.is_deleting() {
        return None;
    }
    TIMES.iter().filter_map(|path| object.pointer(path)?.as_str()?.parse().ok()).max()
}
