//! The methods of the [`Client`] trait.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::decode::{self, BadObject, Page};
use super::selection::{in_place, is_unknown_field, objects, selected};
use super::watch;
use super::{ApiReply, JSON, KubernetesClient};
use crate::http::path::RequestPath;
use homeostat::base::CancellationToken;
use homeostat_objects::json::{key_of, meta_mut, meta_string, names_of, string};
use homeostat_objects::store::{DNS_LABEL, ReadableList, delete_each, is_dns_label};
use homeostat_objects::{
    Capabilities, Client, ClientError, DeleteOptions, Deletion, FieldOwner, Kind, ObjectKey, ObjectList, ObjectMeta,
    ObjectRef, ObjectStream, Patch, PatchTarget, Propagation, Query, SharedObject,
};

const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
/// JSON is valid YAML.
const APPLY_PATCH: &str = "application/apply-patch+yaml";

impl Client for KubernetesClient {
    fn get(&self, kind: &Kind, key: &ObjectKey) -> Result<SharedObject, ClientError> {
        let object = ObjectRef::new(kind, key);
        let path = |plural: &str| RequestPath::of_object(kind, plural, key);
        self.request(&object, &Method::GET, ("GET", ""), (None, self.accept(false)), path)?.object()
    }

    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<SharedObject>, ClientError> {
        let (list, unreadable) = self.list_until(kind, query, None)?;
        unreadable.into_iter().next().map_or(Ok(list), Err)
    }

    fn list_readable(&self, kind: &Kind, query: &Query, stop: &CancellationToken) -> Result<ReadableList, ClientError> {
        self.list_until(kind, query, Some(stop))
    }

    fn stream_list(&self, kind: &Kind, query: &Query, stop: &CancellationToken) -> Result<ObjectStream, ClientError> {
        watch::stream_list(self, kind, query, stop)
    }

    fn create(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError> {
        let named = named(kind, &object)?;
        let key = named.key().clone();
        let invalid =
            |field: &str, value: &str, rule: &str| Err(ClientError::invalid(named.clone(), field, value, rule));
        if key.name().is_empty() && meta_string(&object, "generateName").is_empty() {
            return invalid("metadata.name", "", "must be set, unless there is a generateName");
        }
        let version = meta_string(&object, "resourceVersion");
        if !version.is_empty() {
            return invalid("metadata.resourceVersion", version, "must not be set on a new object");
        }
        let path = |plural: &str| {
            in_place(kind, key.namespace())?;
            if !key.name().is_empty() {
                RequestPath::of_object(kind, plural, &key)?;
            }
            Ok(self.write(RequestPath::of_objects(kind, plural, key.namespace())?))
        };
        self.request(&named, &Method::POST, ("POST", ""), (Some((JSON, &object)), self.accept(false)), path)?.object()
    }

    fn update(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError> {
        self.put(kind, &object, PatchTarget::Object)
    }

    fn update_status(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError> {
        self.put(kind, &object, PatchTarget::Status)
    }

    fn patch(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        patch: &Patch,
        target: PatchTarget,
    ) -> Result<SharedObject, ClientError> {
        let object = ObjectRef::new(kind, key);
        let (content_type, body) = match patch {
            Patch::Merge(body) => (MERGE_PATCH, body),
            Patch::Json(body) => (JSON_PATCH, body),
        };
        check_patch(&object, patch)?;
        let place = |plural: &str| Ok(self.write(in_part(RequestPath::of_object(kind, plural, key)?, target)));
        let body = (Some((content_type, body)), self.accept(false));
        self.request(&object, &Method::PATCH, ("PATCH", ""), body, place)?.object()
    }

    fn apply(&self, kind: &Kind, mut object: Value, owner: &FieldOwner) -> Result<SharedObject, ClientError> {
        let mut owner = owner.clone();
        if let Some(state) = owner.admitted.take() {
            // First store the state, then the owner of the applied fields. The second write changes no field.
            let stored = match owner.target {
                PatchTarget::Status => self.update_status(kind, state)?,
                _ if meta_string(&state, "resourceVersion").is_empty() => self.create(kind, state)?,
                PatchTarget::Object => self.update(kind, state)?,
            };
            meta_mut(&mut object).insert("resourceVersion".to_owned(), stored.resource_version().into());
            return self.apply(kind, object, &owner);
        }
        let named = named(kind, &object)?;
        // A server refuses `managedFields` in an applied object, even if they come from the server itself.
        if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.remove("managedFields");
        }
        let path = |plural: &str| {
            in_place(kind, named.key().namespace())?;
            let path = in_part(RequestPath::of_object(kind, plural, named.key())?, owner.target);
            Ok(self.write_as(path, Some(&owner.name)).query("force", if owner.force { "true" } else { "false" }))
        };
        let body = (Some((APPLY_PATCH, &object)), self.accept(false));
        self.request(&named, &Method::PATCH, ("APPLY", ""), body, path)?.object()
    }

    fn delete(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Deletion<SharedObject>, ClientError> {
        let object = ObjectRef::new(kind, key);
        let body = self.delete_options(&object, options)?;
        let path = |plural: &str| RequestPath::of_object(kind, plural, key);
        let reply = self.request(&object, &Method::DELETE, ("DELETE", ""), (Some((JSON, &body)), JSON), path)?;
        deletion(&reply)
    }

    fn delete_collection(
        &self,
        kind: &Kind,
        query: &Query,
        options: &DeleteOptions,
    ) -> Result<Vec<Deletion<SharedObject>>, ClientError> {
        let in_all_namespaces = kind.is_namespaced() && query.namespace.is_none();
        let in_pages = query.limit.is_some() || query.continue_token.is_some();
        let fields = self.server_fields(kind, query);
        if in_all_namespaces || in_pages || !fields.rest.is_empty() {
            return delete_each(self, kind, query, options);
        }
        let object = objects(kind, query);
        let body = self.delete_options(&object, options)?;
        let path = |plural: &str| selected(kind, plural, query, &fields.selector);
        let reply = self.request(&object, &Method::DELETE, ("DELETECOLLECTION", ""), (Some((JSON, &body)), JSON), path);
        let deleted = match reply {
            Err(error) if is_unknown_field(&error) => return delete_each(self, kind, query, options),
            reply => {
                let page = reply?.parse(|body| decode::list(body, kind))?;
                if let Some(error) = unreadable(kind, page.bad).next() {
                    return Err(error);
                }
                page.items
            }
        };
        // The answer shows the objects from before the deletion.
        let left = self.list(kind, query)?.items;
        let state = |object: SharedObject| {
            let left = left.iter().find(|left| left.uid() == object.uid() && left.is_deleting());
            left.map_or(Deletion::Gone, |left| Deletion::Deleting(left.clone()))
        };
        Ok(deleted.into_iter().map(state).collect())
    }

    fn watch(
        &self,
        kind: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError> {
        watch::watch(self, kind, query, from, stop)
    }

    fn store_id(&self) -> usize {
        // No watch shows the writes of a dry run.
        if self.mode.dry_run { std::ptr::from_ref(self).addr() } else { Arc::as_ptr(&self.shared).addr() }
    }

    fn with_timeout(&self, timeout: Duration) -> Option<Arc<dyn Client>> {
        Some(Arc::new(self.sibling(timeout)))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::all().field_selectors(false).local(false).purge(false)
    }
}

impl KubernetesClient {
    /// Lists the readable objects, and returns an error for each other one. Cancelling `stop` fails the call.
    pub(super) fn list_until(
        &self,
        kind: &Kind,
        query: &Query,
        stop: Option<&CancellationToken>,
    ) -> Result<ReadableList, ClientError> {
        let token = query.continue_token.as_deref();
        let call = stop.map(|stop| self.shared.pages.call(token, stop));
        let Page { version, continue_token, mut items, bad } = self.with_fields(kind, query, |fields| {
            let limit = query.limit.filter(|limit| *limit > 0).map(|limit| limit.to_string());
            let object = objects(kind, query);
            let path = |plural: &str| {
                let path = selected(kind, plural, query, &fields.selector)?;
                let path = path.optional_query("limit", limit.as_deref());
                Ok(match (token, &query.not_older_than) {
                    (Some(token), _) => path.query("continue", token),
                    (None, Some(version)) => {
                        path.query("resourceVersion", version).query("resourceVersionMatch", "NotOlderThan")
                    }
                    (None, None) => path,
                })
            };
            let version = token.unwrap_or_default();
            let content = (None, self.accept(true));
            let reply = self.request_until(call.as_ref(), &object, &Method::GET, ("LIST", version), content, path);
            let mut page = reply.map_err(|error| with_token(error, version))?.parse(|body| decode::list(body, kind))?;
            page.items.retain(|item| fields.rest.selects(item));
            Ok(page)
        })?;
        if let (Some(call), Some(token)) = (call, &continue_token) {
            self.shared.pages.keep(token, call);
        }
        // The server sorts objects by their paths, in which a slash follows the namespace.
        if !is_sorted(&items) {
            items.sort_by_cached_key(SharedObject::key);
        }
        let list = ObjectList::new(version, items).continue_token(continue_token);
        Ok((list, unreadable(kind, bad).collect()))
    }

    fn put(&self, kind: &Kind, object: &Value, target: PatchTarget) -> Result<SharedObject, ClientError> {
        let named = named(kind, object)?;
        // For some kinds, the server replaces objects without checking the version.
        if meta_string(object, "resourceVersion").is_empty() {
            return Err(ClientError::invalid(named, "metadata.resourceVersion", "", "must be set"));
        }
        let path = |plural: &str| {
            in_place(kind, named.key().namespace())?;
            Ok(self.write(in_part(RequestPath::of_object(kind, plural, named.key())?, target)))
        };
        self.request(&named, &Method::PUT, ("PUT", ""), (Some((JSON, object)), self.accept(false)), path)?.object()
    }

    /// Returns the body of a deletion request.
    fn delete_options(&self, object: &ObjectRef, options: &DeleteOptions) -> Result<Value, ClientError> {
        let DeleteOptions { uid, resource_version, propagation, purge, grace_period, .. } = options;
        if *purge {
            let rule = "a server of Kubernetes cannot remove an object that has finalizers: remove the finalizers";
            return Err(ClientError::invalid(object.clone(), "", "", rule));
        }
        let propagation = match propagation {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        };
        let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation});
        if let Some(uid) = uid {
            body["preconditions"]["uid"] = json!(uid);
        }
        if let Some(version) = resource_version {
            body["preconditions"]["resourceVersion"] = json!(version);
        }
        if let Some(time) = grace_period {
            // Do not round down to zero, which has a different meaning.
            let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
            body["gracePeriodSeconds"] = json!(i64::try_from(seconds).unwrap_or(i64::MAX));
        }
        if self.mode.dry_run {
            body["dryRun"] = json!(["All"]);
        }
        Ok(body)
    }
}

/// Returns the path of an object, or of the part that a patch changes.
fn in_part(object: RequestPath, target: PatchTarget) -> RequestPath {
    if target == PatchTarget::Status { object.subresource("status") } else { object }
}

/// Returns whether objects are sorted by key. Builds no keys for objects in one namespace.
fn is_sorted(items: &[SharedObject]) -> bool {
    let mut last = ("", "");
    items.iter().all(|item| {
        let (namespace, name) = names_of(item);
        let (last_namespace, last_name) = std::mem::replace(&mut last, (namespace, name));
        if namespace == last_namespace {
            last_name <= name
        } else {
            ObjectKey::new(last_namespace, last_name) <= ObjectKey::new(namespace, name)
        }
    })
}

/// Returns an error for each object that could not be decoded.
fn unreadable(kind: &Kind, bad: Vec<BadObject>) -> impl Iterator<Item = ClientError> {
    bad.into_iter().map(|BadObject { namespace, name, fault }| {
        let object = ObjectRef::new(kind, &ObjectKey::new(&namespace, &name));
        ClientError::invalid(object, "", "", format!("the object in a list cannot be read: {fault}"))
    })
}

/// Checks that an object has this kind. Returns a reference to the object.
fn named(kind: &Kind, object: &Value) -> Result<ObjectRef, ClientError> {
    let named = ObjectRef::new(kind, &key_of(object));
    let (api_version, name) = (string(object, "apiVersion"), string(object, "kind"));
    if !object.is_object() {
        return Err(ClientError::invalid(named, "", "", "must be a JSON object"));
    }
    if api_version != kind.api_version() {
        return Err(ClientError::invalid(named, "apiVersion", api_version, format!("must be {}", kind.api_version())));
    }
    if name != kind.name() {
        return Err(ClientError::invalid(named, "kind", name, format!("must be {}", kind.name())));
    }
    // The server's error would not name the field.
    let meta =
        ObjectMeta::read(&object["metadata"]).map_err(|cause| ClientError::with_causes(named.clone(), vec![cause]))?;
    if kind.is_namespaced() && !meta.namespace.is_empty() && !is_dns_label(&meta.namespace) {
        // The server would not check the namespace.
        return Err(ClientError::invalid(named, "metadata.namespace", meta.namespace, DNS_LABEL));
    }
    Ok(named)
}

/// Names the continue token in the error, if it is to blame.
fn with_token(error: ClientError, token: &str) -> ClientError {
    let is_fault = !token.is_empty() && error.causes().iter().any(|cause| cause.rule.contains("continue"));
    if is_fault {
        ClientError::invalid(error.object().clone(), "continue", token, "must be the continue token of a list")
    } else {
        error
    }
}

/// Refuses patches that a server would accept and ignore.
fn check_patch(object: &ObjectRef, patch: &Patch) -> Result<(), ClientError> {
    let invalid = |field: &str, value: &Value, rule: &str| {
        Err(ClientError::invalid(object.clone(), field, value.to_string(), rule))
    };
    match patch {
        Patch::Json(steps) => {
            let Some(steps) = steps.as_array() else {
                return invalid("", steps, "a JSON patch must be an array of operations");
            };
            // A server since Kubernetes 1.36 answers with success, and changes nothing.
            let replaces = |step: &&Value| step["path"] == "" && step.get("value").is_some_and(|new| !new.is_object());
            steps.iter().find(replaces).map_or(Ok(()), |step| invalid("", step, "an object must remain a JSON object"))
        }
        Patch::Merge(fields) if !fields.is_object() => invalid("", fields, "a merge patch must be a JSON object"),
        Patch::Merge(fields) => match fields.pointer("/metadata/namespace") {
            Some(namespace) if namespace != object.key().namespace() => {
                invalid("metadata.namespace", namespace, "must not change")
            }
            _ => Ok(()),
        },
    }
}

/// Reads the answer to a deletion, which is the object if it still exists, or else a status.
fn deletion(reply: &ApiReply) -> Result<Deletion<SharedObject>, ClientError> {
    let answer = reply.parse(|body| decode::object(body, None))?;
    if string(&answer, "kind") == "Status" || !answer.is_deleting() {
        return Ok(Deletion::Gone);
    }
    Ok(Deletion::Deleting(reply.object()?))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn objects_are_sorted_if_their_keys_are() {
        let names =
            [("", "z"), ("a", "b"), ("a", "b-c"), ("a", "c"), ("a-b", "a"), ("a.b", "a"), ("ab", "a"), ("b", "")];
        let objects = names
            .map(|(namespace, name)| SharedObject::from(json!({"metadata": {"namespace": namespace, "name": name}})));
        for one in &objects {
            for other in &objects {
                let pair = [one.clone(), other.clone()];
                assert_eq!(is_sorted(&pair), one.key() <= other.key(), "{} and {}", one.key(), other.key());
            }
        }
    }
}
