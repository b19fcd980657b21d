//! The client that keeps its objects in memory.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;

use super::builder::EmbeddedBuilder;
use super::server::EmbeddedEngine;
use super::state::ServerState;
use crate::{Kind, json::meta_string};

/// A [`Client`](crate::Client) that keeps its objects in memory and follows the rules of an API server.
///
/// Clones are cheap and share the objects. Reads copy no object. Lists and watches read a snapshot, so other calls do
/// not wait for them. Writes run one at a time. When a deletion returns, the dependents that it deletes are gone too.
///
/// Objects of kind `Event` expire [an hour](EmbeddedBuilder::event_ttl) after their latest time.
///
/// An object has a limited depth and a limited [size](EmbeddedBuilder::max_object_bytes). Writing an object beyond the
/// limits is [invalid](crate::ClientErrorKind::Invalid).
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Client, Kind, MemoryClient, ObjectKey};
/// use serde_json::json;
///
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let client = MemoryClient::new();
/// let created = client.create(&CONFIG_MAP, json!({
///     "apiVersion": "v1", "kind": "ConfigMap",
///     "metadata": {"namespace": "default", "name": "colours"}, "data": {"sky": "blue"},
/// }))?;
/// assert_eq!(created.pointer("/metadata/generation").unwrap(), json!(1));
/// assert_eq!(client.get(&CONFIG_MAP, &ObjectKey::new("default", "colours"))?, created);
/// # Ok::<_, homeostat_objects::ClientError>(())
/// ```
#[derive(Clone)]
pub struct MemoryClient {
    pub(super) server: Arc<EmbeddedEngine>,
}

impl MemoryClient {
    /// Returns a client without objects, with default settings.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns the default settings. Change them, then build the client.
    pub fn builder() -> EmbeddedBuilder {
        EmbeddedBuilder::new()
    }

    /// Inserts an object as it is, replacing the object with its key. Checks no rule, and notifies no watch. Later
    /// versions are higher than the object's.
    ///
    /// Use it to prepare a test: the object keeps its uid, version and times.
    pub fn load(&self, kind: &Kind, object: Value) {
        let version = meta_string(&object, "resourceVersion").parse().unwrap_or_default();
        self.server.writers.alone(|| {
            let mut state = self.server.visible.write();
            let state = Arc::make_mut(&mut state);
            state.head = state.head.max(version);
            state.load(kind, object);
        });
    }
}

impl EmbeddedBuilder {
    /// Builds a client that keeps its objects in memory only.
    #[must_use]
    pub fn build(self) -> MemoryClient {
        let mut state = ServerState::new(&self);
        if self.versions_by_time {
            let since_1970 = self.clock.time_of_day().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            state.head = u64::try_from(since_1970.as_micros()).unwrap_or_default();
        }
        MemoryClient { server: EmbeddedEngine::new(self, None, state) }
    }
}

impl Default for MemoryClient {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::{Client, Kind, Query, WatchEvent};
    use homeostat::base::{CancellationToken, ManualClock};

    const THING: Kind = Kind::namespaced("", "v1", "Thing");

    #[test]
    fn a_version_of_an_earlier_process_is_gone() {
        let clock = ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
        let process = || MemoryClient::builder().clock(clock.clock()).versions_by_time().build();
        let thing = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"namespace": "default", "name": "a"}});
        let earlier = process();
        earlier.create(&THING, thing.clone()).unwrap();
        let version = earlier.list(&THING, &Query::all()).unwrap().version;
        assert_eq!(version, "1700000000000001");
        clock.advance(Duration::from_secs(1));
        let later = process();
        let created = later.create(&THING, thing).unwrap();
        let stop = CancellationToken::new();
        let error = later.watch(&THING, &Query::all(), Some(&version), &stop).unwrap_err();
        assert!(error.is_gone(), "{error}");
        // The client knows a version of this process.
        let mut events = later.watch(&THING, &Query::all(), Some("1700000001000000"), &stop).unwrap();
        assert_eq!(events.next().unwrap().unwrap(), WatchEvent::Added(created));
    }
}
