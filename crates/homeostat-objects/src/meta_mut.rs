//! Changeable access to the metadata of an object, and to the field that holds it.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, DerefMut};

use super::meta::ObjectMeta;

/// The metadata of an object, for changes. Dereferences to [`ObjectMeta`].
///
/// If the object has a field of type `ObjectMeta`, this borrows the field. Otherwise it holds a copy, and dropping it
/// writes the copy back.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{MetaMut, ObjectMeta};
///
/// let mut meta = ObjectMeta::new("default", "web");
/// MetaMut::from(&mut meta).finalizers.push("example.com/a".to_owned());
///
/// let mut name = String::new();
/// MetaMut::copied(meta.clone(), |changed| name = changed.name).name.push_str("-1");
/// assert_eq!((meta.finalizers.len(), &*name), (1, "web-1"));
/// ```
pub struct MetaMut<'a>(Lent<'a>);

enum Lent<'a> {
    Field(&'a mut ObjectMeta),
    /// The copy, and the function that writes it back. The drop takes the function.
    Copy(Box<ObjectMeta>, Option<Box<dyn FnOnce(ObjectMeta) + 'a>>),
}

impl<'a> MetaMut<'a> {
    /// Returns metadata that `write_back` stores in the object when the value is dropped.
    #[must_use]
    pub fn copied(meta: ObjectMeta, write_back: impl FnOnce(ObjectMeta) + 'a) -> Self {
        Self(Lent::Copy(Box::new(meta), Some(Box::new(write_back))))
    }
}

impl<'a> From<&'a mut ObjectMeta> for MetaMut<'a> {
    fn from(meta: &'a mut ObjectMeta) -> Self {
        Self(Lent::Field(meta))
    }
}

impl Deref for MetaMut<'_> {
    type Target = ObjectMeta;

    fn deref(&self) -> &ObjectMeta {
        match &self.0 {
            Lent::Field(meta) => meta,
            Lent::Copy(meta, _) => meta,
        }
    }
}

impl DerefMut for MetaMut<'_> {
    fn deref_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Lent::Field(meta) => meta,
            Lent::Copy(meta, _) => meta,
        }
    }
}

impl Drop for MetaMut<'_> {
    fn drop(&mut self) {
        if let Lent::Copy(meta, write_back) = &mut self.0
            && let Some(write_back) = write_back.take()
        {
            write_back(std::mem::take(&mut **meta));
        }
    }
}

impl fmt::Debug for MetaMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The field `metadata` of an [`object!`](crate::object!): an [`ObjectMeta`], or the `ObjectMeta` of k8s-openapi
/// (feature `k8s-openapi`). Only the macro calls its methods.
///
/// They have unusual names, so that a glob import hides no other method.
pub trait MetaField {
    /// Returns the metadata.
    fn meta_field(&self) -> Cow<'_, ObjectMeta>;
    /// Returns the metadata for changes.
    fn meta_field_mut(&mut self) -> MetaMut<'_>;
}

impl MetaField for ObjectMeta {
    fn meta_field(&self) -> Cow<'_, ObjectMeta> {
        Cow::Borrowed(self)
    }

    fn meta_field_mut(&mut self) -> MetaMut<'_> {
        self.into()
    }
}
