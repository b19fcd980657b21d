//! Objects of a kind that is known only at run time.

use serde_json::{Map, Value, json};

use super::kind::Kind;
use super::meta::ObjectMeta;
use super::object::Object;

/// An object of any kind: its metadata, and all other fields as JSON. Writing an object that was read loses nothing.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{DynamicObject, Kind, Object};
/// use serde_json::json;
///
/// const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
/// let colours = DynamicObject::new(&CONFIG_MAP, "default", "colours").with("data", json!({"sky": "blue"}));
/// assert_eq!(colours.pointer("/data/sky"), Some(&json!("blue")));
/// assert_eq!(colours.object_ref().to_string(), "ConfigMap default/colours");
/// ```
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DynamicObject {
    /// The group and version of the kind.
    pub api_version: String,
    /// The name of the kind.
    pub kind: String,
    /// The metadata.
    pub metadata: ObjectMeta,
    /// All other fields, such as `spec`, `status` and `data`.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

impl DynamicObject {
    /// Returns an object with this namespace and name, without other fields.
    #[must_use]
    pub fn new(kind: &Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            api_version: kind.api_version().into_owned(),
            kind: kind.name().to_owned(),
            metadata: ObjectMeta::new(namespace, name),
            fields: Map::new(),
        }
    }

    /// Sets a field.
    #[must_use]
    pub fn with(mut self, field: impl Into<String>, value: Value) -> Self {
        self.fields.insert(field.into(), value);
        self
    }

    /// Returns the value at a JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)) in [`fields`](Self::fields), such
    /// as `/spec/replicas`.
    #[must_use]
    pub fn pointer(&self, pointer: &str) -> Option<&Value> {
        let (first, rest) = split(pointer)?;
        self.fields.get(&first)?.pointer(rest)
    }

    /// Returns the value at a JSON pointer for changes.
    #[must_use]
    pub fn pointer_mut(&mut self, pointer: &str) -> Option<&mut Value> {
        let (first, rest) = split(pointer)?;
        self.fields.get_mut(&first)?.pointer_mut(rest)
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

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn status(&self) -> Option<&Value> {
        self.fields.get("status")
    }

    fn status_mut(&mut self) -> Option<&mut Value> {
        Some(self.fields.entry("status").or_insert_with(|| json!({})))
    }

    /// Returns the kind that the object names. The kind is namespaced if the object has a namespace.
    fn kind(&self) -> Kind {
        let kind = Kind::of(&self.api_version, &self.kind);
        if self.metadata.namespace.is_empty() { kind.in_no_namespace() } else { kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_find_fields() {
        let mut object = DynamicObject::new(&Kind::of("v1", "X"), "a", "b").with("a/b~c", json!({"d": [1, 2]}));
        assert_eq!(object.pointer("/a~1b~0c/d/1"), Some(&json!(2)));
        *object.pointer_mut("/a~1b~0c/d/0").unwrap() = json!(3);
        assert_eq!(object.pointer("/a~1b~0c"), Some(&json!({"d": [3, 2]})));
        for none in ["", "x", "/", "/metadata/name", "/a"] {
            assert_eq!(object.pointer(none), None, "{none}");
        }
    }

    #[test]
    fn a_missing_status_is_created_for_changes() {
        let mut object = DynamicObject::new(&Kind::of("v1", "X"), "a", "b");
        assert_eq!(object.status(), None);
        object.status_mut().unwrap()["ready"] = json!(true);
        assert_eq!(object.status(), Some(&json!({"ready": true})));
    }
}
