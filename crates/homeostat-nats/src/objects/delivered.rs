//! The keys with delivered entries, as a plain value. It finds lost entries, and forgets deleted keys.
//!
//! # Invariants
//!
//! - Each entry of this client names the key's previous entry. A key is kept while its object exists, so each gap
//!   between two of its entries is found.
//! - Every gap up to the revision `complete_until` has been found. The watch had then delivered everything in the
//!   bucket. The bucket removes an entry only for a later entry of its key. The last of them was delivered, and would
//!   have shown a gap. Markers are removed only after they were delivered.
//! - A deleted key is forgotten once `complete_until` has reached its deletion. If the key's next entry names a
//!   predecessor after `complete_until`, that predecessor is missing. An earlier predecessor was delivered, or its
//!   loss was found.

use std::collections::{HashMap, VecDeque};

use super::entry::{WriteKind, WriteNote};
use homeostat_objects::SharedObject;

/// The keys with an entry that a watch has delivered.
#[derive(Debug)]
pub(super) struct DeliveredKeys {
    /// The revision after which the watch started. Zero if it started with all objects.
    from: u64,
    complete_until: u64,
    last: HashMap<String, LastEntry>,
    /// The last state of each key, if the query selects by content.
    states: Option<HashMap<String, LastState>>,
    /// The deleted keys that are not yet forgotten, in the order of their deletions.
    deleted: VecDeque<(u64, String)>,
}

#[derive(Clone, Copy, Debug)]
struct LastEntry {
    revision: u64,
    is_marker: bool,
}

/// The last state of an object, for a query that selects by content.
#[derive(Clone, Debug)]
pub(super) enum LastState {
    Selected(SharedObject),
    /// The query did not select it, or it was deleted.
    Hidden,
}

/// The state of a key before its next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyBefore {
    /// This is the key's first entry, and one of those that the watch starts with.
    New,
    Existed,
    Absent,
    /// An entry is missing. Up to this revision, nothing is missing.
    Missed(u64),
}

impl DeliveredKeys {
    /// Creates the memory of a watch that starts after revision `from`, or with all objects if `from` is zero. It
    /// keeps last states if `selects` is true.
    pub(super) fn new(from: u64, selects: bool) -> Self {
        let (last, states, deleted) = (HashMap::new(), selects.then(HashMap::new), VecDeque::new());
        Self { from, complete_until: from, last, states, deleted }
    }

    pub(super) fn from(&self) -> u64 {
        self.from
    }

    /// Records the next entry. `is_initial` is true while the watch delivers the entries that it starts with.
    pub(super) fn take(
        &mut self,
        key: &str,
        revision: u64,
        is_marker: bool,
        note: Option<WriteNote>,
        is_initial: bool,
    ) -> KeyBefore {
        let known = self.last.insert(key.to_owned(), LastEntry { revision, is_marker });
        if is_marker {
            self.deleted.push_back((revision, key.to_owned()));
        }
        let existed = known.map(|last| !last.is_marker);
        let until = known.map_or(self.complete_until, |last| last.revision);
        match note {
            _ if is_initial && known.is_none() => KeyBefore::New,
            Some(note) if note.previous > until => KeyBefore::Missed(until),
            // The marker between two objects of this key is missing.
            Some(WriteNote { kind: WriteKind::Created, .. }) if existed == Some(true) => KeyBefore::Missed(until),
            Some(WriteNote { kind: WriteKind::Created, .. }) => KeyBefore::Absent,
            Some(_) => KeyBefore::Existed,
            // Another program has written the entry.
            None if existed.unwrap_or(self.from > 0) => KeyBefore::Existed,
            None => KeyBefore::Absent,
        }
    }

    /// Returns whether the query of the watch selects by content.
    pub(super) fn selects(&self) -> bool {
        self.states.is_some()
    }

    /// Takes the last state of a key out, or returns `None` if it is unknown.
    pub(super) fn take_state(&mut self, key: &str) -> Option<LastState> {
        self.states.as_mut().and_then(|states| states.remove(key))
    }

    /// Keeps the last state of a key.
    pub(super) fn keep_state(&mut self, key: &str, state: LastState) {
        if let Some(states) = &mut self.states {
            states.insert(key.to_owned(), state);
        }
    }

    /// Records that the watch had delivered everything in the bucket up to this revision. Forgets keys that were
    /// deleted before.
    pub(super) fn caught_up(&mut self, revision: u64) {
        self.complete_until = self.complete_until.max(revision);
        while self.deleted.front().is_some_and(|(deletion, _)| *deletion <= self.complete_until) {
            let Some((deletion, key)) = self.deleted.pop_front() else { return };
            // The key may have been created again.
            if self.last.get(&key).is_some_and(|last| last.revision == deletion) {
                self.last.remove(&key);
                self.take_state(&key);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    impl DeliveredKeys {
        fn count(&self) -> usize {
            self.last.len() + self.deleted.len() + self.states.as_ref().map_or(0, HashMap::len)
        }
    }

    fn note(kind: WriteKind, previous: u64) -> WriteNote {
        WriteNote { kind, previous }
    }

    #[test]
    fn deleted_keys_are_forgotten() {
        let mut keys = DeliveredKeys::new(0, true);
        let mut revision = 0;
        for number in 0..1_000 {
            let key = format!("key-{number}");
            revision += 2;
            assert_eq!(
                keys.take(&key, revision - 1, false, Some(note(WriteKind::Created, 0)), false),
                KeyBefore::Absent
            );
            keys.keep_state(&key, LastState::Hidden);
            assert_eq!(
                keys.take(&key, revision, true, Some(note(WriteKind::Deleted, revision - 1)), false),
                KeyBefore::Existed
            );
            keys.keep_state(&key, LastState::Hidden);
            if number % 10 == 9 {
                assert_eq!(keys.count(), 30, "ten keys, their deletions and their states");
                keys.caught_up(revision);
                assert_eq!(keys.count(), 0);
            }
        }
        assert_eq!(
            keys.take("key-7", 2_001, false, Some(note(WriteKind::Created, 16)), false),
            KeyBefore::Absent,
            "its marker"
        );
        keys.caught_up(2_001);
        assert_eq!(keys.count(), 1, "an object that exists stays known");
        assert_eq!(
            keys.take("key-8", 2_009, false, Some(note(WriteKind::Created, 2_005)), false),
            KeyBefore::Missed(2_001)
        );
    }

    #[test]
    fn a_key_that_is_created_again_is_not_forgotten() {
        let mut keys = DeliveredKeys::new(0, false);
        keys.take("a", 1, false, Some(note(WriteKind::Created, 0)), false);
        keys.take("a", 2, true, Some(note(WriteKind::Deleted, 1)), false);
        assert_eq!(keys.take("a", 3, false, Some(note(WriteKind::Created, 2)), false), KeyBefore::Absent);
        keys.caught_up(2);
        assert_eq!((keys.last.len(), keys.deleted.len()), (1, 0));
        assert_eq!(
            keys.take("a", 9, false, Some(note(WriteKind::Created, 0)), false),
            KeyBefore::Missed(3),
            "no marker came"
        );
    }

    #[test]
    fn writes_of_other_programs_have_no_note() {
        let mut keys = DeliveredKeys::new(0, false);
        let mut take = |revision, is_marker| keys.take("a", revision, is_marker, None, false);
        assert_eq!(take(1, false), KeyBefore::Absent);
        assert_eq!(take(2, false), KeyBefore::Existed);
        assert_eq!(take(3, true), KeyBefore::Existed);
        assert_eq!(take(4, true), KeyBefore::Absent);
        assert_eq!(take(5, false), KeyBefore::Absent);
        assert_eq!(
            DeliveredKeys::new(7, false).take("a", 9, false, None, false),
            KeyBefore::Existed,
            "assumed for writes of other programs"
        );
    }

    #[derive(Clone, Debug)]
    enum Act {
        /// Creates, changes or deletes the object of a key.
        Write(u8, bool),
        /// The consumer sends this many entries.
        Send(u8),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            3 => (0..3_u8, any::<bool>()).prop_map(|(key, deletes)| Act::Write(key, deletes)),
            1 => (0..9_u8).prop_map(Act::Send),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// A bucket keeps three entries of each key, and its consumer sends them late. A memory that forgets keys
        /// finds the same gaps as a memory that keeps them.
        #[test]
        fn forgetting_hides_no_gap(acts in vec(act(), 0..120)) {
            let mut stored: BTreeMap<u64, (u8, bool, WriteNote)> = BTreeMap::new();
            let (mut revision, mut sent) = (0, 0);
            let (mut forgetful, mut exact) = (DeliveredKeys::new(0, false), DeliveredKeys::new(0, false));
            for act in acts {
                let most = match act {
                    Act::Write(key, deletes) => {
                        let last = stored.iter().rfind(|(_, entry)| entry.0 == key).map(|(at, entry)| (*at, entry.1));
                        let exists = last.is_some_and(|(_, is_marker)| !is_marker);
                        let kind = match (exists, deletes) {
                            (false, _) => WriteKind::Created,
                            (true, false) => WriteKind::Changed,
                            (true, true) => WriteKind::Deleted,
                        };
                        revision += 1;
                        let note = WriteNote { kind, previous: last.map_or(0, |(at, _)| at) };
                        stored.insert(revision, (key, kind == WriteKind::Deleted, note));
                        let of_key: Vec<_> = stored.iter().filter(|(_, entry)| entry.0 == key).map(|(at, _)| *at).collect();
                        for old in of_key.iter().rev().skip(3) {
                            stored.remove(old);
                        }
                        0
                    }
                    Act::Send(most) => usize::from(most),
                };
                let next: Vec<_> = stored.range(sent + 1..).take(most).map(|(at, entry)| (*at, *entry)).collect();
                for (at, (key, is_marker, note)) in next {
                    sent = at;
                    let key = key.to_string();
                    let [found, expected] =
                        [&mut forgetful, &mut exact].map(|keys| keys.take(&key, at, is_marker, Some(note), false));
                    let is_gap = |before| matches!(before, KeyBefore::Missed(_));
                    prop_assert_eq!(is_gap(found), is_gap(expected), "revision {}: {:?}, {:?}", at, found, expected);
                    if is_gap(found) {
                        return Ok(());
                    }
                    prop_assert_eq!(found, expected);
                    if stored.range(at + 1..).next().is_none() {
                        forgetful.caught_up(at);
                        prop_assert!(forgetful.deleted.is_empty() && forgetful.last.len() <= 3);
                    }
                }
            }
        }
    }
}
