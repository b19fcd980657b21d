//! Deletes objects.

use serde_json::{Value, json};

use super::body;
use super::params;
use super::route::ObjectsTarget;
use super::shared::ApiShared;
use super::status::{StatusError, success};
use crate::objects::{
    ClientError, DeleteOptions, Deletion, Ignore, ObjectKey, ObjectList, ObjectRef, Propagation, SharedObject,
};
use crate::serve::admission::{AdmissionOperation, AdmissionRequest, admit_deletion};
use crate::serve::http::IncomingRequest;

/// A deletion, with its options from the body or the query. A grace period has no effect: objects have no processes to wait for.
pub(super) struct DeleteCall<'a> {
    api: &'a ApiShared,
    target: ObjectsTarget<'a>,
    request: &'a IncomingRequest,
    /// Except for the propagation.
    options: DeleteOptions,
    /// The choice of the caller.
    propagation: Option<Propagation>,
    dry_run: bool,
}

impl<'a> DeleteCall<'a> {
    pub(super) fn new(
        api: &'a ApiShared,
        target: ObjectsTarget<'a>,
        request: &'a IncomingRequest,
    ) -> Result<Self, StatusError> {
        let is_empty = request.body.iter().all(u8::is_ascii_whitespace);
        let given = if is_empty { json!({}) } else { body::json(request)? };
        if !given.is_object() {
            return Err(StatusError::bad_request("the options of the deletion must be a JSON object"));
        }
        let policy = given["propagationPolicy"].as_str().or(request.parameter("propagationPolicy"));
        let in_query = params::flag(request, "orphanDependents")?;
        let in_query = request.parameter("orphanDependents").map(|_| in_query);
        let orphans = given["orphanDependents"].as_bool().or(in_query);
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
        let text = |field: &str| given["preconditions"][field].as_str().map(str::to_owned);
        (options.uid, options.resource_version) = (text("uid"), text("resourceVersion"));
        let in_query = request.query.iter().filter(|(name, _)| name == "dryRun").map(|(_, value)| value.as_str());
        let in_body = given["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let dry_run = params::dry_run(in_query.chain(in_body))?;
        Ok(Self { api, target, request, options, propagation, dry_run })
    }

    /// Deletes one object. Returns a `Status`, or the object if finalizers hold it.
    pub(super) fn delete(&self) -> Result<Value, StatusError> {
        let (client, kind, key) = (&self.api.client, self.target.kind(), self.target.key());
        let current = client.get(kind, &key)?;
        self.admit(&current)?;
        if self.dry_run {
            self.check(&current)?;
            return Ok(success(kind, key.name(), current.uid()));
        }
        let mut options = self.options_for(&current);
        if !self.target.resource.hooks().delete.is_empty() && options.uid.is_none() {
            // Another object of the name has not been admitted.
            options.uid = Some(current.uid().to_owned());
        }
        Ok(match client.delete(kind, &key, &options)? {
            Deletion::Deleting(object) => object.to_value(),
            Deletion::Gone => success(kind, key.name(), current.uid()),
        })
    }

    /// Deletes many objects. Returns them as they were before.
    pub(super) fn delete_collection(&self) -> Result<ObjectList<SharedObject>, StatusError> {
        let (client, kind) = (&self.api.client, self.target.kind());
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
            // Another object of the name was neither selected nor admitted.
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

    /// Returns the options for an object. If the caller has chosen no propagation, the finalizers of the object choose it, as in
    /// Kubernetes.
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

    /// Checks the preconditions of a rehearsed deletion.
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
