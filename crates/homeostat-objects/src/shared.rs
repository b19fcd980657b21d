//! Stored objects: JSON that is shared and never changes.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::json::{finalizers_of, is_deleting, key_of, kind_of, meta_field, meta_string, owners_of};
use super::key::ObjectKey;
use super::kind::Kind;
use super::meta::OwnerReference;
use super::packed::{Packed, pack};
use super::value_ref::ValueRef;

/// An object as a [`Client`](super::Client) returns it: JSON that is shared and never changes. Cloning it copies only a
/// pointer.
///
/// Read single values with [`pointer`](Self::pointer), or a whole object with [`to_typed`](Self::to_typed). To change
/// an object, change its [`to_value`](Self::to_value) and write that.
///
/// # Examples
///
/// ```
/// use homeostat_objects::SharedObject;
/// use serde_json::json;
///
/// let pod = SharedObject::from(json!({
///     "apiVersion": "v1", "kind": "Pod",
///     "metadata": {"namespace": "default", "name": "web", "labels": {"app": "web"}}, "spec": {"nodeName": "node-1"},
/// }));
/// assert_eq!(pod.key().to_string(), "default/web");
/// assert_eq!(pod.pointer("/spec/nodeName").and_then(|node| node.as_str()), Some("node-1"));
/// assert_eq!(pod.labels().collect::<Vec<_>>(), [("app", "web")]);
/// assert_eq!(pod.to_value()["kind"], "Pod");
/// ```
#[derive(Clone)]
pub struct SharedObject(Arc<str>);

impl SharedObject {
    /// Reads an object from a server. Omits `metadata.managedFields`. Sets `apiVersion` and `kind` if `kind` is given.
    ///
    /// # Errors
    ///
    /// Returns the errors of the deserializer.
    pub fn read<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
        kind: Option<&Kind>,
        buffers: &mut super::packed::ReadBuffers,
    ) -> Result<Self, D::Error> {
        super::packed::read_object(deserializer, kind, buffers).map(|packed| Self(packed.into()))
    }

    /// Returns a view of the whole object.
    #[must_use]
    pub fn as_value(&self) -> ValueRef<'_> {
        ValueRef::packed(Packed::new(&self.0))
    }

    /// Returns the value of a field at the top, such as `spec`; `None` if it is missing.
    #[must_use]
    pub fn get(&self, field: &str) -> Option<ValueRef<'_>> {
        self.as_value().get(field)
    }

    /// Returns the value at a JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)), such as
    /// `/spec/replicas`; `None` if it is missing.
    #[must_use]
    pub fn pointer(&self, pointer: &str) -> Option<ValueRef<'_>> {
        self.as_value().pointer(pointer)
    }

    /// Returns a copy of the object, for changes.
    #[must_use]
    pub fn to_value(&self) -> Value {
        self.as_value().to_value()
    }

    /// Reads the object as a value of a type.
    ///
    /// # Errors
    ///
    /// If the JSON does not match the type.
    pub fn to_typed<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        self.as_value().to_typed()
    }

    /// Returns whether this is a clone of `other`, so that both share their memory.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns whether another clone of this object exists.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Returns how many bytes of memory the object takes.
    #[must_use]
    pub fn footprint(&self) -> usize {
        // An `Arc` stores two counts next to the text.
        self.0.len() + 2 * size_of::<usize>()
    }

    /// Returns the namespace and name.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        key_of(self)
    }

    /// Returns the kind that the object names. It counts as namespaced.
    #[must_use]
    pub fn kind(&self) -> Kind {
        kind_of(self)
    }

    /// Returns the name; empty if the object has none.
    #[must_use]
    pub fn name(&self) -> &str {
        meta_string(self, "name")
    }

    /// Returns the namespace; empty if the object is cluster-wide.
    #[must_use]
    pub fn namespace(&self) -> &str {
        meta_string(self, "namespace")
    }

    /// Returns the uid; empty if the object has none.
    #[must_use]
    pub fn uid(&self) -> &str {
        meta_string(self, "uid")
    }

    /// Returns the version; empty if the object has none.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        meta_string(self, "resourceVersion")
    }

    /// Returns whether the deletion of the object has begun.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        is_deleting(self)
    }

    /// Returns the labels.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = meta_field(self, "labels").into_iter().flat_map(ValueRef::fields);
        labels.filter_map(|(key, value)| Some((key, value.as_str()?)))
    }

    /// Returns the names of the finalizers.
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        finalizers_of(self)
    }

    /// Returns the references to owners. Skips entries that are not valid references.
    pub fn owner_references(&self) -> impl Iterator<Item = OwnerReference> {
        owners_of(self).filter_map(|owner| owner.to_typed().ok())
    }
}

impl From<Value> for SharedObject {
    fn from(json: Value) -> Self {
        Self::from(&json)
    }
}

impl From<&Value> for SharedObject {
    fn from(json: &Value) -> Self {
        Self(pack(json))
    }
}

impl<'a> From<&'a SharedObject> for ValueRef<'a> {
    fn from(object: &'a SharedObject) -> Self {
        object.as_value()
    }
}

impl PartialEq for SharedObject {
    fn eq(&self, other: &Self) -> bool {
        self.ptr_eq(other) || self.as_value() == other.as_value()
    }
}

impl PartialEq<Value> for SharedObject {
    fn eq(&self, other: &Value) -> bool {
        self.as_value() == *other
    }
}

/// Writes the object as JSON.
impl Serialize for SharedObject {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_value().serialize(serializer)
    }
}

/// Writes the object as JSON.
impl fmt::Display for SharedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_value().fmt(f)
    }
}

/// Writes the object as JSON.
impl fmt::Debug for SharedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_value().fmt(f)
    }
}
