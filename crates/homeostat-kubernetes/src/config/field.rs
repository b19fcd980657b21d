//! A kubeconfig field that may be null.

use std::ops::Deref;

use serde::{Deserialize, Deserializer};

/// A field. If it is missing or null, it has its default: an empty text, an empty list or false.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Field<T>(pub(super) T);

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<T>::deserialize(deserializer).map(|value| Self(value.unwrap_or_default()))
    }
}

impl<T> Deref for Field<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A list in which each entry may be null.
pub(super) type FieldList<T> = Field<Vec<Field<T>>>;
