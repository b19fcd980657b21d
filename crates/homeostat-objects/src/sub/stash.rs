//! Values that earlier steps of a run store for later steps.

use std::any::{Any, type_name};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use crate::ObjectRef;
use crate::sync::Mutex;
use homeostat::rt::debug_with_causes;

/// The name and type of a value in a [`Stash`]. Define it as a constant.
///
/// # Examples
///
/// ```
/// use homeostat_objects::sub::StashKey;
///
/// const IMAGE: StashKey<String> = StashKey::new("image");
/// assert_eq!(IMAGE.name(), "image");
/// ```
pub struct StashKey<V> {
    name: &'static str,
    value: PhantomData<fn() -> V>,
}

impl<V> StashKey<V> {
    /// Creates a key. Keys with the same name are the same.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, value: PhantomData }
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<V> Clone for StashKey<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for StashKey<V> {}

impl<V> fmt::Debug for StashKey<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StashKey({:?}: {})", self.name, type_name::<V>())
    }
}

/// A value that can be stashed: any type that is `Clone`, `PartialEq` and `Debug`, so that tests can compare it.
///
/// Nearly every type implements this trait, so its methods have unusual names: a glob import hides no other method.
pub trait Stashed: Any + fmt::Debug + Send + Sync {
    /// Returns whether `other` has the same type and is equal.
    fn stashed_eq(&self, other: &dyn Stashed) -> bool;

    /// Returns a copy.
    fn stashed_clone(&self) -> Box<dyn Stashed>;

    /// Returns the name of the type.
    fn stashed_type_name(&self) -> &'static str;
}

impl<V: Any + Clone + PartialEq + fmt::Debug + Send + Sync> Stashed for V {
    fn stashed_eq(&self, other: &dyn Stashed) -> bool {
        (other as &dyn Any).downcast_ref::<V>().is_some_and(|other| self == other)
    }

    fn stashed_clone(&self) -> Box<dyn Stashed> {
        Box::new(self.clone())
    }

    fn stashed_type_name(&self) -> &'static str {
        type_name::<V>()
    }
}

/// Values that earlier steps of a run store for later steps. They last until the run ends.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Kind, ObjectKey, ObjectRef};
/// use homeostat_objects::sub::{Stash, StashKey};
///
/// const IMAGE: StashKey<String> = StashKey::new("image");
/// let stash = Stash::new(ObjectRef::new(&Kind::namespaced("example.com", "v1", "App"), &ObjectKey::new("default", "shop")));
/// assert_eq!(stash.require(IMAGE).unwrap_err().to_string(), "App default/shop: nothing is stashed as \"image\"");
/// stash.put(IMAGE, "shop:1".to_owned());
/// assert_eq!(stash.get(IMAGE)?.as_deref(), Some("shop:1"));
/// # Ok::<_, homeostat_objects::sub::StashError>(())
/// ```
#[derive(Debug)]
pub struct Stash {
    object: ObjectRef,
    values: Mutex<BTreeMap<&'static str, Box<dyn Stashed>>>,
}

/// The error of reading a [`Stash`].
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StashError {
    /// No step has stashed the value.
    Missing {
        /// The reconciled object.
        object: ObjectRef,
        /// The name of the key.
        key: &'static str,
    },
    /// The stashed value has another type.
    OtherType {
        /// The reconciled object.
        object: ObjectRef,
        /// The name of the key.
        key: &'static str,
        /// The type of the stashed value.
        found: &'static str,
        /// The type of the key.
        wanted: &'static str,
    },
}

impl fmt::Display for StashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { object, key } => write!(f, "{object}: nothing is stashed as {key:?}"),
            Self::OtherType { object, key, found, wanted } => {
                write!(f, "{object}: the value stashed as {key:?} is a {found}, not a {wanted}")
            }
        }
    }
}

debug_with_causes!(StashError);

impl std::error::Error for StashError {}

impl Stash {
    /// Creates an empty stash for a run of this object.
    #[must_use]
    pub fn new(object: ObjectRef) -> Self {
        Self { object, values: Mutex::new(BTreeMap::new()) }
    }

    /// Stashes a value. It replaces an older one.
    pub fn put<V: Stashed>(&self, key: StashKey<V>, value: V) {
        self.put_boxed(key.name, Some(Box::new(value)));
    }

    /// Stashes or removes a value. Returns the older one.
    fn put_boxed(&self, name: &'static str, value: Option<Box<dyn Stashed>>) -> Option<Box<dyn Stashed>> {
        let mut values = self.values.lock();
        match value {
            Some(value) => values.insert(name, value),
            None => values.remove(name),
        }
    }

    /// Stashes a value while `f` runs, then restores the older one.
    pub(super) fn during<V: Stashed, R>(&self, key: StashKey<V>, value: V, f: impl FnOnce() -> R) -> R {
        let before = self.put_boxed(key.name, Some(Box::new(value)));
        let result = f();
        self.put_boxed(key.name, before);
        result
    }

    /// Returns a copy of the value, or `None` if no step has stashed one.
    ///
    /// # Errors
    ///
    /// [`StashError::OtherType`].
    pub fn get<V: Stashed + Clone>(&self, key: StashKey<V>) -> Result<Option<V>, StashError> {
        let values = self.values.lock();
        let Some(value) = values.get(key.name) else { return Ok(None) };
        match (&**value as &dyn Any).downcast_ref::<V>() {
            Some(value) => Ok(Some(value.clone())),
            None => Err(StashError::OtherType {
                object: self.object.clone(),
                key: key.name,
                found: (**value).stashed_type_name(),
                wanted: type_name::<V>(),
            }),
        }
    }

    /// Returns a copy of the value.
    ///
    /// # Errors
    ///
    /// [`StashError::Missing`] and [`StashError::OtherType`].
    pub fn require<V: Stashed + Clone>(&self, key: StashKey<V>) -> Result<V, StashError> {
        self.get(key)?.ok_or_else(|| StashError::Missing { object: self.object.clone(), key: key.name })
    }

    /// Removes the value. Returns whether there was one.
    pub fn remove<V>(&self, key: StashKey<V>) -> bool {
        self.put_boxed(key.name, None).is_some()
    }

    /// Stashes the values of a [`snapshot`](Self::snapshot). They replace older ones of the same names.
    pub fn restore(&self, values: impl IntoIterator<Item = (&'static str, Box<dyn Stashed>)>) {
        self.values.lock().extend(values);
    }

    /// Returns all names and values, sorted by name.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(&'static str, Box<dyn Stashed>)> {
        self.values.lock().iter().map(|(name, value)| (*name, (**value).stashed_clone())).collect()
    }
}
