//! Creates and changes objects, with admission.
//!
//! If a kind has neither a schema nor hooks, one call of the client writes the object. Otherwise, and for a JSON
//! patch, the new state is computed first by the rules of the embedded clients ([`DryRun`]). The state is admitted,
//! and then written with the version that it was computed from. If another writer has changed the object in between,
//! everything starts again. An attempt fails only because another write succeeded.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

use super::body::{self, PatchBody};
use super::dry_run::DryRun;
use super::merge::overlaid;
use super::params::{self, WriteOptions};
use super::route::ObjectsTarget;
use super::shared::{ApiShared, WriteOutcome};
use super::status::StatusError;
use super::watch::now;
use crate::access::UserInfo;
use crate::admission::{AdmissionOperation, AdmissionRequest, Admitted, admit};
use crate::http::IncomingRequest;
use homeostat_objects::json::{key_of, meta_mut};
use homeostat_objects::{Client, ClientError, FieldOwner, Ignore, Patch, PatchTarget, SharedObject};

/// How many attempts may fail although the object has not changed.
const ATTEMPTS: usize = 10;
/// How long a write is repeated while others change the object.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// A write of one object.
pub(super) struct WriteCall<'a> {
    api: &'a ApiShared,
    client: Arc<dyn Client>,
    target: ObjectsTarget<'a>,
    options: WriteOptions,
    user: &'a UserInfo,
    warnings: Vec<String>,
    /// Whether the last attempt failed because another writer has changed the object.
    lost_race: bool,
}

impl<'a> WriteCall<'a> {
    pub(super) fn new(
        api: &'a ApiShared,
        target: ObjectsTarget<'a>,
        request: &'a IncomingRequest,
    ) -> Result<Self, StatusError> {
        let options = params::write_options(request, target.kind())?;
        let client = api.client_of(target.resource);
        Ok(Self { api, client, target, options, user: &request.user, warnings: Vec::new(), lost_race: false })
    }

    pub(super) fn create(mut self, request: &IncomingRequest) -> Result<WriteOutcome, StatusError> {
        let mut object = body::placed(&self.target, body::json(request)?)?;
        if let Some(fields) = object.as_object_mut() {
            // A new object has no status.
            fields.remove("status");
        }
        let object = self.admitted(None, object)?;
        let kind = self.target.kind();
        let created = if self.options.dry_run {
            let key = key_of(&object);
            let current = if key.name().is_empty() { None } else { self.client.get(kind, &key).ignore_not_found()? };
            self.dry_run(current.as_ref()).create(object)?
        } else {
            self.client.create(kind, object)?
        };
        Ok(self.written(StatusCode::CREATED, created))
    }

    pub(super) fn update(mut self, request: &IncomingRequest) -> Result<WriteOutcome, StatusError> {
        let object = body::placed(&self.target, body::json(request)?)?;
        let object = if self.is_admitted() {
            let current = self.client.get(self.target.kind(), &self.target.key())?;
            // The rules refuse a different version, and keep the fields that the request cannot set.
            let next = self.dry_run(Some(&current)).update(object, self.part())?;
            let next = self.admitted(Some(&current), next.to_value())?;
            if self.options.dry_run {
                let computed = self.dry_run(Some(&current)).update(next, self.part())?;
                return Ok(self.written(StatusCode::OK, computed));
            }
            next
        } else {
            object
        };
        let updated = self.put(object)?;
        Ok(self.written(StatusCode::OK, updated))
    }

    pub(super) fn patch(mut self, request: &IncomingRequest) -> Result<WriteOutcome, StatusError> {
        match body::patch(request)? {
            PatchBody::Patch(patch) => {
                let patched = self.patched(&patch)?;
                Ok(self.written(StatusCode::OK, patched))
            }
            PatchBody::Apply(applied) => {
                let mut owner = params::field_owner(request)?;
                owner.target = self.part();
                let applied = body::placed(&self.target, applied)?;
                if !applied["metadata"]["managedFields"].is_null() {
                    return Err(StatusError::bad_request("metadata.managedFields must be nil in an applied object"));
                }
                self.applied(request, &applied, &owner)
            }
        }
    }

    fn patched(&mut self, patch: &Patch) -> Result<SharedObject, StatusError> {
        let (client, target) = (Arc::clone(&self.client), self.target);
        let (kind, key) = (target.kind(), target.key());
        // A JSON patch may have many steps. They are computed here, so that other writers need not wait for them.
        if !self.is_admitted() && !matches!(patch, Patch::Json(_)) {
            return Ok(client.patch(kind, &key, patch, self.part())?);
        }
        self.repeated(|call, current| {
            let current = current.ok_or_else(|| StatusError::not_found(kind, key.name()))?;
            let next = call.dry_run(Some(&current)).patch(patch, call.part())?;
            let next = call.admitted(Some(&current), next.to_value())?;
            if call.options.dry_run {
                return Ok(call.dry_run(Some(&current)).update(next, call.part())?);
            }
            let patched = call.put(next);
            call.stored(patched)
        })
    }

    fn applied(
        mut self,
        request: &IncomingRequest,
        applied: &Value,
        owner: &FieldOwner,
    ) -> Result<WriteOutcome, StatusError> {
        let (client, target) = (Arc::clone(&self.client), self.target);
        let kind = target.kind();
        let mut code = StatusCode::OK;
        let object = self.repeated(|call, current| {
            code = if current.is_none() { StatusCode::CREATED } else { StatusCode::OK };
            let mut applied = applied.clone();
            // Applying a status never creates an object.
            if !target.status
                && let Err(denied) = call.api.check(request, &target, "create")
            {
                let Some(current) = &current else { return Err(denied) };
                // Without the permission to create, the object must still exist when the fields are applied.
                let version = || current.resource_version().into();
                meta_mut(&mut applied).entry("resourceVersion").or_insert_with(version);
            }
            if !call.is_admitted() {
                return Ok(client.apply(kind, applied, owner)?);
            }
            let next = call.dry_run(current.as_ref()).apply(applied.clone(), owner)?;
            if !call.target.resource.admits_writes() {
                return Ok(next);
            }
            let admitted = call.admitted(current.as_ref(), next.to_value())?;
            if call.options.dry_run {
                return Ok(admitted.into());
            }
            let wanted = overlaid(&applied, &next.to_value(), &admitted);
            call.stored(client.apply(kind, wanted, &owner.clone().admitted(admitted)))
        })?;
        Ok(self.written(code, object))
    }

    /// Returns whether the new state must be computed before it is written.
    fn is_admitted(&self) -> bool {
        self.options.dry_run || self.target.resource.admits_writes()
    }

    fn part(&self) -> PatchTarget {
        if self.target.status { PatchTarget::Status } else { PatchTarget::Object }
    }

    fn put(&self, object: Value) -> Result<SharedObject, ClientError> {
        let kind = self.target.kind();
        match self.part() {
            PatchTarget::Object => self.client.update(kind, object),
            PatchTarget::Status => self.client.update_status(kind, object),
        }
    }

    /// Repeats a write while others change the object at the same time. `write` receives the stored object.
    fn repeated(
        &mut self,
        mut write: impl FnMut(&mut Self, Option<SharedObject>) -> Result<SharedObject, StatusError>,
    ) -> Result<SharedObject, StatusError> {
        let (client, clock, target) = (Arc::clone(&self.client), &self.api.clock, self.target);
        let end = clock.nanos().after(LONGEST_RETRY);
        let (mut seen, mut unchanged) = (None, 0);
        loop {
            let current = client.get(target.kind(), &target.key()).ignore_not_found()?;
            let version = current.as_ref().map(|current| current.resource_version().to_owned());
            unchanged += usize::from(seen.as_ref() == Some(&version));
            seen = Some(version);
            self.lost_race = false;
            let result = write(self, current);
            if !self.lost_race || unchanged >= ATTEMPTS || clock.reached(end) {
                return result;
            }
        }
    }

    /// Records whether a write of the computed state lost a race.
    fn stored(&mut self, result: Result<SharedObject, ClientError>) -> Result<SharedObject, StatusError> {
        let result = result.map_err(StatusError::from);
        self.lost_race = result.as_ref().is_err_and(StatusError::is_conflict_of_versions);
        result
    }

    fn dry_run<'b>(&'b self, current: Option<&'b SharedObject>) -> DryRun<'b> {
        let most_size = self.api.most_size;
        DryRun { kind: self.target.kind(), current, most_size, now: now(&self.api.clock) }
    }

    fn admitted(&mut self, old: Option<&SharedObject>, object: Value) -> Result<Value, StatusError> {
        let (resource, kind) = (self.target.resource, self.target.kind());
        let old = old.map(SharedObject::to_value);
        let key = key_of(&object);
        let request = AdmissionRequest {
            operation: if old.is_some() { AdmissionOperation::Update } else { AdmissionOperation::Create },
            kind,
            namespace: key.namespace(),
            name: key.name(),
            status: self.target.status,
            user: self.user,
            old: old.as_ref(),
            dry_run: self.options.dry_run,
        };
        let admitted = admit(resource.compiled_schema(), resource.hooks(), &request, object, self.options.unknown);
        let Admitted { object, warnings } =
            admitted.map_err(|failure| StatusError::of_admission(kind, key.name(), failure))?;
        self.warnings = warnings;
        Ok(object)
    }

    fn written(self, code: StatusCode, object: SharedObject) -> WriteOutcome {
        let warnings = [self.options.warnings, self.warnings].concat();
        WriteOutcome { code, object, warnings }
    }
}
