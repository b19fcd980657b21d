//! Reads of objects, including those that are not stored in the form of their kind.

use std::sync::Arc;

use super::events::CoreEvents;
use super::namespaces::NamespaceFinder;
use super::shared::ApiShared;
use crate::kinds::{ObjectSource, ServedResource};
use homeostat::base::CancellationToken;
use homeostat_objects::{Client, ClientError, Kind, ObjectKey, ObjectList, ObjectStream, Query, SharedObject};

/// Reads the objects of a kind.
pub(super) enum ObjectReader {
    Stored(Arc<dyn Client>, Kind),
    Namespaces(NamespaceFinder),
}

impl ApiShared {
    /// Returns a client for the objects of a kind, in the form of this kind.
    pub(super) fn client_of(&self, resource: &ServedResource) -> Arc<dyn Client> {
        let client = Arc::clone(&self.client);
        if resource.source() == ObjectSource::Events { Arc::new(CoreEvents(client)) } else { client }
    }

    pub(super) fn reader(&self, resource: &ServedResource) -> ObjectReader {
        match resource.source() {
            ObjectSource::Namespaces => ObjectReader::Namespaces(self.namespaces.clone()),
            _ => ObjectReader::Stored(self.client_of(resource), resource.kind().clone()),
        }
    }
}

impl ObjectReader {
    pub(super) fn get(&self, key: &ObjectKey) -> Result<SharedObject, ClientError> {
        match self {
            Self::Stored(client, kind) => client.get(kind, key),
            Self::Namespaces(namespaces) => namespaces.get(key.name()),
        }
    }

    pub(super) fn list(&self, query: &Query) -> Result<ObjectList<SharedObject>, ClientError> {
        match self {
            Self::Stored(client, kind) => client.list(kind, query),
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
            Self::Namespaces(namespaces) => Ok(namespaces.watch(query, from, stop)),
        }
    }
}
