//! Reads of objects, also of those that are not stored in the form of their kind.

use std::sync::Arc;

use super::namespaces::NamespaceFinder;
use super::shared::ApiShared;
use crate::base::cancel::CancellationToken;
use crate::objects::{
    Client, ClientError, EventRecorder, Kind, ObjectKey, ObjectList, ObjectRef, ObjectStream, Query, SharedObject,
};
use crate::serve::kinds::{ObjectSource, ServedResource, core_event, stored_path};

/// Reads the objects of a kind.
pub(super) enum ObjectReader {
    Stored(Arc<dyn Client>, Kind),
    /// Core events, which are stored as events of `events.k8s.io`.
    Events(Arc<dyn Client>, Kind),
    Namespaces(NamespaceFinder),
}

impl ApiShared {
    pub(super) fn reader(&self, resource: &ServedResource) -> ObjectReader {
        let (client, kind) = (Arc::clone(&self.client), resource.kind().clone());
        match resource.source() {
            ObjectSource::Stored => ObjectReader::Stored(client, kind),
            ObjectSource::Events => ObjectReader::Events(client, kind),
            ObjectSource::Namespaces => ObjectReader::Namespaces(self.namespaces.clone()),
        }
    }
}

impl ObjectReader {
    pub(super) fn get(&self, key: &ObjectKey) -> Result<SharedObject, ClientError> {
        match self {
            Self::Stored(client, kind) => client.get(kind, key),
            Self::Events(client, kind) => {
                let event = client.get(&STORED, key).map_err(|error| match error {
                    ClientError::NotFound { .. } => ClientError::not_found(ObjectRef::new(kind, key)),
                    error => error,
                });
                event.map(|event| core_event(&event))
            }
            Self::Namespaces(namespaces) => namespaces.get(key.name()),
        }
    }

    pub(super) fn list(&self, query: &Query) -> Result<ObjectList<SharedObject>, ClientError> {
        match self {
            Self::Stored(client, kind) => client.list(kind, query),
            Self::Events(client, _) => {
                let mut list = client.list(&STORED, &stored_query(query))?;
                for event in &mut list.items {
                    *event = core_event(event);
                }
                Ok(list)
            }
            Self::Namespaces(namespaces) => namespaces.list(query),
        }
    }

    pub(super) fn watch(
        &self,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError> {
        match self {
            Self::Stored(client, kind) => client.watch(kind, query, from, stop),
            Self::Events(client, _) => {
                let events = client.watch(&STORED, &stored_query(query), from, stop)?;
                Ok(ObjectStream::new(events.map(|event| event?.try_map(|event| Ok(core_event(&event))))))
            }
            Self::Namespaces(namespaces) => Ok(namespaces.watch(query, from, stop)),
        }
    }
}

/// The kind of the stored events.
const STORED: Kind = EventRecorder::KIND;

fn stored_query(query: &Query) -> Query {
    Query { fields: query.fields.clone().with_paths(stored_path), ..query.clone() }
}
