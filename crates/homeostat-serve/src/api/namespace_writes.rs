//! Writes of virtual namespaces. Each write is checked and answered, but nothing is stored.

use http::StatusCode;
use serde_json::Value;

use super::body::{self, PatchBody};
use super::dry_run::DryRun;
use super::namespaces::namespace;
use super::params;
use super::route::ObjectsTarget;
use super::shared::{ApiShared, WriteOutcome};
use super::status::StatusError;
use super::watch::now;
use crate::http::IncomingRequest;
use homeostat_objects::json::{key_of, meta_mut};
use homeostat_objects::store::{DNS_LABEL, is_dns_label};
use homeostat_objects::{ClientError, Ignore, ObjectKey, ObjectRef, PatchTarget, SharedObject};

const VIRTUAL: &str = "namespaces are virtual here: a namespace is listed as long as an object is in it, and its labels, annotations and \
    finalizers are not stored";

/// Labels and annotations that may be lost without a warning.
const EXPECTED: [&str; 2] = ["kubernetes.io/metadata.name", "kubectl.kubernetes.io/last-applied-configuration"];

impl ApiShared {
    /// Answers a write as if the namespace were stored. Warns that it is not.
    pub(super) fn write_namespace(
        &self,
        request: &IncomingRequest,
        target: &ObjectsTarget<'_>,
        verb: &str,
    ) -> Result<WriteOutcome, StatusError> {
        let mut warnings = params::write_options(request, target.kind())?.warnings;
        let find = |name: &str| self.namespaces.get(name).ignore_not_found();
        let kind = target.kind();
        let dry_run = |current| DryRun { kind, current, most_size: self.most_size, now: now(&self.clock) };
        let object = || body::placed(target, body::json(request)?);
        let (current, next) = match verb {
            "create" => {
                let object = object()?;
                let current = find(key_of(&object).name())?;
                let created = dry_run(current.as_ref()).create(object)?;
                (None, created)
            }
            "update" => {
                let (mut object, current) = (object()?, self.namespaces.get(target.name)?);
                // A namespace's version changes with each write of any object, so the sent version does not matter.
                meta_mut(&mut object).insert("resourceVersion".to_owned(), current.resource_version().into());
                let updated = dry_run(Some(&current)).update(object, PatchTarget::Object)?;
                (Some(current), updated)
            }
            _ => match body::patch(request)? {
                PatchBody::Patch(patch) => {
                    let current = self.namespaces.get(target.name)?;
                    let patched = dry_run(Some(&current)).patch(&patch, PatchTarget::Object)?;
                    (Some(current), patched)
                }
                PatchBody::Apply(applied) => {
                    let (owner, current) = (params::field_owner(request)?, find(target.name)?);
                    if current.is_none() {
                        self.check(request, target, "create")?;
                    }
                    let applied = body::placed(target, applied)?;
                    let applied = dry_run(current.as_ref()).apply(applied, &owner)?;
                    (current, applied)
                }
            },
        };
        if !is_dns_label(next.name()) {
            let object = ObjectRef::new(kind, &ObjectKey::cluster(next.name()));
            return Err(ClientError::invalid(object, "metadata.name", next.name(), DNS_LABEL).into());
        }
        if current.is_none() || loses_fields(&next) {
            warnings.push(VIRTUAL.to_owned());
        }
        let code = if current.is_none() { StatusCode::CREATED } else { StatusCode::OK };
        let version = current.as_ref().map(SharedObject::resource_version).unwrap_or_default();
        Ok(WriteOutcome { code, object: namespace(next.name(), version), warnings })
    }

    /// Returns the error for the deletion of a namespace.
    pub(super) fn refuse_namespace_deletion(&self, name: &str) -> Result<StatusError, StatusError> {
        self.namespaces.get(name)?;
        Ok(StatusError::method_not_allowed(format!(
            "namespaces are virtual here: the namespace {name:?} ends with the last object in it, so delete its objects, \
             for example by: kubectl delete KIND --all --namespace {name}"
        )))
    }
}

/// Returns whether a namespace has metadata that are not stored.
fn loses_fields(next: &SharedObject) -> bool {
    let next = next.to_value();
    let names = ["labels", "annotations"].into_iter().filter_map(|field| next["metadata"][field].as_object());
    let is_lost = |name: &String| !EXPECTED.contains(&name.as_str());
    names.flat_map(serde_json::Map::keys).any(is_lost)
        || next["metadata"]["finalizers"].as_array().is_some_and(|finalizers: &Vec<Value>| !finalizers.is_empty())
}
