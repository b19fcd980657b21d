//! What one subscriber has not been told yet: at most one entry a key, however far it lags. A plain value.
//!
//! An entry remembers what the subscriber knows (`told`), what was there when it was last deleted since (`gone`), and what is
//! there (`now`). From that the events are made when they are taken, so all that happens in between costs nothing:
//!
//! | since the subscriber was last told | it is told |
//! |---|---|
//! | created, updated, ... | created |
//! | updated, updated, ... | updated, from what it knows to what is there |
//! | ..., deleted | updated to the last value if it does not know that one, deleted |
//! | ..., deleted, created, ... | the same, then created |
//! | created, deleted | deleted: no deletion is hidden, also of what the subscriber has never heard of |
//!
//! Keys come in the order in which their entries were made, and the end of the initial list stands between them.

#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::event::Event;

/// What has happened to one key.
pub(crate) enum Change<T> {
    /// `initial`: as part of an initial list.
    Created {
        new: Arc<T>,
        initial: bool,
    },
    Updated {
        old: Arc<T>,
        new: Arc<T>,
    },
    Deleted {
        last: Arc<T>,
    },
    Unchanged {
        value: Arc<T>,
    },
}

impl<T> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Created { new, initial } => Self::Created { new: Arc::clone(new), initial: *initial },
            Self::Updated { old, new } => Self::Updated { old: Arc::clone(old), new: Arc::clone(new) },
            Self::Deleted { last } => Self::Deleted { last: Arc::clone(last) },
            Self::Unchanged { value } => Self::Unchanged { value: Arc::clone(value) },
        }
    }
}

#[derive(Debug)]
pub(crate) struct Backlog<K, T, S> {
    entries: HashMap<K, Entry<T>, S>,
    /// Each key of `entries` once, and the end of the initial list.
    order: VecDeque<Place<K>>,
}

#[derive(Debug)]
enum Place<K> {
    Key(K),
    Synced,
}

#[derive(Debug)]
struct Entry<T> {
    /// What the subscriber knows; `None`: that there is nothing.
    told: Option<Arc<T>>,
    /// The last value before the latest deletion that it has not been told of.
    gone: Option<Arc<T>>,
    /// What is there.
    now: Option<Arc<T>>,
    /// Nothing but its creation as part of an initial list.
    initial: bool,
    /// Nothing but a resync.
    unchanged: bool,
}

/// An event that is handed to the subscriber.
#[derive(Debug)]
pub(crate) struct Told<K, T> {
    pub(crate) event: Event<K, T>,
    pub(crate) initial: bool,
    /// A key to be dropped where the event is: outside the lock.
    pub(crate) spare: Option<K>,
}

impl<K: Clone + Eq + Hash, T, S: BuildHasher + Default> Backlog<K, T, S> {
    pub(crate) fn new() -> Self {
        Self { entries: HashMap::default(), order: VecDeque::new() }
    }

    /// How many keys there is something to say of, and one more for the end of the initial list.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Adds what has happened. Returns the values that it makes forgotten, to be dropped outside the lock.
    ///
    /// Changes must follow each other: what is created was not there, what is updated was as it says.
    pub(crate) fn add(&mut self, key: &K, change: Change<T>) -> [Option<Arc<T>>; 2] {
        if let Some(entry) = self.entries.get_mut(key) {
            return entry.add(change);
        }
        // Both clones before anything changes: they may panic.
        let (place, owned) = (Place::Key(key.clone()), key.clone());
        self.entries.insert(owned, Entry::new(change));
        self.order.push_back(place);
        [None, None]
    }

    /// The initial list ends here.
    pub(crate) fn add_synced(&mut self) {
        self.order.push_back(Place::Synced);
    }

    /// The next event, if there is one.
    pub(crate) fn take(&mut self) -> Option<Told<K, T>> {
        let Place::Key(next) = self.order.front()? else {
            self.order.pop_front();
            return Some(Told { event: Event::Synced, initial: true, spare: None });
        };
        let entry = self.entries.get_mut(next)?;
        let initial = entry.initial;
        if entry.events() > 1 {
            let key = next.clone();
            return entry.tell(key).map(|event| Told { event, initial, spare: None });
        }
        let (spare, mut entry) = self.entries.remove_entry(next)?;
        let Some(Place::Key(key)) = self.order.pop_front() else { return None };
        entry.tell(key).map(|event| Told { event, initial, spare: Some(spare) })
    }
}

impl<T> Entry<T> {
    fn new(change: Change<T>) -> Self {
        let mut entry = Self { told: None, gone: None, now: None, initial: false, unchanged: false };
        match change {
            Change::Created { new, initial } => {
                entry.now = Some(new);
                entry.initial = initial;
            }
            Change::Updated { old, new } => {
                entry.told = Some(old);
                entry.now = Some(new);
            }
            Change::Deleted { last } => {
                entry.told = Some(Arc::clone(&last));
                entry.gone = Some(last);
            }
            Change::Unchanged { value } => {
                entry.told = Some(Arc::clone(&value));
                entry.now = Some(value);
                entry.unchanged = true;
            }
        }
        entry
    }

    fn add(&mut self, change: Change<T>) -> [Option<Arc<T>>; 2] {
        if let Change::Unchanged { value } = change {
            // Whatever else there is to say says more.
            return [Some(value), None];
        }
        self.initial = false;
        self.unchanged = false;
        match change {
            Change::Created { new, .. } => [self.now.replace(new), None],
            Change::Updated { old, new } => [self.now.replace(new), Some(old)],
            Change::Deleted { last } => [self.now.take(), self.gone.replace(last)],
            Change::Unchanged { value } => [Some(value), None],
        }
    }

    /// Whether it has to be told of the last value before it can be told that this one is gone.
    fn missed_the_last(&self) -> bool {
        matches!((&self.told, &self.gone), (Some(told), Some(gone)) if !Arc::ptr_eq(told, gone))
    }

    /// How many events it takes to tell it all.
    fn events(&self) -> usize {
        usize::from(self.missed_the_last()) + usize::from(self.gone.is_some()) + usize::from(self.now.is_some())
    }

    /// The next of these events.
    fn tell<K>(&mut self, key: K) -> Option<Event<K, T>> {
        if self.missed_the_last() {
            let new = Arc::clone(self.gone.as_ref()?);
            let old = self.told.replace(Arc::clone(&new))?;
            return Some(Event::Updated { key, old, new });
        }
        let told = self.told.take();
        if let Some(last) = self.gone.take() {
            return Some(Event::Deleted { key, last });
        }
        let new = self.now.take()?;
        Some(match told {
            None => Event::Created { key, new },
            Some(_) if self.unchanged => Event::Unchanged { key, value: new },
            Some(old) => Event::Updated { key, old, new },
        })
    }
}
