//! A view of a JSON value, in a `Value` or in a stored object.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};

use super::packed::{Packed, PackedNode};

/// A view of a JSON value, in a [`Value`] or in a [`SharedObject`](super::SharedObject). Copying it copies no JSON.
///
/// The methods do the same as the methods of [`Value`] with these names.
///
/// # Examples
///
/// ```
/// use homeostat_objects::SharedObject;
/// use serde_json::json;
///
/// let object = SharedObject::from(json!({"spec": {"replicas": 3, "zones": ["a", "b"]}}));
/// let spec = object.get("spec").unwrap();
/// assert_eq!(spec.get("replicas").and_then(|replicas| replicas.as_u64()), Some(3));
/// assert_eq!(spec.pointer("/zones/1").unwrap(), json!("b"));
/// assert_eq!(spec.to_string(), r#"{"replicas":3,"zones":["a","b"]}"#);
/// ```
#[derive(Clone, Copy)]
pub struct ValueRef<'a>(Form<'a>);

#[derive(Clone, Copy)]
enum Form<'a> {
    Value(&'a Value),
    Packed(Packed<'a>),
}

/// One of two iterators.
enum Either<A, B> {
    Value(A),
    Packed(B),
}

impl<A: Iterator, B: Iterator<Item = A::Item>> Iterator for Either<A, B> {
    type Item = A::Item;

    fn next(&mut self) -> Option<A::Item> {
        match self {
            Self::Value(items) => items.next(),
            Self::Packed(items) => items.next(),
        }
    }
}

impl<'a> ValueRef<'a> {
    pub(super) fn packed(value: Packed<'a>) -> Self {
        Self(Form::Packed(value))
    }

    /// Returns a field of an object; `None` if the field is missing or this is not an object.
    #[must_use]
    pub fn get(self, field: &str) -> Option<Self> {
        match self.0 {
            Form::Value(value) => value.get(field).map(Self::from),
            Form::Packed(value) => value.get(field).map(Self::packed),
        }
    }

    /// Returns the value at a JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)), such as
    /// `/spec/replicas`; `None` if it is missing.
    #[must_use]
    pub fn pointer(self, pointer: &str) -> Option<Self> {
        match self.0 {
            Form::Value(value) => value.pointer(pointer).map(Self::from),
            Form::Packed(value) => value.pointer(pointer).map(Self::packed),
        }
    }

    /// Returns the items of an array. Any other value has none.
    pub fn items(self) -> impl Iterator<Item = Self> {
        match self.0 {
            Form::Value(value) => Either::Value(value.as_array().into_iter().flatten().map(Self::from)),
            Form::Packed(value) => Either::Packed(value.items().map(Self::packed)),
        }
    }

    /// Returns the names and values of an object's fields. Any other value has none.
    pub fn fields(self) -> impl Iterator<Item = (&'a str, Self)> {
        match self.0 {
            Form::Value(value) => {
                let fields = value.as_object().into_iter().flatten();
                Either::Value(fields.map(|(name, value)| (name.as_str(), Self::from(value))))
            }
            Form::Packed(value) => Either::Packed(value.fields().map(|(name, value)| (name, Self::packed(value)))),
        }
    }

    /// Returns a string; `None` for any other value.
    #[must_use]
    pub fn as_str(self) -> Option<&'a str> {
        match self.0 {
            Form::Value(value) => value.as_str(),
            Form::Packed(value) => value.as_str(),
        }
    }

    /// Returns a bool; `None` for any other value.
    #[must_use]
    pub fn as_bool(self) -> Option<bool> {
        match self.0 {
            Form::Value(value) => value.as_bool(),
            Form::Packed(value) => {
                if let PackedNode::Bool(bool) = value.node() {
                    Some(bool)
                } else {
                    None
                }
            }
        }
    }

    /// Returns an integer; `None` for any other value, and for integers outside the range of `i64`.
    #[must_use]
    pub fn as_i64(self) -> Option<i64> {
        self.as_number()?.as_i64()
    }

    /// Returns an integer; `None` for any other value, and for integers outside the range of `u64`.
    #[must_use]
    pub fn as_u64(self) -> Option<u64> {
        self.as_number()?.as_u64()
    }

    /// Returns a number, rounded if necessary; `None` for any other value.
    #[must_use]
    pub fn as_f64(self) -> Option<f64> {
        self.as_number()?.as_f64()
    }

    /// Returns a number; `None` for any other value.
    #[must_use]
    pub fn as_number(self) -> Option<Number> {
        match self.0 {
            Form::Value(value) => value.as_number().cloned(),
            Form::Packed(value) => value.number(),
        }
    }

    /// Returns whether this is `null`.
    #[must_use]
    pub fn is_null(self) -> bool {
        match self.0 {
            Form::Value(value) => value.is_null(),
            Form::Packed(value) => matches!(value.node(), PackedNode::Null),
        }
    }

    /// Returns whether this is an array.
    #[must_use]
    pub fn is_array(self) -> bool {
        match self.0 {
            Form::Value(value) => value.is_array(),
            Form::Packed(value) => matches!(value.node(), PackedNode::Array(_)),
        }
    }

    /// Returns whether this is an object.
    #[must_use]
    pub fn is_object(self) -> bool {
        match self.0 {
            Form::Value(value) => value.is_object(),
            Form::Packed(value) => matches!(value.node(), PackedNode::Object(_)),
        }
    }

    /// Returns whether two objects have the same fields.
    fn has_fields_of(self, other: Self) -> bool {
        let (mut ours, mut theirs) = (self.fields(), other.fields());
        loop {
            return match (ours.next(), theirs.next()) {
                (Some((name, value)), Some((other, other_value))) if name == other => {
                    if value == other_value {
                        continue;
                    }
                    false
                }
                // The order of fields may differ.
                (Some(_), Some(_)) => self.to_value() == other.to_value(),
                (ours, theirs) => ours.is_none() && theirs.is_none(),
            };
        }
    }

    /// Returns a copy of the value.
    #[must_use]
    pub fn to_value(self) -> Value {
        match self.0 {
            Form::Value(value) => value.clone(),
            Form::Packed(value) => value.to_value(),
        }
    }

    /// Reads the value as a value of a type.
    ///
    /// # Errors
    ///
    /// If the JSON does not match the type, or is nested more than 256 levels deep in a
    /// [`SharedObject`](super::SharedObject).
    pub fn to_typed<T: DeserializeOwned>(self) -> Result<T, serde_json::Error> {
        match self.0 {
            Form::Value(value) => T::deserialize(value),
            Form::Packed(value) => value.to_typed(),
        }
    }
}

impl<'a> From<&'a Value> for ValueRef<'a> {
    fn from(json: &'a Value) -> Self {
        Self(Form::Value(json))
    }
}

impl PartialEq for ValueRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self.0, other.0) {
            (Form::Packed(one), Form::Packed(other)) if one == other => true,
            (Form::Value(one), Form::Value(other)) => one == other,
            // Equal values can have different packed forms: 0.0 equals -0.0.
            _ if self.is_object() && other.is_object() => self.has_fields_of(*other),
            _ if self.is_array() && other.is_array() => self.items().eq(other.items()),
            _ => match (self.as_str(), other.as_str()) {
                (None, None) => self.to_value() == other.to_value(),
                (one, other) => one == other,
            },
        }
    }
}

impl PartialEq<Value> for ValueRef<'_> {
    fn eq(&self, other: &Value) -> bool {
        *self == ValueRef::from(other)
    }
}

impl PartialEq<str> for ValueRef<'_> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == Some(other)
    }
}

impl PartialEq<&str> for ValueRef<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == Some(other)
    }
}

/// Writes the value as JSON.
impl Serialize for ValueRef<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Form::Value(value) => value.serialize(serializer),
            Form::Packed(value) => value.serialize(serializer),
        }
    }
}

/// Writes the value as JSON.
impl fmt::Display for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Form::Value(value) => value.fmt(f),
            Form::Packed(value) => value.fmt(f),
        }
    }
}

/// Writes the value as JSON.
impl fmt::Debug for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
