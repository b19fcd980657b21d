//! Builders of objects for tests.

mod json;
mod kinds;

use jiff::Timestamp;
use serde_json::{Value, json};

use self::json::remove;
pub(super) use self::json::set;
use homeostat_objects::{Condition, DynamicObject, Kind, Object, ObjectMeta, OwnerReference};

/// The `resourceVersion` of objects that have none.
const VERSION: &str = "999";

/// A builder of objects for tests.
///
/// A factory is immutable: each method returns a changed copy. Many cases can share and extend one factory.
///
/// # Examples
///
/// ```
/// use homeostat_objects::Object;
/// use homeostat_testing::{Factory, Sample};
///
/// let app = Factory::config_map("default", "app").created(1);
/// let create = Factory::config_map("default", "").generate_name("colours-").data("sky", "blue").controlled_by(&app);
/// let given = create.name("colours-001").created(2);
/// assert_eq!(create.build().name(), "");
/// assert_eq!(given.build().meta().owner_references[0].uid, app.sample().meta().uid);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Factory<T = DynamicObject>(T);

/// An object, or a [`Factory`] of an object.
///
/// # Examples
///
/// ```
/// use homeostat_objects::Object;
/// use homeostat_testing::{Factory, Sample};
///
/// let colours = Factory::config_map("default", "colours");
/// assert_eq!(colours.sample().key(), colours.build().sample().key());
/// ```
pub trait Sample {
    /// The type of the object.
    type Object: Object;

    /// Returns the object.
    fn sample(&self) -> Self::Object;
}

impl<T: Object> Sample for T {
    type Object = T;

    fn sample(&self) -> T {
        self.clone()
    }
}

impl<T: Object> Sample for Factory<T> {
    type Object = T;

    fn sample(&self) -> T {
        self.build()
    }
}

impl<T: Object> Factory<T> {
    /// Creates a factory of this object.
    pub fn of(object: T) -> Self {
        Self(object)
    }

    /// Returns the object.
    #[must_use]
    pub fn build(&self) -> T {
        self.0.clone()
    }

    /// Changes the object with a function.
    pub fn change(&self, change: impl FnOnce(&mut T)) -> Self {
        let mut object = self.build();
        change(&mut object);
        Self(object)
    }

    /// Changes the metadata with a function.
    pub fn meta(&self, change: impl FnOnce(&mut ObjectMeta)) -> Self {
        self.change(|object| change(&mut object.meta_mut()))
    }

    /// Sets the namespace. An empty one makes the object cluster-scoped.
    pub fn namespace(&self, namespace: impl Into<String>) -> Self {
        self.meta(|meta| meta.namespace = namespace.into())
    }

    /// Sets the name.
    pub fn name(&self, name: impl Into<String>) -> Self {
        self.meta(|meta| meta.name = name.into())
    }

    /// Removes the name, and sets `generateName`. A [`TestClient`](super::TestClient) generates `web-001` from `web-`.
    pub fn generate_name(&self, start: impl Into<String>) -> Self {
        self.meta(|meta| (meta.name, meta.generate_name) = (String::new(), start.into()))
    }

    /// Adds a label.
    pub fn add_label(&self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.meta(|meta| drop(meta.labels.insert(key.into(), value.into())))
    }

    /// Adds an annotation.
    pub fn add_annotation(&self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.meta(|meta| drop(meta.annotations.insert(key.into(), value.into())))
    }

    /// Appends a finalizer.
    pub fn finalizer(&self, finalizer: impl Into<String>) -> Self {
        self.meta(|meta| meta.finalizers.push(finalizer.into()))
    }

    /// Adds a controller reference to this owner.
    pub fn controlled_by(&self, owner: &impl Sample) -> Self {
        self.owner(whole(owner.sample(), 1).controller_reference())
    }

    /// Adds an owner reference to this owner.
    pub fn owned_by(&self, owner: &impl Sample) -> Self {
        self.owner(whole(owner.sample(), 1).owner_reference())
    }

    fn owner(&self, owner: OwnerReference) -> Self {
        self.meta(|meta| {
            meta.owner_references.retain(|known| known.uid != owner.uid);
            meta.owner_references.push(owner);
        })
    }

    /// Sets the creation time, in seconds since 1970, and fills in missing metadata.
    ///
    /// The uid is derived from kind and key, the version is 999 and the generation 1.
    pub fn created(&self, second: i64) -> Self {
        Self(whole(self.meta(|meta| meta.creation_timestamp = None).0, second))
    }

    /// Sets the deletion time, in seconds since 1970.
    pub fn deleted(&self, second: i64) -> Self {
        self.meta(|meta| meta.deletion_timestamp = Some(at(second)))
    }

    /// Sets the generation.
    pub fn generation(&self, generation: i64) -> Self {
        self.meta(|meta| meta.generation = generation)
    }

    /// Sets the uid.
    pub fn uid(&self, uid: impl Into<String>) -> Self {
        self.meta(|meta| meta.uid = uid.into())
    }

    /// Sets the `resourceVersion`.
    pub fn resource_version(&self, version: impl Into<String>) -> Self {
        self.meta(|meta| meta.resource_version = version.into())
    }

    /// Sets the value at a JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)), such as `/spec/replicas`.
    ///
    /// Missing parents are created: a list before `-`, which means after the last entry, and an object everywhere else.
    ///
    /// # Panics
    ///
    /// Panics if the type has no such field, or the value does not match it.
    pub fn field(&self, pointer: &str, value: impl Into<Value>) -> Self {
        let (what, value) = (format!("{pointer} is set"), value.into());
        let made = self.edit(&what, |json| set(json, pointer, value.clone()));
        // Reading the object into the type drops unknown fields, and may drop empty values.
        let is_there = made.0.to_json().is_ok_and(|json| json.pointer(pointer).is_some());
        let is_known = is_there || pointer.ends_with("/-") || is_nothing(&value);
        assert!(is_known, "{}, as {what}: its type has no such field", self.0.object_ref());
        made
    }

    /// Removes the value at a JSON pointer.
    ///
    /// # Panics
    ///
    /// Panics if there is no value, or the type requires it.
    pub fn without(&self, pointer: &str) -> Self {
        self.edit(&format!("{pointer} is removed"), |json| remove(json, pointer))
    }

    /// Changes the `spec`, as JSON, with a function.
    ///
    /// # Panics
    ///
    /// Panics if the result does not match the type.
    pub fn spec(&self, change: impl FnOnce(&mut Value)) -> Self {
        self.part("spec", change)
    }

    /// Changes the status with a function.
    ///
    /// # Panics
    ///
    /// Panics if the object has no status.
    pub fn status(&self, change: impl FnOnce(&mut T::Status)) -> Self {
        self.change(|object| match object.status_mut() {
            Some(status) => change(status),
            None => panic!("a {} has no status", object.kind()),
        })
    }

    /// Sets a condition in `status.conditions`. It replaces the condition of the same type.
    ///
    /// In an object that a case gives, set its [time](Condition::last_transition_time()). A run that sets the condition
    /// again adds a missing time, and that is a status update.
    ///
    /// # Panics
    ///
    /// Panics if the condition does not match the type.
    pub fn condition(&self, condition: &Condition) -> Self {
        let condition = json!(condition);
        self.part("status", |status| {
            let mut conditions = match status["conditions"].take() {
                Value::Array(conditions) => conditions,
                _ => Vec::new(),
            };
            match conditions.iter_mut().find(|known| known["type"] == condition["type"]) {
                Some(known) => *known = condition,
                None => conditions.push(condition),
            }
            status["conditions"] = conditions.into();
        })
    }

    /// Changes a field as JSON. A missing field starts as an empty object.
    fn part(&self, field: &str, change: impl FnOnce(&mut Value)) -> Self {
        self.edit(&format!("{field} is changed"), |json| {
            let part = &mut json[field];
            if part.is_null() {
                *part = json!({});
            }
            change(part);
            Ok(())
        })
    }

    fn edit(&self, what: &str, edit: impl FnOnce(&mut Value) -> Result<(), String>) -> Self {
        let object = self.0.object_ref();
        let edited = || {
            let mut json = self.0.to_json().map_err(|error| error.to_string())?;
            edit(&mut json)?;
            T::from_shared(&json.into()).map_err(|error| error.to_string())
        };
        Self(edited().unwrap_or_else(|error| panic!("{object}, as {what}: {error}")))
    }
}

impl Factory {
    /// Creates a factory of an object with only a kind and a key.
    pub fn dynamic(kind: &Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self(DynamicObject::new(kind, namespace, name))
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(entries) => entries.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or_else(|error| panic!("{second} is no second of a date: {error}"))
}

/// Fills in missing metadata, as a client does for new objects.
pub(super) fn whole<T: Object>(mut object: T, second: i64) -> T {
    let (kind, key) = (object.kind(), object.key());
    let mut meta = object.meta_mut();
    if meta.uid.is_empty() {
        let name = if key.name().is_empty() { format!("{key}{}", meta.generate_name) } else { key.to_string() };
        meta.uid = match kind.group() {
            "" => format!("{}:{name}", kind.name()),
            group => format!("{}.{group}:{name}", kind.name()),
        };
    }
    if meta.resource_version.is_empty() {
        VERSION.clone_into(&mut meta.resource_version);
    }
    if meta.generation == 0 {
        meta.generation = 1;
    }
    meta.creation_timestamp.get_or_insert_with(|| at(second));
    drop(meta);
    object
}
