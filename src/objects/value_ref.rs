//! A view of a JSON value, in a `Value` or in a stored object.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A view of a JSON value, in a [`Value`] or in a [`SharedObject`](super::SharedObject). Copying it copies no JSON.
///
/// The methods do the same as the methods of [`Value`] with these names.
///
/// # Examples
///
/// ```
/// use homeostat::objects::SharedObject;
/// use serde_json::json;
///
/// let object = SharedObject::from(json!({"spec": {"replicas": 3, "zones": ["a", "b"]}}));
/// let spec = object.get("spec").unwrap();
/// assert_eq!(spec.get("replicas").and_then(|replicas| replicas.as_u64()), Some(3));
/// assert_eq!(spec.pointer("/zones/1").unwrap(), json!("b"));
/// assert_eq!(spec.to_string(), r#"{"replicas":3,"zones":["a","b"]}"#);
/// ```
#[derive(Clone, Copy)]
pub struct ValueRef<'a>(&'a Value);

impl<'a> ValueRef<'a> {
    /// Returns a field of an object; `None` if the field is missing or this is no object.
    #[must_use]
    pub fn get(self, field: &str) -> Option<Self> {
        self.0.get(field).map(Self)
    }

    /// Returns the value at a JSON pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)), such as `/spec/replicas`; `None`
    /// if it is missing.
    #[must_use]
    pub fn pointer(self, pointer: &str) -> Option<Self> {
        self.0.pointer(pointer).map(Self)
    }

    /// Returns the items of an array. Any other value has none.
    pub fn items(self) -> impl Iterator<Item = Self> {
        self.0.as_array().into_iter().flatten().map(Self)
    }

    /// Returns the names and values of an object's fields. Any other value has none.
    pub fn fields(self) -> impl Iterator<Item = (&'a str, Self)> {
        self.0.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), Self(value)))
    }

    /// Returns a string; `None` for any other value.
    #[must_use]
    pub fn as_str(self) -> Option<&'a str> {
        self.0.as_str()
    }

    /// Returns a bool; `None` for any other value.
    #[must_use]
    pub fn as_bool(self) -> Option<bool> {
        self.0.as_bool()
    }

    /// Returns an integer; `None` for any other value, and for integers outside the range of `i64`.
    #[must_use]
    pub fn as_i64(self) -> Option<i64> {
        self.0.as_i64()
    }

    /// Returns an integer; `None` for any other value, and for integers outside the range of `u64`.
    #[must_use]
    pub fn as_u64(self) -> Option<u64> {
        self.0.as_u64()
    }

    /// Returns a number, rounded if necessary; `None` for any other value.
    #[must_use]
    pub fn as_f64(self) -> Option<f64> {
        self.0.as_f64()
    }

    /// Returns whether this is `null`.
    #[must_use]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns whether this is a number.
    #[must_use]
    pub fn is_number(self) -> bool {
        self.0.is_number()
    }

    /// Returns whether this is an array.
    #[must_use]
    pub fn is_array(self) -> bool {
        self.0.is_array()
    }

    /// Returns whether this is an object.
    #[must_use]
    pub fn is_object(self) -> bool {
        self.0.is_object()
    }

    /// Returns a copy of the value.
    #[must_use]
    pub fn to_value(self) -> Value {
        self.0.clone()
    }

    /// Reads the value as a value of a type.
    ///
    /// # Errors
    ///
    /// If the JSON does not match the type.
    pub fn to_typed<T: DeserializeOwned>(self) -> Result<T, serde_json::Error> {
        T::deserialize(self.0)
    }
}

impl<'a> From<&'a Value> for ValueRef<'a> {
    fn from(json: &'a Value) -> Self {
        Self(json)
    }
}

impl PartialEq for ValueRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl PartialEq<Value> for ValueRef<'_> {
    fn eq(&self, other: &Value) -> bool {
        self.0 == other
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
        self.0.serialize(serializer)
    }
}

/// Writes the value as JSON.
impl fmt::Display for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Writes the value as JSON.
impl fmt::Debug for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
