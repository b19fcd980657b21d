//! Reads of objects, also of those that are stored in another form.

use std::sync::Arc;

use super::shared::ApiShared;
use crate::base::cancel::CancellationToken;
use crate::objects::{
    Client, ClientError, EventRecorder, Kind, ObjectKey, ObjectList, ObjectRef, ObjectStream, Query, SharedObject,
};
use crate::serve::kinds::{ServedResource, core_event, stored_path};

/// Reads the objects of a kind.
pub(super) struct ObjectReader {
    client: Arc<dyn Client>,
    kind: Kind,
    /// Whether the objects are core events, which are stored as events of `events.k8s.io`.
    is_view: bool,
}

impl ApiShared {
    pub(super) fn reader(&self, resource: &ServedResource) -> ObjectReader {
        let (client, kind) = (Arc::clone(&self.client), resource.kind().clone());
        ObjectReader { client, kind, is_view: resource.is_view() }
    }
}

impl ObjectReader {
    pub(super) fn get(&self, key: &ObjectKey) -> Result<SharedObject, ClientError> {
        if !self.is_view {
            return self.client.get(&self.kind, key);
        }
        let event = self.client.get(&STORED, key).map_err(|error| match error {
            ClientError::NotFound { .. } => ClientError::not_found(ObjectRef::new(&self.kind, key)),
            error => error,
        });
        event.map(|event| core_event(&event))
    }

    pub(super) fn list(&self, query: &Query) -> Result<ObjectList<SharedObject>, ClientError> {
        if !self.is_view {
            return self.client.list(&self.kind, query);
        }
        let mut list = self.client.list(&STORED, &stored_query(query))?;
        for event in &mut list.items {
            *event = core_event(event);
        }
        Ok(list)
    }

    pub(super) fn watch(
        &self,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError> {
        if !self.is_view {
            return self.client.watch(&self.kind, query, from, stop);
        }
        let events = self.client.watch(&STORED, &stored_query(query), from, stop)?;
        Ok(ObjectStream::new(events.map(|event| event?.try_map(|event| Ok(core_event(&event))))))
    }
}

/// The kind of the stored events.
const STORED: Kind = EventRecorder::KIND;

fn stored_query(query: &Query) -> Query {
    Query { fields: query.fields.clone().with_paths(stored_path), ..query.clone() }
}
