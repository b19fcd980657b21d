//! Events in the form of the core group. The client stores them in the form of `events.k8s.io`.

use std::sync::Arc;

use crate::kinds::{CORE_EVENT, STORED_EVENT, core_event, core_path, stored_event, stored_selector};
use homeostat_objects::{
    Cause, Client, ClientAnswer, ClientCall, ClientError, ClientErrorKind, ClientLayer, Deletion, FieldConflict, Kind,
    ObjectRef, Patch, SharedObject,
};

/// A client that serves only core events. It does not compute JSON patches, because the server does.
#[derive(Clone)]
pub(super) struct CoreEvents(pub(super) Arc<dyn Client>);

impl ClientLayer for CoreEvents {
    fn inner(&self) -> &dyn Client {
        &*self.0
    }

    fn around(&self, inner: Arc<dyn Client>) -> Option<Arc<dyn Client>> {
        Some(Arc::new(Self(inner)))
    }

    fn call(&self, _: &Kind, mut call: ClientCall<'_>) -> Result<ClientAnswer, ClientError> {
        if let ClientCall::Patch(key, patch, _) = &call
            && matches!(**patch, Patch::Json(_))
        {
            let object = ObjectRef::new(&CORE_EVENT, key);
            return Err(ClientError::invalid(object, "", "", "must be changed by a merge patch or an update here"));
        }
        if let Some(sent) = call.sent_mut() {
            *sent = stored_event(sent.take());
        }
        if let Some(query) = call.query_mut() {
            query.fields = std::mem::take(&mut query.fields).with_paths(stored_selector);
        }
        call.send(self.inner(), &STORED_EVENT).map(answer_in_core_terms).map_err(in_core_terms)
    }
}

fn answer_in_core_terms(answer: ClientAnswer) -> ClientAnswer {
    let deletion = |deletion: Deletion<SharedObject>| match deletion {
        Deletion::Deleting(event) => Deletion::Deleting(in_core_form(&event)),
        Deletion::Gone => Deletion::Gone,
    };
    match answer {
        ClientAnswer::Object(event) => ClientAnswer::Object(in_core_form(&event)),
        ClientAnswer::List((mut list, unreadable)) => {
            for event in &mut list.items {
                *event = in_core_form(event);
            }
            ClientAnswer::List((list, unreadable.into_iter().map(in_core_terms).collect()))
        }
        ClientAnswer::Deletion(outcome) => ClientAnswer::Deletion(deletion(outcome)),
        ClientAnswer::Deletions(outcomes) => ClientAnswer::Deletions(outcomes.into_iter().map(deletion).collect()),
        ClientAnswer::Stream(events) => ClientAnswer::Stream(
            events.map_events(|event| event.map_err(in_core_terms)?.try_map(|event| Ok(in_core_form(&event)))),
        ),
    }
}

fn in_core_form(event: &SharedObject) -> SharedObject {
    core_event(event.to_value()).into()
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
