//! What a client makes of writes, other than it was told.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::Value;

use crate::base::clock::Clock;
use crate::base::sync::Mutex;
use crate::base::time::Nanos;
use crate::objects::ObjectMeta;
use crate::queue::FastState;

/// How many objects are remembered.
const MOST: usize = 4096;
/// How long one is remembered that is not updated again.
const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// What a client makes of writes, other than it was told: an object is not updated again and again to what the client will not have.
#[derive(Debug, Default)]
pub(super) struct Mutations(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_uid: HashMap<String, Mutation, FastState>,
    /// The uids by when they were remembered, and a number that tells those of one time apart.
    by_age: BTreeMap<(Nanos, u64), String>,
    next: u64,
}

#[derive(Debug)]
struct Mutation {
    age: (Nanos, u64),
    /// What it was wanted to be.
    desired: Value,
    /// What it was then.
    generation: i64,
    /// From what was to be written to what came of it.
    patch: json_patch::Patch,
}

impl Mutations {
    /// Makes of what is to be written what the client will make of it, if that is known: for the same desired state of the same
    /// generation. Else it is forgotten.
    pub(super) fn foresee(&self, clock: &Clock, current: &ObjectMeta, desired: &Value, wanted: &mut Value) {
        let mut known = self.0.lock();
        known.expire(clock.nanos());
        let Some(mutation) = known.by_uid.get(&current.uid) else { return };
        // What does not apply any more leaves `wanted` as it is.
        let foreseen = mutation.desired == *desired
            && mutation.generation == current.generation
            && json_patch::patch(wanted, &mutation.patch).is_ok();
        if !foreseen {
            known.forget(&current.uid);
        }
    }

    /// Remembers that a write of `desired` that was to make `wanted` has made this object.
    pub(super) fn learn(&self, clock: &Clock, made: &ObjectMeta, desired: Value, wanted: &Value, became: &Value) {
        let mut known = self.0.lock();
        known.forget(&made.uid);
        if wanted != became && !made.uid.is_empty() {
            let patch = json_patch::diff(wanted, became);
            known.remember(&made.uid, clock.nanos(), |age| Mutation {
                age,
                desired,
                generation: made.generation,
                patch,
            });
        }
    }

    /// Forgets an object: it is gone.
    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().forget(uid);
    }
}

impl Known {
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
    use crate::base::clock::ManualClock;

    fn meta(uid: &str, generation: i64) -> ObjectMeta {
        ObjectMeta { uid: uid.to_owned(), generation, ..ObjectMeta::default() }
    }

    /// What is foreseen for an object that is wanted to be `{"a": 1}`, and of which the client made `{"a": 2}`.
    fn foreseen(mutations: &Mutations, clock: &ManualClock, meta: &ObjectMeta, desired: &Value) -> Value {
        let mut wanted = json!({"a": 1});
        mutations.foresee(&clock.clock(), meta, desired, &mut wanted);
        wanted["a"].clone()
    }

    fn learn(mutations: &Mutations, clock: &ManualClock, meta: &ObjectMeta) {
        mutations.learn(&clock.clock(), meta, json!("x"), &json!({"a": 1}), &json!({"a": 2}));
    }

    fn is_empty(mutations: &Mutations) -> bool {
        let known = mutations.0.lock();
        assert_eq!(known.by_uid.len(), known.by_age.len());
        known.by_uid.is_empty()
    }

    #[test]
    fn what_was_made_of_it_is_made_of_it_again() {
        let (mutations, clock) = (Mutations::default(), ManualClock::new());
        learn(&mutations, &clock, &meta("u", 3));
        for _ in 0..2 {
            assert_eq!(foreseen(&mutations, &clock, &meta("u", 3), &json!("x")), 2);
        }
        assert_eq!(foreseen(&mutations, &clock, &meta("v", 3), &json!("x")), 1);
        assert!(!is_empty(&mutations));
    }

    #[test]
    fn it_is_forgotten_with_what_it_was_about() {
        type End<'a> = &'a dyn Fn(&Mutations, &ManualClock);
        let ends: [End<'_>; 7] = [
            &|mutations, _| mutations.forget("u"),
            &|mutations, clock| assert_eq!(foreseen(mutations, clock, &meta("u", 4), &json!("x")), 1),
            &|mutations, clock| assert_eq!(foreseen(mutations, clock, &meta("u", 3), &json!("y")), 1),
            &|mutations, clock| {
                mutations.learn(&clock.clock(), &meta("u", 3), json!("x"), &json!({"a": 1}), &json!({"a": 1}));
            },
            &|mutations, clock| {
                let mut other = json!({"b": 1});
                mutations.foresee(&clock.clock(), &meta("u", 3), &json!("x"), &mut other);
                assert_eq!(other, json!({"b": 1}));
            },
            &|mutations, clock| {
                clock.advance(LIFETIME);
                assert_eq!(foreseen(mutations, clock, &meta("u", 3), &json!("x")), 1);
            },
            &|mutations, clock| {
                clock.advance(LIFETIME);
                mutations.foresee(&clock.clock(), &meta("v", 3), &json!("x"), &mut json!(null));
            },
        ];
        for (number, end) in ends.iter().enumerate() {
            let (mutations, clock) = (Mutations::default(), ManualClock::new());
            learn(&mutations, &clock, &meta("u", 3));
            end(&mutations, &clock);
            assert!(is_empty(&mutations), "{number}");
        }
    }

    #[test]
    fn the_oldest_makes_room() {
        let (mutations, clock) = (Mutations::default(), ManualClock::new());
        for number in 0..=MOST {
            learn(&mutations, &clock, &meta(&number.to_string(), 3));
        }
        let known = mutations.0.lock();
        assert_eq!((known.by_uid.len(), known.by_age.len()), (MOST, MOST));
        assert!(!known.by_uid.contains_key("0") && known.by_uid.contains_key("1"));
    }

    #[test]
    fn an_object_without_a_uid_is_not_remembered() {
        let (mutations, clock) = (Mutations::default(), ManualClock::new());
        learn(&mutations, &clock, &meta("", 3));
        assert!(is_empty(&mutations));
    }
}
