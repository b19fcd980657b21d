//! The expiry of events: an event is deleted some time after the last of the times that it tells.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::state::Place;
use super::txn::Txn;
use crate::objects::Kind;
use crate::objects::json::is_deleting;

/// How long events live unless a client is told otherwise: as long as with an API server.
pub(super) const EVENT_TTL: Duration = Duration::from_secs(3_600);

/// The times of an event that keep it alive.
const TIMES: [&str; 5] = [
    "/series/lastObservedTime",
    "/deprecatedLastTimestamp",
    "/lastTimestamp",
    "/eventTime",
    "/metadata/creationTimestamp",
];

/// Whether objects of this kind expire.
pub(super) fn expires(kind: &Kind) -> bool {
    kind.name() == "Event" && ["", "events.k8s.io"].contains(&kind.group())
}

/// Returns the latest time that an event tells; `None` for any other object, and for an event that is being deleted already.
pub(super) fn last_time(place: &Place, object: &Value) -> Option<Timestamp> {
    if !expires(&place.kind) || is_deleting(object) {
        return None;
    }
    TIMES.iter().filter_map(|path| object.pointer(path)?.as_str()?.parse().ok()).max()
}

impl Txn<'_> {
    /// Deletes the oldest events whose latest time is this or an earlier one; none, if there is no such time. They are at most a
    /// quarter of the history, so that watches can read on before the history forgets where they are.
    pub(super) fn expire(&mut self, until: Option<Timestamp>) {
        let Some(until) = until else { return };
        let most = (self.state.most_history() / 4).max(1);
        for place in self.state.index.events_until(until).take(most) {
            self.begin_deletion(place, false);
        }
    }
}
