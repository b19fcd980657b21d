//! Builds an [`ObjectApi`].

use std::fmt;
use std::sync::Arc;

use super::ObjectApi;
use super::deadlines::WatchDeadlines;
use super::namespaces::NamespaceFinder;
use super::shared::ApiShared;
use super::store::StoreHealth;
use crate::kinds::{KindRegistry, ServedResource};
use crate::sync::Mutex;
use homeostat::base::Clock;
use homeostat_objects::{Client, DefinitionError};

/// The default size limit for admitted objects. Embedded clients have the same.
const MOST_SIZE: usize = 1_536 * 1_024;

/// Builds an [`ObjectApi`].
#[must_use = "settings do nothing until `build` is called"]
pub struct ObjectApiBuilder {
    client: Arc<dyn Client>,
    resources: Vec<ServedResource>,
    clock: Clock,
    most_size: usize,
}

impl ObjectApiBuilder {
    pub(super) fn new(client: Arc<dyn Client>) -> Self {
        Self { client, resources: Vec::new(), clock: Clock::system(), most_size: MOST_SIZE }
    }

    /// Serves a kind: a [`ServedResource`], or a [`KindDefinition`](homeostat_objects::KindDefinition) or
    /// [`Kind`](homeostat_objects::Kind) without hooks. A version that is [not
    /// served](homeostat_objects::KindDefinition::not_served) is left out.
    ///
    /// A bare `Kind` has a status, but no short name and no columns except the name and the age. For `kubectl get cm`,
    /// pass a definition:
    ///
    /// ```
    /// use homeostat_objects::{Kind, KindDefinition, MemoryClient};
    /// use homeostat_serve::ObjectApi;
    /// use std::sync::Arc;
    ///
    /// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
    /// let maps = KindDefinition::new(CONFIG_MAP).short_name("cm").with_status(false);
    /// let api = ObjectApi::builder(Arc::new(MemoryClient::new())).serve(maps).build()?;
    /// # let _ = api;
    /// # Ok::<_, homeostat_objects::DefinitionError>(())
    /// ```
    pub fn serve(mut self, resource: impl Into<ServedResource>) -> Self {
        self.resources.push(resource.into());
        self
    }

    /// Serves the events of [`EventRecorder`](homeostat_objects::EventRecorder)s and other programs in both API groups.
    /// `kubectl describe` then shows an object's events, and `kubectl get events` lists all events.
    ///
    /// A controller records no event by itself: give it an `EventRecorder` with the same client.
    ///
    /// The client stores events in the group `events.k8s.io`, as [`ServedResource::events`] does. Clients can read and
    /// write the same events in the core group, as in Kubernetes. Do not also serve [`ServedResource::events`] or
    /// [`ServedResource::core_events`].
    pub fn serve_events(self) -> Self {
        self.serve(ServedResource::events()).serve(ServedResource::core_event_view())
    }

    /// Sets the clock for ages in tables and for watch timeouts. Default: the system clock.
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Sets the largest size of an admitted object in bytes of JSON. Default: 1.5 MiB.
    ///
    /// This limit applies to kinds with a schema or hooks, and to dry runs. The client has its own limit for all
    /// objects.
    pub fn max_object_bytes(self, bytes: usize) -> Self {
        Self { most_size: bytes, ..self }
    }

    /// Builds the API.
    ///
    /// # Errors
    ///
    /// Returns an error if a kind is registered twice, or has an invalid name, column or schema. The error names the
    /// kind.
    ///
    /// A keyword of a schema that would not be checked is an error that names it. This applies to CEL rules, `if`,
    /// `dependentSchemas`, `unevaluatedItems` and all unknown keywords. Write a [hook](ServedResource::validate)
    /// instead. An unknown `format`, and extensions that begin with `x-` but not with `x-kubernetes-`, have no effect.
    pub fn build(self) -> Result<ObjectApi, DefinitionError> {
        let Self { client, resources, clock, most_size } = self;
        let kinds = Arc::new(KindRegistry::new(resources)?.with_namespaces()?);
        let deadlines = Arc::new(WatchDeadlines::new(clock.clone()));
        let namespaces = NamespaceFinder::new(&client, &kinds, &deadlines);
        let shared = ApiShared {
            client,
            kinds,
            namespaces,
            documents: Arc::default(),
            store: Arc::new(StoreHealth::new(clock.clone())),
            clock,
            deadlines,
            most_size,
            authorizer: None,
        };
        Ok(ObjectApi { shared: Arc::new(Mutex::new(shared)), authorizer: None })
    }
}

impl fmt::Debug for ObjectApiBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.resources.iter().map(ServedResource::kind).collect();
        f.debug_struct("ObjectApiBuilder").field("kinds", &kinds).finish_non_exhaustive()
    }
}
