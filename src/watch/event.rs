//! The events that a watch delivers to its subscribers.

use std::fmt;
use std::sync::Arc;

/// An event that a [`Watch`](crate::Watch) delivers to a subscriber.
///
/// It is a change of one key, an unchanged item, or the end of the initial list.
///
/// The events of a key arrive in the order of its changes. If a subscriber lags, several changes of a key may be
/// combined: see [`Subscription`](crate::watch::Subscription).
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
    /// The key was added, or existed when the subscription began.
    Created {
        /// The key.
        key: K,
        /// The current value.
        new: Arc<T>,
    },
    /// The value of the key has changed.
    Updated {
        /// The key.
        key: K,
        /// The value that this subscriber received last.
        old: Arc<T>,
        /// The current value.
        new: Arc<T>,
    },
    /// The key was removed. A subscriber that lags may not have received its creation.
    Deleted {
        /// The key.
        key: K,
        /// The last value.
        last: Arc<T>,
    },
    /// The value has not changed. Sent by a resync, and by a listing to subscribers
    /// [`with_unchanged`](crate::Subscriber::with_unchanged).
    Unchanged {
        /// The key.
        key: K,
        /// The current value.
        value: Arc<T>,
    },
    /// The whole initial list has been delivered. Sent once per subscription.
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
    /// Returns the kind of the event.
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

    /// Returns the key, or `None` for [`Synced`](Self::Synced).
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

    /// Returns the current value, the last value of a deletion, or `None` for [`Synced`](Self::Synced).
    #[must_use]
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Created { new, .. } | Self::Updated { new, .. } => Some(new),
            Self::Deleted { last: value, .. } | Self::Unchanged { value, .. } => Some(value),
            Self::Synced => None,
        }
    }

    /// Returns the previous value of an [`Updated`](Self::Updated).
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
    /// Formats the kind and the key only: values may be long.
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
