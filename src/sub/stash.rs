//! What steps of one run leave for those behind them.

use std::any::{Any, type_name};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use crate::base::sync::Mutex;
use crate::objects::ObjectRef;

/// The name of a value in a [`Stash`], and its type. Made once, as a constant.
///
/// # Examples
///
/// ```
/// use homeostat::sub::StashKey;
///
/// const IMAGE: StashKey<String> = StashKey::new("image");
/// assert_eq!(IMAGE.name(), "image");
/// ```
pub struct StashKey<V> {
    name: &'static str,
    value: PhantomData<fn() -> V>,
}

impl<V> StashKey<V> {
    /// A key of this name. Keys are the same if their names are.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, value: PhantomData }
    }

    /// The name.
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

/// What can be stashed: anything that can be copied, compared and shown, so that a test can say what it expects.
///
/// The trait holds for nearly every type, so its methods have names that no other type uses: a glob import shadows nothing.
pub trait Stashed: Any + fmt::Debug + Send + Sync {
    /// Whether the other one is of the same type and equal.
    fn stashed_eq(&self, other: &dyn Stashed) -> bool;

    /// The same value once more.
    fn stashed_clone(&self) -> Box<dyn Stashed>;

    /// The name of its type.
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

/// What steps of one run leave for those behind them: gone with the run.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{Kind, ObjectKey, ObjectRef};
/// use homeostat::sub::{Stash, StashKey};
///
/// const IMAGE: StashKey<String> = StashKey::new("image");
/// let stash = Stash::new(ObjectRef::new(&Kind::namespaced("example.com", "v1", "App"), &ObjectKey::new("default", "shop")));
/// assert_eq!(stash.require(IMAGE).unwrap_err().to_string(), "App default/shop: nothing is stashed as \"image\"");
/// stash.put(IMAGE, "shop:1".to_owned());
/// assert_eq!(stash.get(IMAGE)?.as_deref(), Some("shop:1"));
/// # Ok::<_, homeostat::sub::StashError>(())
/// ```
#[derive(Debug)]
pub struct Stash {
    object: ObjectRef,
    values: Mutex<BTreeMap<&'static str, Box<dyn Stashed>>>,
}

/// What is asked of a [`Stash`] is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StashError {
    /// No step has put it there.
    Missing {
        /// Whose run it is.
        object: ObjectRef,
        /// The name of the key.
        key: &'static str,
    },
    /// A key of the same name and another type has put it there.
    OtherType {
        /// Whose run it is.
        object: ObjectRef,
        /// The name of the key.
        key: &'static str,
        /// The type of what is there.
        found: &'static str,
        /// The type that is asked for.
        wanted: &'static str,
    },
}

impl fmt::Display for StashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { object, key } => write!(f, "{object}: nothing is stashed as {key:?}"),
            Self::OtherType { object, key, found, wanted } => {
                write!(f, "{object}: what is stashed as {key:?} is a {found}, not a {wanted}")
            }
        }
    }
}

impl std::error::Error for StashError {}

impl Stash {
    /// An empty one, for a run of this object.
    #[must_use]
    pub fn new(object: ObjectRef) -> Self {
        Self { object, values: Mutex::new(BTreeMap::new()) }
    }

    /// Puts a value there, in the place of what was there under this name.
    pub fn put<V: Stashed>(&self, key: StashKey<V>, value: V) {
        self.put_boxed(key.name, Some(Box::new(value)));
    }

    /// Puts a value there, or takes what is there away. Returns what was there.
    pub(crate) fn put_boxed(&self, name: &'static str, value: Option<Box<dyn Stashed>>) -> Option<Box<dyn Stashed>> {
        let mut values = self.values.lock();
        match value {
            Some(value) => values.insert(name, value),
            None => values.remove(name),
        }
    }

    /// Has a value there while `f` runs, and behind it what was there before.
    pub(super) fn during<V: Stashed, R>(&self, key: StashKey<V>, value: V, f: impl FnOnce() -> R) -> R {
        let before = self.put_boxed(key.name, Some(Box::new(value)));
        let result = f();
        self.put_boxed(key.name, before);
        result
    }

    /// A copy of the value, if there is one.
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

    /// A copy of the value.
    ///
    /// # Errors
    ///
    /// [`StashError::Missing`], [`StashError::OtherType`].
    pub fn require<V: Stashed + Clone>(&self, key: StashKey<V>) -> Result<V, StashError> {
        self.get(key)?.ok_or_else(|| StashError::Missing { object: self.object.clone(), key: key.name })
    }

    /// Takes the value away. Returns whether there was one.
    pub fn remove<V>(&self, key: StashKey<V>) -> bool {
        self.put_boxed(key.name, None).is_some()
    }

    /// The names and values of all that is there, in the order of the names.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(&'static str, Box<dyn Stashed>)> {
        self.values.lock().iter().map(|(name, value)| (*name, (**value).stashed_clone())).collect()
    }
}
