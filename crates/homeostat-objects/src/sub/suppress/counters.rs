//! Counts the consecutive failures of objects, and finds counts that may be outdated.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::ObjectKey;
use homeostat::queue::FastState;
use homeostat::rt::Nanos;

/// How long an object must not have failed before it is looked up.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);

/// A counter for each object that has failed.
#[derive(Debug)]
pub(super) struct FailureCounters {
    most: usize,
    by_key: HashMap<ObjectKey, FailureCounter, FastState>,
    /// The keys, ordered by the time of the last failure or lookup.
    by_age: BTreeMap<Stamp, ObjectKey>,
    stamps: u64,
}

#[derive(Debug)]
struct FailureCounter {
    uid: String,
    generation: i64,
    count: u32,
    stamp: Stamp,
}

/// A time, and a number that orders equal times.
type Stamp = (Nanos, u64);

/// An object that has not failed for a long time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stale {
    pub(super) key: ObjectKey,
    pub(super) uid: String,
    stamp: Stamp,
}

impl FailureCounters {
    /// Counts at most this many objects.
    pub(super) fn new(most: usize) -> Self {
        Self { most, by_key: HashMap::default(), by_age: BTreeMap::new(), stamps: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Counts a failure. Returns the number of consecutive failures, or `None` if there are too many objects.
    pub(super) fn fail(&mut self, key: &ObjectKey, uid: &str, generation: i64, now: Nanos) -> Option<u32> {
        let known = self.take(key).filter(|known| known.uid == uid && known.generation == generation);
        if self.by_key.len() >= self.most {
            return None;
        }
        let count = known.map_or(0, |known| known.count).saturating_add(1);
        let stamp = self.stamp(key, now);
        self.by_key.insert(key.clone(), FailureCounter { uid: uid.to_owned(), generation, count, stamp });
        Some(count)
    }

    fn stamp(&mut self, key: &ObjectKey, now: Nanos) -> Stamp {
        self.stamps += 1;
        let stamp = (now, self.stamps);
        self.by_age.insert(stamp, key.clone());
        stamp
    }

    /// Resets the counter of an object.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.take(key);
    }

    fn take(&mut self, key: &ObjectKey) -> Option<FailureCounter> {
        let known = self.by_key.remove(key)?;
        self.by_age.remove(&known.stamp);
        Some(known)
    }

    /// Returns the object that has not failed for the longest time, if that is long enough, and stamps it.
    pub(super) fn stale(&mut self, now: Nanos) -> Option<Stale> {
        let first = self.by_age.first_entry().filter(|first| first.key().0.after(LONG) <= now)?;
        let key = first.remove();
        let stamp = self.stamp(&key, now);
        let counter = self.by_key.get_mut(&key)?;
        counter.stamp = stamp;
        Some(Stale { uid: counter.uid.clone(), key, stamp })
    }

    /// Removes the counter of an object that is gone, unless it has failed since.
    pub(super) fn forget_stale(&mut self, stale: &Stale) {
        if self.by_key.get(&stale.key).is_some_and(|counter| counter.stamp == stale.stamp) {
            self.forget(&stale.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Nanos = Nanos(24 * 60 * 60 * 1_000_000_000);

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("default", name)
    }

    fn fail(counters: &mut FailureCounters, name: &str, now: Nanos) -> Option<u32> {
        counters.fail(&key(name), name, 1, now)
    }

    #[test]
    fn keeps_at_most_the_given_number() {
        let mut counters = FailureCounters::new(2);
        assert_eq!(
            ["a", "b", "c", "a"].map(|name| fail(&mut counters, name, Nanos::ZERO)),
            [Some(1), Some(1), None, Some(2)]
        );
        counters.forget(&key("b"));
        assert_eq!(["c", "b"].map(|name| fail(&mut counters, name, Nanos::ZERO)), [Some(1), None]);
        assert_eq!((counters.by_key.len(), counters.by_age.len()), (2, 2));
    }

    #[test]
    fn keeps_an_object_that_fails_during_its_lookup() {
        let mut counters = FailureCounters::new(9);
        fail(&mut counters, "a", Nanos::ZERO);
        fail(&mut counters, "b", Nanos::ZERO);
        let [first, second, third] = [(); 3].map(|()| counters.stale(LATER));
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!((&first.key, &second.key, third), (&key("a"), &key("b"), None));
        assert_eq!(fail(&mut counters, "a", LATER), Some(2));
        counters.forget_stale(&first);
        counters.forget_stale(&second);
        counters.forget_stale(&second);
        assert_eq!(fail(&mut counters, "a", LATER), Some(3));
        assert_eq!((counters.by_key.len(), counters.by_age.len()), (1, 1));
        counters.forget(&key("a"));
        assert_eq!((counters.by_key.len(), counters.by_age.len()), (0, 0));
    }
}
