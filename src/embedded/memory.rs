//! Objects in memory.

use std::sync::Arc;

use super::state::{Change, State};
use super::{Journal, Server, Settings};
use crate::clock::Clock;
use crate::reconcile::error::BoxError;

/// A [`Client`](crate::objects::Client) that keeps its objects in memory, and behaves as an API server does. A cheap handle; clones
/// have the same objects.
///
/// Reads copy no object. Writes take their turn. Belonging is looked after in the very call that changes it: when a deletion returns,
/// what it takes along has gone too.
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
/// assert_eq!(created["metadata"]["resourceVersion"], "1");
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
    pub fn builder() -> MemoryClientBuilder {
        MemoryClientBuilder { settings: Settings::default() }
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

/// Settings for a [`MemoryClient`].
///
/// # Examples
///
/// ```
/// use homeostat::{ManualClock, objects::MemoryClient};
///
/// let clock = ManualClock::new();
/// let client = MemoryClient::builder().clock(clock.clock()).history(100).seed(1).build();
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until they are used"]
pub struct MemoryClientBuilder {
    settings: Settings,
}

impl MemoryClientBuilder {
    /// The clock of creation and deletion timestamps. Default: the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.settings.clock = clock;
        self
    }

    /// How many of the last changes are remembered, for watches that go on from an older version. Each keeps what the object was
    /// before it. Default 10,000.
    pub fn history(mut self, changes: usize) -> Self {
        self.settings.history = changes;
        self
    }

    /// Whether objects are deleted with their last owner. Default: they are. Without, owners are neither looked for nor waited for:
    /// like an API server beside which no garbage collector runs.
    pub fn cascade(mut self, cascades: bool) -> Self {
        self.settings.cascades = cascades;
        self
    }

    /// Makes uids and generated names the same in each run of the program. Default: they are random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = Some(seed);
        self
    }

    /// The client.
    #[must_use]
    pub fn build(self) -> MemoryClient {
        let state = State::new(self.settings.history);
        MemoryClient { server: Server::new(self.settings, Box::new(Nowhere), state) }
    }
}
