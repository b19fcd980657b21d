//! Deletes objects.

use std::sync::Arc;

use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::body;
use super::params;
use super::route::ObjectsTarget;
use super::shared::ApiShared;
use super::status::{StatusError, success};
use crate::admission::{AdmissionOperation, AdmissionRequest, admit_deletion};
use crate::http::IncomingRequest;
use homeostat_objects::{
    Client, ClientError, DeleteOptions, Deletion, Ignore, ObjectKey, ObjectList, ObjectRef, Propagation, SharedObject,
};

/// A deletion with its options, from the body or the query. A grace period has no effect, because objects have no
/// processes to wait for.
pub(super) struct DeleteCall<'a> {
    client: Arc<dyn Client>,
    target: ObjectsTarget<'a>,
    request: &'a IncomingRequest,
    /// All options except the propagation.
    options: DeleteOptions,
    /// The propagation that the caller has chosen, if any.
    propagation: Option<Propagation>,
    dry_run: bool,
}

/// Deletion options from a body in JSON or protocol buffers.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GivenOptions {
    /// Checked, but without effect.
    #[serde(rename = "gracePeriodSeconds")]
    _grace_period_seconds: Option<i64>,
    preconditions: Option<GivenPreconditions>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    dry_run: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GivenPreconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl GivenOptions {
    fn read(request: &IncomingRequest) -> Result<Self, StatusError> {
        if request.body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        let given = body::json(request)?;
        if !given.is_object() {
            return Err(StatusError::bad_request("the options of the deletion must be a JSON object"));
        }
        serde_json::from_value(given)
            .map_err(|error| StatusError::bad_request(format!("the options of the deletion cannot be read: {error}")))
    }
}

impl<'a> DeleteCall<'a> {
    pub(super) fn new(
        api: &'a ApiShared,
        target: ObjectsTarget<'a>,
        request: &'a IncomingRequest,
    ) -> Result<Self, StatusError> {
        let given = GivenOptions::read(request)?;
        let policy = given.propagation_policy.as_deref().or(request.parameter("propagationPolicy"));
        let in_query = params::flag(request, "orphanDependents")?;
        let in_query = request.parameter("orphanDependents").map(|_| in_query);
        let orphans = given.orphan_dependents.or(in_query);
        params::whole_number(request, "gracePeriodSeconds")?;
        if let (Some(policy), Some(_)) = (policy.filter(|policy| !policy.is_empty()), orphans) {
            let message = format!("propagationPolicy {policy:?} and orphanDependents cannot both be set");
            return Err(StatusError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message));
        }
        let propagation = match policy.unwrap_or_default() {
            "" => orphans.map(|orphans| if orphans { Propagation::Orphan } else { Propagation::Background }),
            "Background" => Some(Propagation::Background),
            "Foreground" => Some(Propagation::Foreground),
            "Orphan" => Some(Propagation::Orphan),
            other => {
                let message = format!("propagationPolicy is {other:?}, not Background, Foreground or Orphan");
                return Err(StatusError::bad_request(message));
            }
        };
        let mut options = DeleteOptions::default();
        let preconditions = given.preconditions.unwrap_or_default();
        (options.uid, options.resource_version) = (preconditions.uid, preconditions.resource_version);
        let dry_run = params::dry_run(request, &given.dry_run.unwrap_or_default())?;
        let client = api.client_of(target.resource);
        Ok(Self { client, target, request, options, propagation, dry_run })
    }

    /// Deletes one object. Returns a `Status`, or the object if finalizers delay its removal.
    pub(super) fn delete(&self) -> Result<Value, StatusError> {
        let (client, kind, key) = (&self.client, self.target.kind(), self.target.key());
        let current = client.get(kind, &key)?;
        self.admit(&current)?;
        if self.dry_run {
            self.check(&current)?;
            return Ok(success(kind, key.name(), current.uid()));
        }
        let mut options = self.options_for(&current);
        if !self.target.resource.hooks().delete.is_empty() && options.uid.is_none() {
            // If another object now has this name, it has not been admitted.
            options.uid = Some(current.uid().to_owned());
        }
        Ok(match client.delete(kind, &key, &options)? {
            Deletion::Deleting(object) => object.to_value(),
            Deletion::Gone => success(kind, key.name(), current.uid()),
        })
    }

    /// Deletes several objects. Returns their states before the deletion.
    pub(super) fn delete_collection(&self) -> Result<ObjectList<SharedObject>, StatusError> {
        let (client, kind) = (&self.client, self.target.kind());
        let mut list = client.list(kind, &params::query(self.request, &self.target)?)?;
        for object in &list.items {
            self.admit(object)?;
        }
        if self.dry_run {
            return Ok(list);
        }
        let mut deleted = Vec::with_capacity(list.items.len());
        let is_open = self.options.uid.is_none() && self.options.resource_version.is_none();
        for object in list.items {
            let mut options = self.options_for(&object);
            // If another object now has this name, it was neither selected nor admitted.
            options.uid.get_or_insert_with(|| object.uid().to_owned());
            match client.delete(kind, &object.key(), &options).ignore_not_found() {
                Ok(None) => {}
                Ok(Some(_)) => deleted.push(object),
                Err(error) if is_open && error.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
        list.items = deleted;
        Ok(list)
    }

    /// Returns the options for one object. If the caller has not chosen a propagation, the object's finalizers
    /// determine it, as in Kubernetes.
    fn options_for(&self, object: &SharedObject) -> DeleteOptions {
        let chosen = object.finalizers().find_map(|finalizer| match finalizer {
            "orphan" => Some(Propagation::Orphan),
            "foregroundDeletion" => Some(Propagation::Foreground),
            _ => None,
        });
        self.options.clone().propagation(self.propagation.or(chosen).unwrap_or(Propagation::Background))
    }

    fn admit(&self, object: &SharedObject) -> Result<(), StatusError> {
        let (resource, key) = (self.target.resource, object.key());
        if resource.hooks().delete.is_empty() {
            return Ok(());
        }
        let object = object.to_value();
        let request = AdmissionRequest {
            operation: AdmissionOperation::Delete,
            kind: resource.kind(),
            namespace: key.namespace(),
            name: key.name(),
            status: false,
            user: &self.request.user,
            old: Some(&object),
            dry_run: self.dry_run,
        };
        admit_deletion(resource.hooks(), &request, &object)
            .map_err(|failure| StatusError::of_admission(resource.kind(), key.name(), failure))
    }

    /// Checks the preconditions of a dry-run deletion.
    fn check(&self, current: &SharedObject) -> Result<(), ClientError> {
        let DeleteOptions { uid, resource_version, .. } = &self.options;
        let pairs = [("uid", uid, current.uid()), ("resourceVersion", resource_version, current.resource_version())];
        for (field, asked, is) in pairs {
            if let Some(asked) = asked.as_deref().filter(|asked| *asked != is) {
                let object = ObjectRef::new(self.target.kind(), &ObjectKey::new(current.namespace(), current.name()));
                return Err(ClientError::conflict(object, format!("its {field} is {is}, not {asked}")));
            }
        }
        Ok(())
    }
}
