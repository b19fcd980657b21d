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
//!
//! User code is the `Hash`, `Eq` and `Clone` of a key in [`add`](Backlog::add), and its `Clone` in [`take`](Backlog::take) where
//! one entry makes several events; always before anything changes.

#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use hashbrown::HashTable;

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
    /// In the order in which they are told.
    places: VecDeque<Place<K, T>>,
    /// The number of the first place; the others count on from it, and may wrap.
    first: usize,
    /// The numbers of the places that have a key.
    index: HashTable<usize>,
    hasher: S,
}

#[derive(Debug)]
enum Place<K, T> {
    Key(Keyed<K, T>),
    /// The end of the initial list.
    Synced,
}

/// A key, its hash, and what there is to say of it.
#[derive(Debug)]
struct Keyed<K, T> {
    key: K,
    hash: u64,
    entry: Entry<T>,
}

impl<K, T> Place<K, T> {
    fn keyed(&self) -> Option<&Keyed<K, T>> {
        match self {
            Self::Key(keyed) => Some(keyed),
            Self::Synced => None,
        }
    }
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
}

/// A key and values that are to be dropped outside the lock.
pub(crate) type Forgotten<K, T> = (Option<K>, [Option<Arc<T>>; 3]);

impl<K, T, S> Backlog<K, T, S> {
    /// How many keys there is something to say of, and one more for the end of the initial list.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The number of the first place. It wraps.
    pub(crate) fn first(&self) -> usize {
        self.first
    }

    /// The number of the place that is added next. It wraps.
    pub(crate) fn end(&self) -> usize {
        self.first.wrapping_add(self.places.len())
    }

    /// The initial list ends here.
    pub(crate) fn add_synced(&mut self) {
        self.places.push_back(Place::Synced);
    }

    /// Takes the first place out untold, without any code of its key.
    pub(crate) fn skip(&mut self) -> Option<Forgotten<K, T>> {
        Some(match self.pop()? {
            Place::Key(Keyed { key, entry: Entry { told, gone, now, .. }, .. }) => (Some(key), [told, gone, now]),
            Place::Synced => (None, [None, None, None]),
        })
    }

    fn pop(&mut self) -> Option<Place<K, T>> {
        let place = self.places.pop_front()?;
        if let Some(Keyed { hash, .. }) = place.keyed()
            && let Ok(number) = self.index.find_entry(*hash, |number| *number == self.first)
        {
            number.remove();
        }
        self.first = self.first.wrapping_add(1);
        Some(place)
    }
}

impl<K: Clone + Eq + Hash, T, S: BuildHasher + Default> Backlog<K, T, S> {
    pub(crate) fn new() -> Self {
        Self { places: VecDeque::new(), first: 0, index: HashTable::new(), hasher: S::default() }
    }

    /// Adds what has happened. Returns the values that it makes forgotten, to be dropped outside the lock.
    ///
    /// ChangeCounts must follow each other: what is created was not there, what is updated was as it says.
    pub(crate) fn add(&mut self, key: &K, change: Change<T>) -> [Option<Arc<T>>; 2] {
        let Self { places, first, index, hasher } = self;
        let hash = hasher.hash_one(key);
        let place = |number: &usize| number.wrapping_sub(*first);
        let keyed = |number: &usize| places.get(place(number)).and_then(Place::keyed);
        let known = index.find(hash, |number| keyed(number).is_some_and(|keyed| keyed.key == *key));
        let Some(known) = known.map(place) else {
            let new = Keyed { key: key.clone(), hash, entry: Entry::new(change) };
            let number = first.wrapping_add(places.len());
            index.insert_unique(hash, number, |number| keyed(number).map_or(0, |keyed| keyed.hash));
            places.push_back(Place::Key(new));
            return [None, None];
        };
        match places.get_mut(known) {
            Some(Place::Key(keyed)) => keyed.entry.add(change),
            _ => [None, None],
        }
    }

    /// The next event, if there is one.
    pub(crate) fn take(&mut self) -> Option<Told<K, T>> {
        if let Place::Key(Keyed { key, entry, .. }) = self.places.front_mut()?
            && entry.events() > 1
        {
            let (key, initial) = (key.clone(), entry.initial);
            return entry.tell(key).map(|event| Told { event, initial });
        }
        let Place::Key(Keyed { key, mut entry, .. }) = self.pop()? else {
            return Some(Told { event: Event::Synced, initial: true });
        };
        let initial = entry.initial;
        entry.tell(key).map(|event| Told { event, initial })
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
