//! Remembers the changes that clients make to objects when these are written.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::Value;

use crate::ObjectMeta;
use crate::sync::Mutex;
use homeostat::base::Clock;
use homeostat::queue::FastState;
use homeostat::rt::Nanos;

/// The most objects that are remembered.
const MOST: usize = 4096;
/// An object is forgotten if its change was neither made nor used for this time.
const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// Remembers how a client changed the objects written to it, for example by filling in defaults.
///
/// Without it, each run would write such an object again.
#[derive(Debug, Default)]
pub(super) struct MutationCache(Mutex<CachedMutations>);

#[derive(Debug, Default)]
struct CachedMutations {
    by_uid: HashMap<String, Mutation, FastState>,
    /// The uids, oldest first: the time of the last write or use, and a number that orders equal times.
    by_age: BTreeMap<(Nanos, u64), String>,
    next: u64,
}

#[derive(Debug)]
struct Mutation {
    age: (Nanos, u64),
    desired: Value,
    /// The generation after the write.
    generation: i64,
    /// The difference between the written object and the stored one.
    patch: json_patch::Patch,
}

impl MutationCache {
    /// Applies to `wanted` the change that the client made last time to the same desired state of the same generation.
    ///
    /// Forgets the change if the desired state or the generation has changed.
    pub(super) fn apply(&self, clock: &Clock, current: &ObjectMeta, desired: &Value, wanted: &mut Value) {
        let mut cached = self.0.lock();
        cached.expire(clock.nanos());
        let Some(mutation) = cached.by_uid.get(&current.uid) else { return };
        // A patch that no longer applies leaves `wanted` unchanged.
        let applied = mutation.desired == *desired
            && mutation.generation == current.generation
            && json_patch::patch(wanted, &mutation.patch).is_ok();
        if applied {
            cached.renew(&current.uid, clock.nanos());
        } else {
            cached.forget(&current.uid);
        }
    }

    /// Remembers that for the desired state `desired`, `wanted` was written and `became` was stored.
    pub(super) fn learn(&self, clock: &Clock, made: &ObjectMeta, desired: Value, wanted: &Value, became: &Value) {
        let mut cached = self.0.lock();
        cached.forget(&made.uid);
        if wanted != became && !made.uid.is_empty() {
            let patch = json_patch::diff(wanted, became);
            cached.remember(&made.uid, clock.nanos(), |age| Mutation {
                age,
                desired,
                generation: made.generation,
                patch,
            });
        }
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().forget(uid);
    }
}

impl CachedMutations {
    fn remember(&mut self, uid: &str, now: Nanos, mutation: impl FnOnce((Nanos, u64)) -> Mutation) {
        self.expire(now);
        if self.by_uid.len() >= MOST
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_uid.remove(&oldest);
        }
        self.next += 1;
        let mutation = mutation((now, self.next));
        self.by_age.insert(mutation.age, uid.to_owned());
        self.by_uid.insert(uid.to_owned(), mutation);
    }

    /// Makes the change of this object the most recently used one.
    fn renew(&mut self, uid: &str, now: Nanos) {
        let Some(mutation) = self.by_uid.get_mut(uid) else { return };
        let Some(uid) = self.by_age.remove(&mutation.age) else { return };
        self.next += 1;
        mutation.age = (now, self.next);
        self.by_age.insert(mutation.age, uid);
    }

    fn forget(&mut self, uid: &str) {
        if let Some(mutation) = self.by_uid.remove(uid) {
            self.by_age.remove(&mutation.age);
        }
    }

    fn expire(&mut self, now: Nanos) {
        while let Some(first) = self.by_age.first_entry().filter(|first| first.key().0.after(LIFETIME) <= now) {
            self.by_uid.remove(&first.remove());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use serde_json::json;

    use super::*;
    use homeostat::base::ManualClock;

    fn meta(uid: &str, generation: i64) -> ObjectMeta {
        ObjectMeta { uid: uid.to_owned(), generation, ..ObjectMeta::default() }
    }

    /// Returns the value of `a` in `{"a": 1}` after the cache was applied. Before, the client has turned this object
    /// into `{"a": 2}`.
    fn applied(cache: &MutationCache, clock: &ManualClock, meta: &ObjectMeta, desired: &Value) -> Value {
        let mut wanted = json!({"a": 1});
        cache.apply(&clock.clock(), meta, desired, &mut wanted);
        wanted["a"].clone()
    }

    fn learn(cache: &MutationCache, clock: &ManualClock, meta: &ObjectMeta) {
        cache.learn(&clock.clock(), meta, json!("x"), &json!({"a": 1}), &json!({"a": 2}));
    }

    fn is_empty(cache: &MutationCache) -> bool {
        let cached = cache.0.lock();
        assert_eq!(cached.by_uid.len(), cached.by_age.len());
        cached.by_uid.is_empty()
    }

    #[test]
    fn applies_the_change_to_the_same_desired_state() {
        let (cache, clock) = (MutationCache::default(), ManualClock::new());
        learn(&cache, &clock, &meta("u", 3));
        for _ in 0..2 {
            assert_eq!(applied(&cache, &clock, &meta("u", 3), &json!("x")), 2);
        }
        assert_eq!(applied(&cache, &clock, &meta("v", 3), &json!("x")), 1);
        assert!(!is_empty(&cache));
    }

    #[test]
    fn forgets_a_change_that_no_longer_applies() {
        type End<'a> = &'a dyn Fn(&MutationCache, &ManualClock);
        let ends: [End<'_>; 7] = [
            &|cache, _| cache.forget("u"),
            &|cache, clock| assert_eq!(applied(cache, clock, &meta("u", 4), &json!("x")), 1),
            &|cache, clock| assert_eq!(applied(cache, clock, &meta("u", 3), &json!("y")), 1),
            &|cache, clock| {
                cache.learn(&clock.clock(), &meta("u", 3), json!("x"), &json!({"a": 1}), &json!({"a": 1}));
            },
            &|cache, clock| {
                let mut other = json!({"b": 1});
                cache.apply(&clock.clock(), &meta("u", 3), &json!("x"), &mut other);
                assert_eq!(other, json!({"b": 1}));
            },
            &|cache, clock| {
                clock.advance(LIFETIME);
                assert_eq!(applied(cache, clock, &meta("u", 3), &json!("x")), 1);
            },
            &|cache, clock| {
                clock.advance(LIFETIME);
                cache.apply(&clock.clock(), &meta("v", 3), &json!("x"), &mut json!(null));
            },
        ];
        for (number, end) in ends.iter().enumerate() {
            let (cache, clock) = (MutationCache::default(), ManualClock::new());
            learn(&cache, &clock, &meta("u", 3));
            end(&cache, &clock);
            assert!(is_empty(&cache), "{number}");
        }
    }

    #[test]
    fn a_change_lives_as_long_as_it_is_used() {
        let (cache, clock) = (MutationCache::default(), ManualClock::new());
        learn(&cache, &clock, &meta("used", 3));
        learn(&cache, &clock, &meta("idle", 3));
        for _ in 0..10 {
            clock.advance(LIFETIME / 2);
            assert_eq!(applied(&cache, &clock, &meta("used", 3), &json!("x")), 2);
        }
        assert_eq!(applied(&cache, &clock, &meta("idle", 3), &json!("x")), 1);
        // One more object makes the cache forget an object, but not the most recently used one.
        learn(&cache, &clock, &meta("first", 3));
        assert_eq!(applied(&cache, &clock, &meta("used", 3), &json!("x")), 2);
        for number in 0..MOST - 1 {
            learn(&cache, &clock, &meta(&number.to_string(), 3));
        }
        assert_eq!(applied(&cache, &clock, &meta("first", 3), &json!("x")), 1);
        assert_eq!(applied(&cache, &clock, &meta("used", 3), &json!("x")), 2);
        let cached = cache.0.lock();
        assert_eq!((cached.by_uid.len(), cached.by_age.len()), (MOST, MOST));
    }

    #[test]
    fn forgets_the_oldest_object_when_full() {
        let (cache, clock) = (MutationCache::default(), ManualClock::new());
        for number in 0..=MOST {
            learn(&cache, &clock, &meta(&number.to_string(), 3));
        }
        let cached = cache.0.lock();
        assert_eq!((cached.by_uid.len(), cached.by_age.len()), (MOST, MOST));
        assert!(!cached.by_uid.contains_key("0") && cached.by_uid.contains_key("1"));
    }

    #[test]
    fn does_not_remember_an_object_without_a_uid() {
        let (cache, clock) = (MutationCache::default(), ManualClock::new());
        learn(&cache, &clock, &meta("", 3));
        assert!(is_empty(&cache));
    }
}
