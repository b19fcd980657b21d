//! Objects of a kind that is known only at run time.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::error::ClientError;
use super::json::{kind_of, string};
use super::key::ObjectKey;
use super::kind::Kind;
use super::meta::ObjectMeta;
use super::meta_check::CheckedHead;
use super::meta_mut::MetaMut;
use super::object::Object;
use super::shared::SharedObject;
use super::value_ref::ValueRef;

/// An object of any kind: its metadata, and all other fields as JSON. Reading an object and writing it back loses
/// nothing.
///
/// An object that was read shares the JSON of the client, and a clone shares it too. The first change copies it. Until
/// then, [`meta`](Object::meta), [`status`](Object::status) and [`fields`](Self::fields) build their result at each
/// call; [`get`](Self::get) and [`pointer`](Self::pointer) copy nothing.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{DynamicObject, Kind, Object};
/// use serde_json::json;
///
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let mut colours = DynamicObject::new(&CONFIG_MAP, "default", "colours").with("data", json!({"sky": "blue"}));
/// assert_eq!(colours.pointer("/data/sky").unwrap(), "blue");
/// assert_eq!(colours.object_ref().to_string(), "ConfigMap default/colours");
/// colours.fields_mut()["data"]["grass"] = json!("green");
/// colours.meta_mut().labels.insert("season".to_owned(), "summer".to_owned());
/// ```
#[derive(Clone)]
pub struct DynamicObject(DynamicContent);

#[derive(Clone)]
enum DynamicContent {
    /// The object as it was read. Its metadata has been checked.
    Read(SharedObject),
    /// The object in parts, so that it can be changed.
    Parts(Box<Parts>),
}

#[derive(Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Parts {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

/// The fields that are not in [`DynamicObject::fields`].
const HEAD: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Parts {
    fn of(object: &SharedObject) -> Self {
        let (api_version, kind) = (string(object, "apiVersion").to_owned(), string(object, "kind").to_owned());
        Self { api_version, kind, metadata: meta_of(object), fields: fields_of(object) }
    }
}

/// Returns the metadata of an object that has been checked.
fn meta_of(object: &SharedObject) -> ObjectMeta {
    object.get("metadata").and_then(|metadata| metadata.to_typed().ok()).unwrap_or_default()
}

/// Returns all fields except `apiVersion`, `kind` and `metadata`.
fn fields_of(object: &SharedObject) -> Map<String, Value> {
    let fields = object.as_value().fields().filter(|(name, _)| !HEAD.contains(name));
    fields.map(|(name, value)| (name.to_owned(), value.to_value())).collect()
}

impl DynamicObject {
    /// Returns an object with this namespace and name, without other fields.
    #[must_use]
    pub fn new(kind: &Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self(DynamicContent::Parts(Box::new(Parts {
            api_version: kind.api_version().into_owned(),
            kind: kind.name().to_owned(),
            metadata: ObjectMeta::new(namespace, name),
            fields: Map::new(),
        })))
    }

    /// Sets a field.
    #[must_use]
    pub fn with(mut self, field: impl Into<String>, value: Value) -> Self {
        self.parts_mut().fields.insert(field.into(), value);
        self
    }

    /// Returns the `apiVersion`: the group and version of the kind.
    #[must_use]
    pub fn api_version(&self) -> &str {
        match &self.0 {
            DynamicContent::Read(object) => string(object, "apiVersion"),
            DynamicContent::Parts(parts) => &parts.api_version,
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.0 {
            DynamicContent::Read(object) => object.name(),
            DynamicContent::Parts(parts) => &parts.metadata.name,
        }
    }

    /// Returns the namespace; empty if the object is cluster-wide.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match &self.0 {
            DynamicContent::Read(object) => object.namespace(),
            DynamicContent::Parts(parts) => &parts.metadata.namespace,
        }
    }

    /// Changes the kind.
    pub fn set_kind(&mut self, kind: &Kind) {
        let parts = self.parts_mut();
        (parts.api_version, parts.kind) = (kind.api_version().into_owned(), kind.name().to_owned());
    }

    /// Returns the fields other than `apiVersion`, `kind` and `metadata`: for example `spec`, `status` and `data`.
    #[must_use]
    pub fn fields(&self) -> Cow<'_, Map<String, Value>> {
        match &self.0 {
            DynamicContent::Read(object) => Cow::Owned(fields_of(object)),
            DynamicContent::Parts(parts) => Cow::Borrowed(&parts.fields),
        }
    }

    /// Returns the fields other than `apiVersion`, `kind` and `metadata`, for changes.
    pub fn fields_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.parts_mut().fields
    }

    /// Returns one of the [`fields`](Self::fields).
    #[must_use]
    pub fn get(&self, field: &str) -> Option<ValueRef<'_>> {
        match &self.0 {
            DynamicContent::Read(object) => object.get(field).filter(|_| !HEAD.contains(&field)),
            DynamicContent::Parts(parts) => parts.fields.get(field).map(ValueRef::from),
        }
    }

    /// Returns the value at a JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)) in
    /// [`fields`](Self::fields), such as `/spec/replicas`.
    #[must_use]
    pub fn pointer(&self, pointer: &str) -> Option<ValueRef<'_>> {
        let (first, rest) = split(pointer)?;
        self.get(&first)?.pointer(rest)
    }

    /// Returns the value at a JSON pointer for changes.
    #[must_use]
    pub fn pointer_mut(&mut self, pointer: &str) -> Option<&mut Value> {
        let (first, rest) = split(pointer)?;
        self.parts_mut().fields.get_mut(&first)?.pointer_mut(rest)
    }

    fn parts_mut(&mut self) -> &mut Parts {
        if let DynamicContent::Read(object) = &self.0 {
            self.0 = DynamicContent::Parts(Box::new(Parts::of(object)));
        }
        match &mut self.0 {
            DynamicContent::Parts(parts) => parts,
            DynamicContent::Read(_) => unreachable!("replaced just now"),
        }
    }
}

/// Splits a pointer into its first name and the rest.
fn split(pointer: &str) -> Option<(String, &str)> {
    let path = pointer.strip_prefix('/')?;
    let end = path.find('/').unwrap_or(path.len());
    Some((path[..end].replace("~1", "/").replace("~0", "~"), &path[end..]))
}

impl Object for DynamicObject {
    const KIND: Kind = Kind::UNKNOWN;
    type Status = Value;

    fn meta(&self) -> Cow<'_, ObjectMeta> {
        match &self.0 {
            DynamicContent::Read(object) => Cow::Owned(meta_of(object)),
            DynamicContent::Parts(parts) => Cow::Borrowed(&parts.metadata),
        }
    }

    fn meta_mut(&mut self) -> MetaMut<'_> {
        (&mut self.parts_mut().metadata).into()
    }

    fn status(&self) -> Option<Cow<'_, Value>> {
        match &self.0 {
            DynamicContent::Read(object) => object.get("status").map(|status| Cow::Owned(status.to_value())),
            DynamicContent::Parts(parts) => parts.fields.get("status").map(Cow::Borrowed),
        }
    }

    fn status_mut(&mut self) -> Option<&mut Value> {
        Some(self.parts_mut().fields.entry("status").or_insert_with(|| json!({})))
    }

    /// Returns the kind that the object names. The kind is namespaced if the object has a namespace.
    fn kind(&self) -> Kind {
        let kind = match &self.0 {
            DynamicContent::Read(object) => object.kind(),
            DynamicContent::Parts(parts) => Kind::of(&parts.api_version, &parts.kind),
        };
        if self.namespace().is_empty() { kind.in_no_namespace() } else { kind }
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace(), self.name())
    }

    fn has_version_of(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (DynamicContent::Read(one), DynamicContent::Read(other)) => {
                one.resource_version() == other.resource_version()
            }
            _ => self.meta().resource_version == other.meta().resource_version,
        }
    }

    /// Converts a changed object to the form of an object that was read, which takes about the memory of its JSON.
    fn compact(&mut self) {
        if let DynamicContent::Parts(parts) = &self.0
            && let Ok(json) = serde_json::to_value(parts)
        {
            self.0 = DynamicContent::Read(json.into());
        }
    }

    fn from_shared(object: &SharedObject) -> Result<Self, ClientError> {
        if object.to_typed::<CheckedHead>().is_err() {
            // This error is more precise.
            super::object::read::<Head>(object, &kind_of(object))?;
        }
        Ok(Self(DynamicContent::Read(object.clone())))
    }
}

/// The fields that every object has.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "reading it is the check")]
struct Head {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
}

impl PartialEq for DynamicObject {
    fn eq(&self, other: &Self) -> bool {
        let parts = |form: &DynamicContent| match form {
            DynamicContent::Read(object) => Parts::of(object),
            DynamicContent::Parts(parts) => (**parts).clone(),
        };
        match (&self.0, &other.0) {
            (DynamicContent::Read(one), DynamicContent::Read(other)) if one == other => true,
            (DynamicContent::Parts(one), DynamicContent::Parts(other)) => one == other,
            (one, other) => parts(one) == parts(other),
        }
    }
}

impl Serialize for DynamicObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            DynamicContent::Read(object) => object.serialize(serializer),
            DynamicContent::Parts(parts) => parts.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for DynamicObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(DynamicContent::Parts(Box::new(Parts::deserialize(deserializer)?))))
    }
}

/// Writes the object as JSON.
impl fmt::Debug for DynamicObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            DynamicContent::Read(object) => object.fmt(f),
            DynamicContent::Parts(parts) => f.write_str(&serde_json::to_string(parts).map_err(|_| fmt::Error)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_find_fields() {
        let mut object = DynamicObject::new(&Kind::of("v1", "X"), "a", "b").with("a/b~c", json!({"d": [1, 2]}));
        assert_eq!(object.pointer("/a~1b~0c/d/1").map(ValueRef::to_value), Some(json!(2)));
        *object.pointer_mut("/a~1b~0c/d/0").unwrap() = json!(3);
        assert_eq!(object.pointer("/a~1b~0c").map(ValueRef::to_value), Some(json!({"d": [3, 2]})));
        for none in ["", "x", "/", "/metadata/name", "/a"] {
            assert_eq!(object.pointer(none), None, "{none}");
        }
    }

    #[test]
    fn a_compact_object_has_the_same_content() {
        let mut object =
            DynamicObject::new(&Kind::of("v1", "X"), "a", "b").with("data", json!({"c": [1, {"d": null}]}));
        object.meta_mut().labels.insert("e".to_owned(), "f".to_owned());
        let before = object.clone();
        object.compact();
        assert!(matches!(object.0, DynamicContent::Read(_)));
        assert_eq!((&object, object.to_json().unwrap()), (&before, before.to_json().unwrap()));
        assert_eq!(object.meta(), before.meta());
    }

    #[test]
    fn a_missing_status_is_created_for_changes() {
        let mut object = DynamicObject::new(&Kind::of("v1", "X"), "a", "b");
        assert_eq!(object.status(), None);
        object.status_mut().unwrap()["ready"] = json!(true);
        assert_eq!(object.status().as_deref(), Some(&json!({"ready": true})));
    }
}
