//! The `metadata` of objects, in the JSON of Kubernetes.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::error::Cause;
use super::key::ObjectKey;
use super::kind::Kind;

/// The `metadata` of an object.
///
/// Unknown fields are kept in [`rest`](Self::rest), so reading an object and writing it back loses nothing. A known
/// field that is empty in the JSON (`null`, `{}`) is kept there too, and is written as long as it stays empty.
///
/// [`Client`](super::Client) says which fields a writer may set and which the client sets.
///
/// # Examples
///
/// ```
/// use homeostat_objects::ObjectMeta;
///
/// let meta = ObjectMeta::new("default", "web").label("app", "web");
/// let json = serde_json::to_value(&meta).unwrap();
/// assert_eq!(json, serde_json::json!({"namespace": "default", "name": "web", "labels": {"app": "web"}}));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[doc(alias = "metadata")]
#[non_exhaustive]
pub struct ObjectMeta {
    /// The name, unique for the kind and namespace.
    pub name: String,
    /// The beginning of the name that the client generates if `name` is empty.
    pub generate_name: String,
    /// The namespace; empty for cluster-wide objects.
    pub namespace: String,
    /// An id that no other object has ever had. Set by the client.
    pub uid: String,
    /// The version, different after each change. It is not a number. Set by the client.
    pub resource_version: String,
    /// How often the object has changed outside `metadata` and `status`, starting at 1. The beginning of a deletion
    /// counts too. Set by the client.
    pub generation: i64,
    /// The time of creation, in whole seconds. Set by the client.
    pub creation_timestamp: Option<Timestamp>,
    /// The time at which the deletion began. Set by the client.
    pub deletion_timestamp: Option<Timestamp>,
    /// Labels, for selection.
    pub labels: BTreeMap<String, String>,
    /// Annotations, for any other information.
    pub annotations: BTreeMap<String, String>,
    /// Names of tasks that must be done before the object is removed.
    pub finalizers: Vec<String>,
    /// The owners of the object. It is deleted when all of them are gone.
    pub owner_references: Vec<OwnerReference>,
    /// All other fields.
    pub rest: Map<String, Value>,
}

/// An entry of `metadata.ownerReferences`: an object that owns this one, in the same namespace or cluster-wide.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct OwnerReference {
    /// The `apiVersion` of the owner.
    pub api_version: String,
    /// The kind of the owner.
    pub kind: String,
    /// The name of the owner.
    pub name: String,
    /// The uid of the owner. Another object with the same name is not the owner.
    pub uid: String,
    /// Whether the owner manages this object. At most one owner does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether a foreground deletion of the owner waits for this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl OwnerReference {
    /// Returns a reference to the owner with this kind, name and uid.
    ///
    /// If you have the owner itself, use [`Object::owner_reference`](super::Object::owner_reference).
    #[must_use]
    pub fn new(kind: &Kind, name: impl Into<String>, uid: impl Into<String>) -> Self {
        Self {
            api_version: kind.api_version().into_owned(),
            kind: kind.name().to_owned(),
            name: name.into(),
            uid: uid.into(),
            controller: None,
            block_owner_deletion: None,
        }
    }

    /// Sets whether the owner manages the object.
    #[must_use]
    pub fn controller(self, controller: bool) -> Self {
        Self { controller: Some(controller), ..self }
    }

    /// Sets whether a foreground deletion of the owner waits for the object.
    #[must_use]
    pub fn block_owner_deletion(self, block: bool) -> Self {
        Self { block_owner_deletion: Some(block), ..self }
    }

    /// Returns whether it refers to an object of this kind.
    #[must_use]
    pub fn is_of(&self, kind: &Kind) -> bool {
        kind.is_named(&self.api_version, &self.kind)
    }

    /// Returns whether the owner manages the object.
    #[must_use]
    pub fn is_controller(&self) -> bool {
        self.controller == Some(true)
    }
}

impl ObjectMeta {
    /// Returns metadata with this namespace and name. Cluster-wide objects have an empty namespace.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into(), ..Self::default() }
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// Adds a finalizer.
    #[must_use]
    pub fn finalizer(mut self, finalizer: impl Into<String>) -> Self {
        self.finalizers.push(finalizer.into());
        self
    }

    /// Adds an owner.
    #[must_use]
    pub fn owner(mut self, owner: OwnerReference) -> Self {
        self.owner_references.push(owner);
        self
    }

    /// Returns the namespace and name.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.namespace, &self.name)
    }

    /// Returns whether the deletion has begun.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns whether the object has this finalizer.
    #[must_use]
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|known| known == finalizer)
    }

    /// Returns the owner that manages the object.
    #[must_use]
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.is_controller())
    }

    /// Returns whether the object with this uid manages this object.
    #[must_use]
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.controller().is_some_and(|owner| owner.uid == uid)
    }
}

/// The JSON form of the metadata. Empty fields are omitted.
#[derive(serde::Serialize)]
#[serde(remote = "ObjectMeta", rename_all = "camelCase")]
struct MetaFields {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    generate_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    resource_version: String,
    #[serde(skip_serializing_if = "is_zero")]
    generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    finalizers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    owner_references: Vec<OwnerReference>,
    #[serde(skip)]
    rest: Map<String, Value>,
}

impl ObjectMeta {
    /// Reads metadata from JSON.
    ///
    /// # Errors
    ///
    /// Returns the first field that does not match.
    pub fn read(json: &Value) -> Result<Self, Cause> {
        let fits = |json: &Value| <Self as Deserialize>::deserialize(json).map_err(|error| error.to_string());
        let rule = match fits(json) {
            Ok(meta) => return Ok(meta),
            Err(rule) => rule,
        };
        let invalid = |path: String, value: &Value, rule| Cause::new(path, value.to_string(), rule);
        for (name, value) in json.as_object().into_iter().flatten() {
            let Err(rule) = fits(&json!({name: value})) else { continue };
            // Find the entry in a map or list.
            for (inner, value) in value.as_object().filter(|_| fits(&json!({name: {}})).is_ok()).into_iter().flatten() {
                if let Err(rule) = fits(&json!({name: {inner: value}})) {
                    return Err(invalid(format!("metadata.{name}.{inner}"), value, rule));
                }
            }
            let entries = value.as_array().filter(|_| fits(&json!({name: []})).is_ok());
            for (at, value) in entries.into_iter().flatten().enumerate() {
                if let Err(rule) = fits(&json!({name: [value]})) {
                    return Err(invalid(format!("metadata.{name}[{at}]"), value, rule));
                }
            }
            return Err(invalid(format!("metadata.{name}"), value, rule));
        }
        Err(invalid("metadata".to_owned(), json, rule))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Returns whether a field with this value counts as absent.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(_) => false,
    }
}

impl<'de> Deserialize<'de> for ObjectMeta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MetaVisitor)
    }
}

/// Reads each field into its type. Values that count as absent are put into `rest`.
struct MetaVisitor;

impl<'de> Visitor<'de> for MetaVisitor {
    type Value = ObjectMeta;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<ObjectMeta, A::Error> {
        let mut meta = ObjectMeta::default();
        while let Some(name) = fields.next_key::<String>()? {
            // `None` if the field has got its value, otherwise the JSON to keep.
            let kept = match &*name {
                "name" => text(&mut fields, &mut meta.name)?,
                "generateName" => text(&mut fields, &mut meta.generate_name)?,
                "namespace" => text(&mut fields, &mut meta.namespace)?,
                "uid" => text(&mut fields, &mut meta.uid)?,
                "resourceVersion" => text(&mut fields, &mut meta.resource_version)?,
                "generation" => field(&mut fields, &mut meta.generation, is_zero, || json!(0))?,
                "creationTimestamp" => time(&mut fields, &mut meta.creation_timestamp)?,
                "deletionTimestamp" => time(&mut fields, &mut meta.deletion_timestamp)?,
                "labels" => field(&mut fields, &mut meta.labels, BTreeMap::is_empty, || json!({}))?,
                "annotations" => field(&mut fields, &mut meta.annotations, BTreeMap::is_empty, || json!({}))?,
                "finalizers" => field(&mut fields, &mut meta.finalizers, Vec::is_empty, || json!([]))?,
                "ownerReferences" => field(&mut fields, &mut meta.owner_references, Vec::is_empty, || json!([]))?,
                _ => Some(fields.next_value()?),
            };
            if let Some(kept) = kept {
                meta.rest.insert(name, kept);
            }
        }
        Ok(meta)
    }
}

/// Reads the next value into a field. Returns the JSON of a value that counts as absent.
fn field<'de, A: MapAccess<'de>, T: Deserialize<'de>>(
    fields: &mut A,
    into: &mut T,
    is_empty: impl FnOnce(&T) -> bool,
    empty: impl FnOnce() -> Value,
) -> Result<Option<Value>, A::Error> {
    let Some(value) = fields.next_value::<Option<T>>()? else { return Ok(Some(Value::Null)) };
    *into = value;
    Ok(is_empty(into).then(empty))
}

fn text<'de, A: MapAccess<'de>>(fields: &mut A, into: &mut String) -> Result<Option<Value>, A::Error> {
    field(fields, into, String::is_empty, || json!(""))
}

fn time<'de, A: MapAccess<'de>>(fields: &mut A, into: &mut Option<Timestamp>) -> Result<Option<Value>, A::Error> {
    *into = fields.next_value()?;
    Ok(into.is_none().then_some(Value::Null))
}

impl Serialize for ObjectMeta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = MetaFields::serialize(self, serde_json::value::Serializer).map_err(S::Error::custom)?;
        if let Value::Object(fields) = &mut json {
            for (name, value) in &self.rest {
                fields.entry(name).or_insert_with(|| value.clone());
            }
        }
        json.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn unchanged(json: &Value) -> ObjectMeta {
        let meta: ObjectMeta = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&meta).unwrap(), *json);
        meta
    }

    #[test]
    fn all_fields_are_written_again() {
        let meta = unchanged(&json!({
            "name": "web-1", "generateName": "web-", "namespace": "default", "uid": "a-b", "resourceVersion": "17",
            "generation": 3, "creationTimestamp": "2024-05-01T10:00:00Z", "deletionTimestamp": "2024-05-01T11:30:05Z",
            "deletionGracePeriodSeconds": 30, "labels": {"app": "web"}, "annotations": {"note": ""},
            "finalizers": ["example.com/a"], "selfLink": "/x", "managedFields": [{"manager": "kubectl"}],
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u",
                "controller": true, "blockOwnerDeletion": false}],
        }));
        assert_eq!(meta.key(), ObjectKey::new("default", "web-1"));
        assert!(meta.is_deleting() && meta.has_finalizer("example.com/a") && !meta.has_finalizer("b"));
        assert!(meta.is_controlled_by("u") && !meta.is_controlled_by("v"));
        assert!(meta.owner_references[0].is_of(&Kind::namespaced("apps", "v1", "ReplicaSet")));
        assert_eq!(meta.rest.len(), 3);
    }

    #[test]
    fn empty_fields_are_written_again_until_they_are_set() {
        let mut meta = unchanged(&json!({
            "name": "a", "namespace": "", "creationTimestamp": null, "labels": {}, "finalizers": [], "generation": 0,
        }));
        assert_eq!((meta.creation_timestamp, meta.labels.len()), (None, 0));
        meta.labels.insert("app".into(), "web".into());
        meta.creation_timestamp = Some("2024-05-01T10:00:00Z".parse().unwrap());
        assert_eq!(
            serde_json::to_value(&meta).unwrap(),
            json!({"name": "a", "namespace": "", "creationTimestamp": "2024-05-01T10:00:00Z", "labels": {"app": "web"},
                "finalizers": [], "generation": 0})
        );
    }

    #[test]
    fn a_value_of_another_type_is_an_error() {
        for json in [
            json!({"name": 1}),
            json!({"labels": {"a": 1}}),
            json!({"creationTimestamp": "now"}),
            json!(null),
            json!({"labels": []}),
            json!({"name": 0}),
        ] {
            assert!(serde_json::from_value::<ObjectMeta>(json.clone()).is_err(), "{json}");
        }
    }

    #[test]
    fn an_error_names_the_field_of_another_type() {
        for (json, field, value) in [
            (json!({"name": "a", "namespace": 1}), "metadata.namespace", "1"),
            (json!({"name": "a", "labels": {"a": "b", "c": {}}}), "metadata.labels.c", "{}"),
            (json!({"labels": "a"}), "metadata.labels", "\"a\""),
            (json!({"labels": ["a"]}), "metadata.labels", "[\"a\"]"),
            (json!({"name": {"a": 1}}), "metadata.name", "{\"a\":1}"),
            (json!({"finalizers": ["a", 2]}), "metadata.finalizers[1]", "2"),
            (json!({"ownerReferences": [{"name": "a"}]}), "metadata.ownerReferences[0]", "{\"name\":\"a\"}"),
            (json!([]), "metadata", "[]"),
        ] {
            let invalid = ObjectMeta::read(&json).unwrap_err();
            assert_eq!((&*invalid.field, &*invalid.value), (field, value), "{invalid:?}");
            assert!(!invalid.rule.is_empty());
        }
        assert_eq!(ObjectMeta::read(&json!({"name": "a"})), Ok(ObjectMeta::new("", "a")));
    }
}
