//! Events in the form of the core group. The client stores them in the form of `events.k8s.io`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::kinds::{CORE_EVENT, STORED_EVENT, core_event, core_path, stored_event, stored_selector};
use homeostat::base::CancellationToken;
use homeostat_objects::{
    Capabilities, Cause, Client, ClientError, ClientErrorKind, DeleteOptions, Deletion, FieldConflict, FieldOwner,
    Kind, ObjectKey, ObjectList, ObjectRef, ObjectStream, Patch, PatchTarget, Query, SharedObject,
};

/// A client that serves only core events. It does not compute JSON patches, because the server does.
#[derive(Clone)]
pub(super) struct CoreEvents(pub(super) Arc<dyn Client>);

impl Client for CoreEvents {
    fn get(&self, _: &Kind, key: &ObjectKey) -> Result<SharedObject, ClientError> {
        read(self.0.get(&STORED_EVENT, key))
    }

    fn list(&self, _: &Kind, query: &Query) -> Result<ObjectList<SharedObject>, ClientError> {
        let mut list = self.0.list(&STORED_EVENT, &stored_query(query)).map_err(in_core_terms)?;
        for event in &mut list.items {
            *event = in_core_form(event);
        }
        Ok(list)
    }

    fn create(&self, _: &Kind, object: Value) -> Result<SharedObject, ClientError> {
        read(self.0.create(&STORED_EVENT, stored_event(object)))
    }

    fn update(&self, _: &Kind, object: Value) -> Result<SharedObject, ClientError> {
        read(self.0.update(&STORED_EVENT, stored_event(object)))
    }

    fn update_status(&self, _: &Kind, object: Value) -> Result<SharedObject, ClientError> {
        read(self.0.update_status(&STORED_EVENT, stored_event(object)))
    }

    fn patch(
        &self,
        _: &Kind,
        key: &ObjectKey,
        patch: &Patch,
        target: PatchTarget,
    ) -> Result<SharedObject, ClientError> {
        let Patch::Merge(patch) = patch else {
            let object = ObjectRef::new(&CORE_EVENT, key);
            return Err(ClientError::invalid(object, "", "", "must be changed by a merge patch or an update here"));
        };
        read(self.0.patch(&STORED_EVENT, key, &Patch::Merge(stored_event(patch.clone())), target))
    }

    fn apply(&self, _: &Kind, object: Value, owner: &FieldOwner) -> Result<SharedObject, ClientError> {
        read(self.0.apply(&STORED_EVENT, stored_event(object), owner))
    }

    fn delete(
        &self,
        _: &Kind,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Deletion<SharedObject>, ClientError> {
        let deletion = self.0.delete(&STORED_EVENT, key, options).map_err(in_core_terms)?;
        deletion.try_map(|event| Ok(in_core_form(&event)))
    }

    fn watch(
        &self,
        _: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError> {
        let events = self.0.watch(&STORED_EVENT, &stored_query(query), from, stop).map_err(in_core_terms)?;
        let in_core_form = |event: SharedObject| Ok(in_core_form(&event));
        Ok(ObjectStream::new(events.map(move |event| event.map_err(in_core_terms)?.try_map(in_core_form))))
    }

    fn with_timeout(&self, timeout: Duration) -> Option<Arc<dyn Client>> {
        Some(Arc::new(Self(self.0.with_timeout(timeout)?)))
    }

    fn store_id(&self) -> usize {
        self.0.store_id()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
}

fn read(event: Result<SharedObject, ClientError>) -> Result<SharedObject, ClientError> {
    event.map(|event| in_core_form(&event)).map_err(in_core_terms)
}

fn in_core_form(event: &SharedObject) -> SharedObject {
    core_event(event.to_value()).into()
}

fn stored_query(query: &Query) -> Query {
    let mut stored = query.clone();
    stored.fields = stored.fields.with_paths(stored_selector);
    stored
}

/// Translates an error to the kind and the field names that the caller used.
fn in_core_terms(error: ClientError) -> ClientError {
    let object = ObjectRef::new(&CORE_EVENT, error.object().key());
    match error.kind() {
        ClientErrorKind::NotFound => ClientError::not_found(object),
        ClientErrorKind::AlreadyExists => ClientError::already_exists(object),
        ClientErrorKind::Conflict { fields, .. } if fields.is_empty() => ClientError::conflict(object, error.reason()),
        ClientErrorKind::Conflict { fields, .. } => {
            let fields =
                fields.iter().map(|FieldConflict { field, owner, .. }| FieldConflict::new(core_path(field), owner));
            ClientError::field_conflicts(object, fields.collect())
        }
        ClientErrorKind::Invalid { causes, .. } => {
            let causes =
                causes.iter().map(|Cause { field, value, rule, .. }| Cause::new(core_path(field), value, rule));
            ClientError::with_causes(object, causes.collect())
        }
        ClientErrorKind::Forbidden => ClientError::forbidden(object, error.reason()),
        ClientErrorKind::Gone { version, .. } => ClientError::gone(object, version),
        // All other errors concern the store, not the object.
        _ => error,
    }
}
