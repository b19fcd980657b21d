//! Objects in memory.

use std::sync::Arc;

#[cfg(feature = "testing")]
use serde_json::Value;

use super::state::{Change, State};
use super::{EmbeddedBuilder, Journal, Server};
#[cfg(feature = "testing")]
use crate::objects::{Kind, json::text_of};
use crate::run::error::BoxError;

/// A [`Client`](crate::objects::Client) that keeps its objects in memory, and behaves as an API server does. A cheap handle; clones
/// have the same objects.
///
/// Reads copy no object. Writes take their turn. Belonging is looked after in the very call that changes it: when a deletion returns,
/// what it takes along has gone too.
///
/// Objects of kind `Event` expire [an hour](EmbeddedBuilder::event_ttl) after the last time that they tell.
///
/// The depth of an object is limited, and its [size](EmbeddedBuilder::max_object_bytes): a write of another is
/// [invalid](crate::objects::ClientError::Invalid).
///
/// # Examples
///
/// ```
/// use homeostat::objects::{Client, Kind, MemoryClient, ObjectKey};
/// use serde_json::json;
///
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let client = MemoryClient::new();
/// let created = client.create(&CONFIG_MAP, json!({
///     "apiVersion": "v1", "kind": "ConfigMap",
///     "metadata": {"namespace": "default", "name": "colours"}, "data": {"sky": "blue"},
/// }))?;
/// assert_eq!(created["metadata"]["generation"], 1);
/// assert_eq!(client.get(&CONFIG_MAP, &ObjectKey::new("default", "colours"))?, created);
/// # Ok::<_, homeostat::objects::ClientError>(())
/// ```
#[derive(Clone)]
pub struct MemoryClient {
    pub(super) server: Arc<Server>,
}

impl MemoryClient {
    /// A client without objects.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings for a client.
    pub fn builder() -> EmbeddedBuilder {
        EmbeddedBuilder::new()
    }

    /// Puts an object there just as it is, without a rule, a change or an event, in the place of the one of its key. Versions go on
    /// behind its own.
    #[cfg(feature = "testing")]
    pub(crate) fn load(&self, kind: &Kind, object: Value) {
        let version = text_of(&object, "resourceVersion").parse().unwrap_or_default();
        let _turn = self.server.writer.lock();
        let mut state = self.server.state.write();
        state.head = state.head.max(version);
        state.load(kind, object);
    }

    pub(super) fn with(settings: EmbeddedBuilder) -> Self {
        let state = State::new(&settings);
        Self { server: Server::new(settings, Box::new(Nowhere), state) }
    }
}

impl Default for MemoryClient {
    fn default() -> Self {
        Self::new()
    }
}

/// Nothing is stored.
struct Nowhere;

impl Journal for Nowhere {
    fn store(&self, _changes: &[Change]) -> Result<(), BoxError> {
        Ok(())
    }
}
