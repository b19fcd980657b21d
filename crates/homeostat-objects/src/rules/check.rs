//! Checks the rules for objects before they are written.

use std::collections::HashSet;

use serde_json::Value;

use super::change::{FOREGROUND, Location, ORPHAN};
use super::stored::StoredObjects;
use super::txn::Transaction;
use crate::json::{finalizers_of, key_of, meta_mut, owners_of, string};
use crate::meta::is_empty;
use crate::validate::{
    DNS_LABEL, LABEL_VALUE, QUALIFIED, SUBDOMAIN, is_dns_label, is_label_value, is_qualified, is_subdomain,
};
use crate::{Cause, ClientError, Kind, LabelSelector, ObjectKey, ObjectMeta, ObjectRef, SharedObject};

/// The fields of the metadata. Other fields are dropped.
const KNOWN: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "managedFields",
    "selfLink",
];

/// The most bytes in the keys and values of an object's annotations together.
const MOST_ANNOTATIONS: usize = 256 * 1024;

/// Reports the rules that an object breaks.
struct Check(ObjectRef);

impl Check {
    fn fail<T>(
        &self,
        field: impl Into<String>,
        value: impl Into<String>,
        rule: impl Into<String>,
    ) -> Result<T, ClientError> {
        Err(ClientError::invalid(self.0.clone(), field, value, rule))
    }

    fn that(&self, holds: bool, field: impl Into<String>, value: &str, rule: &str) -> Result<(), ClientError> {
        if holds { Ok(()) } else { self.fail(field, value, rule) }
    }
}

/// Checks the rules that need no other object, and removes empty fields of the metadata. Returns the key. Its name is
/// empty only if the object has a `generateName`.
pub(super) fn check(kind: &Kind, object: &mut Value) -> Result<ObjectKey, ClientError> {
    check_as(ObjectRef::new(kind, &key_of(&*object)), object)
}

/// Does the same as [`check`], for the kind of `named`. Errors name `named`.
pub(super) fn check_as(named: ObjectRef, object: &mut Value) -> Result<ObjectKey, ClientError> {
    let kind = named.kind().clone();
    let check = Check(named);
    if !object.is_object() {
        return check.fail("", "", "must be a JSON object");
    }
    for (field, expected) in [("apiVersion", &*kind.api_version()), ("kind", kind.name())] {
        if object[field] != expected {
            return check.fail(field, string(&*object, field), format!("must be {expected}"));
        }
    }
    let Some(fields) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return check.fail("metadata", object["metadata"].to_string(), "must be a JSON object");
    };
    fields.retain(|_, value| !value.is_null());
    let meta = match ObjectMeta::read(&object["metadata"]) {
        Ok(meta) => meta,
        Err(Cause { field: path, value, rule }) => return check.fail(path, value, rule),
    };
    check_meta(&check, &kind, &meta)?;
    meta_mut(object).retain(|name, value| KNOWN.contains(&name.as_str()) && !is_empty(value));
    Ok(meta.key())
}

fn check_meta(check: &Check, kind: &Kind, meta: &ObjectMeta) -> Result<(), ClientError> {
    let name = &meta.name;
    let generated = format!("{}x", meta.generate_name);
    match (name.is_empty(), meta.generate_name.is_empty()) {
        (false, _) => check.that(is_subdomain(name), "metadata.name", name, SUBDOMAIN)?,
        (true, true) => check.fail("metadata.name", "", "must be set, unless there is a generateName")?,
        (true, false) => {
            check.that(is_subdomain(&generated), "metadata.generateName", &meta.generate_name, SUBDOMAIN)?;
        }
    }
    let namespace = &meta.namespace;
    if kind.is_namespaced() {
        check.that(is_dns_label(namespace), "metadata.namespace", namespace, DNS_LABEL)?;
    } else {
        check.that(
            namespace.is_empty(),
            "metadata.namespace",
            namespace,
            "must be empty: the kind is in no namespace",
        )?;
    }
    for (key, value) in &meta.labels {
        check.that(is_qualified(key), "metadata.labels", key, QUALIFIED)?;
        if !is_label_value(value) {
            return check.fail(format!("metadata.labels.{key}"), value, LABEL_VALUE);
        }
    }
    for key in meta.annotations.keys() {
        check.that(is_qualified(&key.to_lowercase()), "metadata.annotations", key, QUALIFIED)?;
    }
    let size: usize = meta.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > MOST_ANNOTATIONS {
        return check.fail("metadata.annotations", format!("{size} bytes"), "must be at most 262144 bytes");
    }
    for finalizer in &meta.finalizers {
        check.that(is_qualified(finalizer), "metadata.finalizers", finalizer, QUALIFIED)?;
    }
    if [FOREGROUND, ORPHAN].iter().all(|name| meta.finalizers.iter().any(|finalizer| finalizer == name)) {
        let both = format!("{FOREGROUND}, {ORPHAN}");
        return check.fail(
            "metadata.finalizers",
            both,
            "must not have both: one deletes the dependents, one keeps them",
        );
    }
    for (at, owner) in meta.owner_references.iter().enumerate() {
        for (field, text) in
            [("apiVersion", &owner.api_version), ("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)]
        {
            check.that(
                !text.is_empty(),
                format!("metadata.ownerReferences[{at}].{field}"),
                text,
                "must not be empty",
            )?;
        }
        check.that(
            owner.api_version.split('/').count() <= 2,
            format!("metadata.ownerReferences[{at}].apiVersion"),
            &owner.api_version,
            "must be a version, or a group and a version separated by one slash",
        )?;
    }
    let mut controllers = meta.owner_references.iter().filter(|owner| owner.is_controller());
    if let (Some(_), Some(second)) = (controllers.next(), controllers.next()) {
        check.fail("metadata.ownerReferences", &second.name, "must be the only one with controller set")?;
    }
    Ok(())
}

/// Checks that the owners have the names in the references, and are in the same namespace or cluster-wide.
pub(super) fn check_owners(
    txn: &Transaction<'_, impl StoredObjects>,
    location: &Location,
    object: &Value,
) -> Result<(), ClientError> {
    for (at, owner) in owners_of(object).enumerate() {
        if txn.owner(location, owner).is_none()
            && let Some(elsewhere) = txn.namesake(location, owner)
        {
            let field = format!("metadata.ownerReferences[{at}]");
            let rule = "must have the name of the object with this uid, and be in the namespace of the dependent or cluster-wide";
            return Check(location.object_ref()).fail(field, elsewhere.key.to_string(), rule);
        }
    }
    Ok(())
}

/// Checks that a writer does not begin a deletion by setting its fields.
pub(super) fn check_deletion(location: &Location, new: &Value) -> Result<(), ClientError> {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        match &new["metadata"][field] {
            Value::Null => {}
            value => {
                let (field, rule) = (format!("metadata.{field}"), "must not be set: delete the object instead");
                return Check(location.object_ref()).fail(
                    field,
                    value.as_str().map_or_else(|| value.to_string(), str::to_owned),
                    rule,
                );
            }
        }
    }
    Ok(())
}

/// Checks that no finalizer is added to an object that is being deleted.
pub(super) fn check_finalizers(location: &Location, old: &SharedObject, new: &Value) -> Result<(), ClientError> {
    let known: HashSet<_> = old.finalizers().collect();
    match finalizers_of(new).find(|name| !known.contains(name)) {
        Some(name) => Check(location.object_ref()).fail(
            "metadata.finalizers",
            name,
            "must not be added: the object is being deleted",
        ),
        None => Ok(()),
    }
}

/// Checks that a patch has not changed the name or namespace.
pub(super) fn check_identity(location: &Location, object: &Value) -> Result<(), ClientError> {
    let key = key_of(object);
    let check = Check(location.object_ref());
    check.that(key.name() == location.key.name(), "metadata.name", key.name(), "must not be changed")?;
    check.that(
        key.namespace() == location.key.namespace(),
        "metadata.namespace",
        key.namespace(),
        "must not be changed",
    )
}

/// Refuses a label selector that breaks the rules for labels.
///
/// # Errors
///
/// Returns [`Invalid`](crate::ClientErrorKind::Invalid).
pub fn check_selector(kind: &Kind, selector: &LabelSelector) -> Result<(), ClientError> {
    let Err(error) = selector.validate() else { return Ok(()) };
    Check(ObjectRef::new(kind, &ObjectKey::cluster(""))).fail("labelSelector", error.text(), error.rule())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    /// The time is linear in the number of finalizers. If it were quadratic, this test would take many minutes.
    #[test]
    fn very_many_finalizers_are_compared() {
        let location = Location { kind: Arc::new(Kind::of("v1", "X")), key: ObjectKey::new("default", "a") };
        let with = |most: usize| {
            let names: Vec<_> = (0..most).map(|number| format!("example.com/{number}")).collect();
            json!({"metadata": {"finalizers": names}})
        };
        let old = SharedObject::from(with(200_000));
        assert!(check_finalizers(&location, &old, &with(199_999)).is_ok());
        assert!(check_finalizers(&location, &old, &with(200_001)).is_err());
    }
}
