//! What happens to a watched thing, as a subscriber is told of it.

use std::fmt;
use std::sync::Arc;

/// One thing that a subscriber of a [`Watch`](crate::Watch) is told.
///
/// Of one key the events follow each other as they happened, but a subscriber that lags is told less of what lies between: see
/// [`Subscription`](crate::watch::Subscription).
///
/// # Examples
///
/// ```
/// use homeostat::Event;
/// use homeostat::watch::EventKind;
/// use std::sync::Arc;
///
/// let event = Event::Updated { key: "vm-1", old: Arc::new(1), new: Arc::new(2) };
/// assert_eq!(event.kind(), EventKind::Updated);
/// assert_eq!(event.key(), Some(&"vm-1"));
/// assert_eq!((event.old(), event.value()), (Some(&1), Some(&2)));
/// assert_eq!(Event::<&str, u32>::Synced.key(), None);
/// ```
#[derive(PartialEq, Eq)]
pub enum Event<K, T> {
    /// It is there, and was not before; also what a new subscriber finds there.
    Created {
        /// Its key.
        key: K,
        /// What it is.
        new: Arc<T>,
    },
    /// It is no longer what it was.
    Updated {
        /// Its key.
        key: K,
        /// What it was when this subscriber was last told of it.
        old: Arc<T>,
        /// What it is.
        new: Arc<T>,
    },
    /// It is gone. A subscriber that lags may not have been told that it was there.
    Deleted {
        /// Its key.
        key: K,
        /// What it was at the end.
        last: Arc<T>,
    },
    /// It is what it was: a resync found it so.
    Unchanged {
        /// Its key.
        key: K,
        /// What it is.
        value: Arc<T>,
    },
    /// The subscriber has been told of all that the initial list held. Once for each subscription.
    Synced,
}

/// The kind of an [`Event`].
///
/// # Examples
///
/// ```
/// use homeostat::Event;
/// use homeostat::watch::EventKind;
///
/// assert_eq!(Event::<u64, String>::Synced.kind(), EventKind::Synced);
/// assert_eq!(EventKind::Deleted.to_string(), "deleted");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// [`Event::Created`].
    Created,
    /// [`Event::Updated`].
    Updated,
    /// [`Event::Deleted`].
    Deleted,
    /// [`Event::Unchanged`].
    Unchanged,
    /// [`Event::Synced`].
    Synced,
}

impl<K, T> Event<K, T> {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Created { .. } => EventKind::Created,
            Self::Updated { .. } => EventKind::Updated,
            Self::Deleted { .. } => EventKind::Deleted,
            Self::Unchanged { .. } => EventKind::Unchanged,
            Self::Synced => EventKind::Synced,
        }
    }

    /// The key that it is about; `None` for [`Synced`](Self::Synced).
    #[must_use]
    pub fn key(&self) -> Option<&K> {
        match self {
            Self::Created { key, .. }
            | Self::Updated { key, .. }
            | Self::Deleted { key, .. }
            | Self::Unchanged { key, .. } => Some(key),
            Self::Synced => None,
        }
    }

    /// What the thing is, or was at the end; `None` for [`Synced`](Self::Synced).
    #[must_use]
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Created { new, .. } | Self::Updated { new, .. } => Some(new),
            Self::Deleted { last: value, .. } | Self::Unchanged { value, .. } => Some(value),
            Self::Synced => None,
        }
    }

    /// What the thing was before an [`Updated`](Self::Updated).
    #[must_use]
    pub fn old(&self) -> Option<&T> {
        match self {
            Self::Updated { old, .. } => Some(old),
            _ => None,
        }
    }
}

impl<K: Clone, T> Clone for Event<K, T> {
    fn clone(&self) -> Self {
        match self {
            Self::Created { key, new } => Self::Created { key: key.clone(), new: Arc::clone(new) },
            Self::Updated { key, old, new } => {
                Self::Updated { key: key.clone(), old: Arc::clone(old), new: Arc::clone(new) }
            }
            Self::Deleted { key, last } => Self::Deleted { key: key.clone(), last: Arc::clone(last) },
            Self::Unchanged { key, value } => Self::Unchanged { key: key.clone(), value: Arc::clone(value) },
            Self::Synced => Self::Synced,
        }
    }
}

impl<K: fmt::Debug, T> fmt::Debug for Event<K, T> {
    /// The kind and the key: values may be long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key() {
            Some(key) => write!(f, "{:?}({key:?})", self.kind()),
            None => f.write_str("Synced"),
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
            Self::Unchanged => "unchanged",
            Self::Synced => "synced",
        })
    }
}
