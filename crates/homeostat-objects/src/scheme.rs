//! The registry of kinds: finds the [`Kind`] for a manifest's `apiVersion` and `kind`, and checks objects.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::error::{Cause, ClientError, ObjectRef};
use super::json::{key_of, kind_of};
use super::json_text::altered_integer;
use super::key::ObjectKey;
use super::kind::Kind;
use super::meta::ObjectMeta;
use super::object::Object;

/// A registry of the kinds that a program knows.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Kind, ObjectMeta, Scheme};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Debug, Serialize, Deserialize)]
/// struct Vm {
///     metadata: ObjectMeta,
///     cores: u32,
/// }
/// homeostat_objects::object!(Vm, namespaced, "example.com", "v1");
///
/// let scheme = Scheme::new().register::<Vm>().register_kind(Kind::cluster("", "v1", "Node"));
/// assert!(!scheme.kind("v1", "Node").unwrap().is_namespaced());
///
/// let manifests = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
///     {"apiVersion": "example.com/v1", "kind": "Vm", "metadata": {"namespace": "default", "name": "a"}, "cores": "two"}"#;
/// let objects = scheme.read(manifests)?;
/// assert_eq!(objects.len(), 2);
/// let error = scheme.check(&objects[1].1).unwrap_err();
/// assert!(error.to_string().starts_with("Vm default/a is invalid: cores is"), "{error}");
/// # Ok::<_, homeostat_objects::ClientError>(())
/// ```
#[derive(Clone, Default)]
pub struct Scheme {
    /// By `apiVersion`, then by name.
    kinds: BTreeMap<String, BTreeMap<String, SchemeEntry>>,
}

#[derive(Clone)]
struct SchemeEntry {
    kind: Kind,
    /// Reports the first field that does not match the type of the kind.
    check: fn(&Value) -> Result<(), Cause>,
}

impl Scheme {
    /// Returns an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the kind of this type. Does not compile for a [`DynamicObject`](super::DynamicObject), which has no
    /// fixed kind.
    #[must_use]
    pub fn register<T: Object>(self) -> Self {
        const { T::KIND.assert_known() };
        self.with(T::KIND, fault_of::<T>)
    }

    /// Registers a kind without a type.
    #[must_use]
    pub fn register_kind(self, kind: Kind) -> Self {
        self.with(kind, |json| ObjectMeta::read(&json["metadata"]).map(drop))
    }

    fn with(mut self, kind: Kind, check: fn(&Value) -> Result<(), Cause>) -> Self {
        let kinds = self.kinds.entry(kind.api_version().into_owned()).or_default();
        kinds.insert(kind.name().to_owned(), SchemeEntry { kind, check });
        self
    }

    /// Returns the kind with this `apiVersion` and name.
    #[must_use]
    pub fn kind(&self, api_version: &str, name: &str) -> Option<&Kind> {
        Some(&self.kinds.get(api_version)?.get(name)?.kind)
    }

    /// Returns all kinds, ordered by `apiVersion` and name.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.kinds.values().flat_map(BTreeMap::values).map(|entry| &entry.kind)
    }

    /// Returns the objects of a JSON document with their kinds. The document is one object, or a list such as `List` or
    /// `PodList`.
    ///
    /// An item of a `PodList` that names no kind is a `Pod`.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ClientErrorKind::Invalid) if the kind of an object is not registered.
    pub fn objects(&self, json: &Value) -> Result<Vec<(Kind, Value)>, ClientError> {
        let mut objects = Vec::new();
        self.collect(json, &mut objects)?;
        Ok(objects)
    }

    fn collect(&self, json: &Value, objects: &mut Vec<(Kind, Value)>) -> Result<(), ClientError> {
        let (api_version, name) = (text(json, "apiVersion"), text(json, "kind"));
        if let (None, Some(of), Some(items)) =
            (self.kind(api_version, name), name.strip_suffix("List"), json["items"].as_array())
        {
            for item in items {
                let mut item = item.clone();
                if let (false, Some(fields)) = (of.is_empty(), item.as_object_mut()) {
                    fields.entry("apiVersion").or_insert_with(|| api_version.into());
                    fields.entry("kind").or_insert_with(|| of.into());
                }
                self.collect(&item, objects)?;
            }
            return Ok(());
        }
        objects.push((self.entry(json)?.kind.clone(), json.clone()));
        Ok(())
    }

    /// Checks that an object matches the type of its kind. If the kind has no type, checks only the metadata.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ClientErrorKind::Invalid) with the path of a field that does not match, or if the kind is not
    /// registered.
    pub fn check(&self, json: &Value) -> Result<(), ClientError> {
        let SchemeEntry { kind, check } = self.entry(json)?;
        check(json).map_err(|Cause { field: path, value, rule }| {
            ClientError::invalid(ObjectRef::new(kind, &key_of(json)), path, value, rule)
        })
    }

    fn entry(&self, json: &Value) -> Result<&SchemeEntry, ClientError> {
        let (api_version, name) = (text(json, "apiVersion"), text(json, "kind"));
        let found = self.kinds.get(api_version).and_then(|kinds| kinds.get(name));
        found.ok_or_else(|| {
            let object = ObjectRef::new(&kind_of(json), &key_of(json));
            let (field, value) =
                if self.kinds.contains_key(api_version) { ("kind", name) } else { ("apiVersion", api_version) };
            ClientError::invalid(object, field, value, "must be a registered kind")
        })
    }

    /// Parses a text of several JSON documents, and returns their [objects](Self::objects).
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ClientErrorKind::Invalid) if the text is not JSON, if it has an integer of more than 64 bits
    /// (which would be altered), or if the kind of an object is not registered.
    pub fn read(&self, documents: &str) -> Result<Vec<(Kind, Value)>, ClientError> {
        let nothing = ObjectRef::new(&Kind::of("", "a document"), &ObjectKey::cluster(""));
        let mut objects = Vec::new();
        for document in serde_json::Deserializer::from_str(documents).into_iter::<Value>() {
            let document =
                document.map_err(|error| ClientError::invalid(nothing.clone(), "", "", error.to_string()))?;
            self.collect(&document, &mut objects)?;
        }
        if let Some(integer) = altered_integer(documents.as_bytes()) {
            let rule = format!("the integer {integer} does not fit into 64 bits");
            return Err(ClientError::invalid(nothing, "", integer, rule));
        }
        Ok(objects)
    }
}

/// Reports the first field that does not match the type.
fn fault_of<T: Object>(json: &Value) -> Result<(), Cause> {
    let Err(error) = serde_path_to_error::deserialize::<_, T>(json) else { return Ok(()) };
    // The metadata can report more precisely.
    ObjectMeta::read(&json["metadata"])?;
    let path = match error.path().to_string() {
        path if path == "." => String::new(),
        path => path,
    };
    let value = value_at(json, error.path()).map(Value::to_string).unwrap_or_default();
    Err(Cause::new(path, value, error.inner().to_string()))
}

fn value_at<'a>(json: &'a Value, path: &Path) -> Option<&'a Value> {
    path.iter().try_fold(json, |json, step| match step {
        Segment::Seq { index } => json.get(index),
        Segment::Map { key } => json.get(key),
        Segment::Enum { variant } => json.get(variant),
        Segment::Unknown => None,
    })
}

fn text<'a>(json: &'a Value, field: &str) -> &'a str {
    json[field].as_str().unwrap_or_default()
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.kinds()).finish()
    }
}
