//! Each row of the table of events, and random changes against a model that keeps every change.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::sync::Arc;

use proptest::prelude::*;

use super::{EventBuffer, NextEvent, Origin, StoredChange};
use crate::queue::EnqueueMethod;
use crate::watch::event::{Event, EventKind};

type Subject = EventBuffer<u8, u32, RandomState>;

/// Makes a value with its own pointer, as a producer does.
fn value(n: u32) -> Arc<u32> {
    Arc::new(n)
}

fn change(old: Option<&Arc<u32>>, new: Option<Arc<u32>>) -> StoredChange<u32> {
    StoredChange { old: old.cloned(), new, origin: Origin::Change }
}

fn initial(new: Arc<u32>) -> StoredChange<u32> {
    StoredChange { old: None, new: Some(new), origin: Origin::InitialList }
}

fn unchanged(value: &Arc<u32>, method: EnqueueMethod) -> StoredChange<u32> {
    StoredChange { old: Some(Arc::clone(value)), new: Some(Arc::clone(value)), origin: Origin::Resync(method) }
}

/// Returns the changes of one key and its last value. In `steps`, `Some` is a new value and `None` a deletion.
fn changes(before: Option<u32>, steps: &[Option<u32>]) -> (Vec<StoredChange<u32>>, Option<Arc<u32>>) {
    let mut now = before.map(value);
    let mut changes = Vec::new();
    for step in steps {
        let next = step.map(value);
        assert!(now.is_some() || next.is_some(), "nothing is deleted twice");
        changes.push(change(now.as_ref(), next.clone()));
        now = next;
    }
    (changes, now)
}

fn text(notice: &NextEvent<u8, u32>) -> String {
    match &notice.event {
        Event::Created { new, .. } => format!("+{new}"),
        Event::Updated { old, new, .. } => format!("{old}>{new}"),
        Event::Deleted { last, .. } => format!("-{last}"),
        Event::Unchanged { value, .. } => format!("={value}"),
        Event::Synced => "synced".to_owned(),
    }
}

/// Returns the events for several changes of one key, if all of them happened before the first delivery.
fn events_of(before: Option<u32>, steps: &[Option<u32>]) -> String {
    let mut subject = Subject::new();
    for change in changes(before, steps).0 {
        subject.add(&0, change);
        assert_eq!(subject.len(), 1);
    }
    let notice: Vec<_> = std::iter::from_fn(|| subject.take()).map(|notice| text(&notice)).collect();
    assert!(subject.len() == 0 && subject.index.is_empty());
    notice.join(" ")
}

#[test]
fn changes_of_a_key_are_combined_as_in_the_table() {
    let gone = None;
    // The key did not exist at the last delivery.
    assert_eq!(events_of(None, &[Some(1)]), "+1");
    assert_eq!(events_of(None, &[Some(1), Some(2), Some(3)]), "+3");
    assert_eq!(events_of(None, &[Some(1), gone]), "-1");
    assert_eq!(events_of(None, &[Some(1), Some(2), gone]), "-2");
    assert_eq!(events_of(None, &[Some(1), gone, Some(2)]), "-1 +2");
    assert_eq!(events_of(None, &[Some(1), gone, Some(2), gone]), "-2");
    // The last delivered value was 1.
    assert_eq!(events_of(Some(1), &[Some(2)]), "1>2");
    assert_eq!(events_of(Some(1), &[Some(2), Some(3), Some(4)]), "1>4");
    assert_eq!(events_of(Some(1), &[Some(2), Some(1)]), "1>1");
    assert_eq!(events_of(Some(1), &[gone]), "-1");
    assert_eq!(events_of(Some(1), &[Some(2), gone]), "1>2 -2");
    assert_eq!(events_of(Some(1), &[gone, Some(2)]), "-1 +2");
    assert_eq!(events_of(Some(1), &[gone, Some(1)]), "-1 +1");
    assert_eq!(events_of(Some(1), &[gone, Some(2), Some(3)]), "-1 +3");
    assert_eq!(events_of(Some(1), &[Some(2), gone, Some(3)]), "1>2 -2 +3");
    assert_eq!(events_of(Some(1), &[gone, Some(2), gone]), "1>2 -2");
    assert_eq!(events_of(Some(1), &[gone, Some(2), gone, Some(3)]), "1>2 -2 +3");
}

#[test]
fn changes_between_two_events_of_one_entry_are_delivered() {
    let (all, _) = changes(Some(1), &[Some(2), None, Some(3), Some(4), None, Some(5)]);
    let mut all = all.into_iter();
    let mut subject = Subject::new();
    let mut next = |subject: &mut Subject, adds: usize| {
        for change in all.by_ref().take(adds) {
            subject.add(&0, change);
        }
        subject.take().map(|notice| text(&notice))
    };
    assert_eq!(next(&mut subject, 3).unwrap(), "1>2");
    assert_eq!(next(&mut subject, 0).unwrap(), "-2");
    assert_eq!(next(&mut subject, 1).unwrap(), "+4");
    assert_eq!(next(&mut subject, 0), None);
    assert_eq!(next(&mut subject, 2).unwrap(), "-4");
    assert_eq!(next(&mut subject, 0).unwrap(), "+5");
    assert_eq!(next(&mut subject, 0), None);
}

#[test]
fn an_item_is_for_selected_keys_only_if_all_its_resyncs_are() {
    const ALL: EnqueueMethod = EnqueueMethod::EnqueueResync;
    const SELECTED: EnqueueMethod = EnqueueMethod::EnqueueSelected;
    let one = value(1);
    let resync = |methods: &[EnqueueMethod], update: bool| {
        let mut subject = Subject::new();
        for method in methods {
            subject.add(&0, unchanged(&one, *method));
        }
        if update {
            subject.add(&0, change(Some(&one), Some(value(2))));
        }
        std::iter::from_fn(|| subject.take()).map(|notice| notice.origin).collect::<Vec<_>>()
    };
    assert_eq!(resync(&[SELECTED, SELECTED], false), [Origin::Resync(SELECTED)]);
    assert_eq!(resync(&[SELECTED, ALL], false), [Origin::Resync(ALL)]);
    assert_eq!(resync(&[ALL, SELECTED], false), [Origin::Resync(ALL)]);
    assert_eq!(resync(&[SELECTED], true), [Origin::Change]);
}

#[test]
fn an_unchanged_item_adds_nothing_to_other_changes() {
    let one = value(1);
    let resync = |value: &Arc<u32>| unchanged(value, EnqueueMethod::EnqueueResync);
    let update = || change(Some(&one), Some(value(2)));
    let take = |subject: &mut Subject| subject.take().map(|notice| text(&notice));
    let mut subject = Subject::new();
    subject.add(&0, resync(&one));
    subject.add(&0, resync(&one));
    assert_eq!(take(&mut subject).unwrap(), "=1");
    assert_eq!(take(&mut subject), None);
    subject.add(&0, resync(&one));
    subject.add(&0, update());
    assert_eq!(take(&mut subject).unwrap(), "1>2");
    subject.add(&0, update());
    subject.add(&0, resync(&value(2)));
    assert_eq!(take(&mut subject).unwrap(), "1>2");
    subject.add(&0, resync(&one));
    subject.add(&0, change(Some(&one), None));
    assert_eq!(take(&mut subject).unwrap(), "-1");
    assert_eq!(take(&mut subject), None);
}

#[test]
fn only_a_creation_without_later_changes_is_initial() {
    let origins = |steps: &[Option<u32>]| {
        let mut subject = Subject::new();
        for (number, mut change) in changes(None, steps).0.into_iter().enumerate() {
            if number == 0 {
                change.origin = Origin::InitialList;
            }
            subject.add(&0, change);
        }
        subject.add(&0, unchanged(&value(9), EnqueueMethod::EnqueueResync));
        std::iter::from_fn(|| subject.take()).map(|notice| notice.origin).collect::<Vec<_>>()
    };
    assert_eq!(origins(&[Some(1)]), [Origin::InitialList]);
    assert_eq!(origins(&[Some(1), Some(2)]), [Origin::Change]);
    assert_eq!(origins(&[Some(1), None]), [Origin::Change]);
    assert_eq!(origins(&[Some(1), None, Some(2)]), [Origin::Change, Origin::Change]);
}

#[test]
fn keys_and_the_end_of_the_list_keep_their_order() {
    let mut subject = Subject::new();
    subject.add(&2, initial(value(1)));
    subject.add(&1, initial(value(1)));
    subject.add_synced();
    subject.add(&3, initial(value(1)));
    subject.add(&2, change(Some(&value(1)), Some(value(5))));
    assert_eq!(subject.len(), 4);
    let keys: Vec<_> = std::iter::from_fn(|| subject.take()).map(|notice| notice.event.key().copied()).collect();
    assert_eq!(keys, [Some(2), Some(1), None, Some(3)]);
}

/// Values that are no longer needed are returned for the caller to drop, and the others are kept.
#[test]
fn unneeded_values_are_returned_to_the_caller() {
    let all: Vec<_> = (0..4).map(value).collect();
    let kept = |subject: &Subject, expected: [usize; 4]| {
        let counts: Vec<_> = all.iter().map(|value| Arc::strong_count(value) - 1).collect();
        assert_eq!(counts, expected, "{subject:?}");
    };
    let at = |n: usize| Arc::clone(&all[n]);
    let mut subject = Subject::new();
    assert!(subject.add(&0, change(Some(&all[0]), Some(at(1)))).iter().all(Option::is_none));
    let forgotten = subject.add(&0, change(Some(&all[1]), Some(at(2))));
    assert_eq!(forgotten.iter().flatten().map(|value| **value).collect::<Vec<_>>(), [1, 1]);
    drop(forgotten);
    kept(&subject, [1, 0, 1, 0]);
    drop(subject.add(&0, change(Some(&all[2]), None)));
    kept(&subject, [1, 0, 1, 0]);
    drop(subject.add(&0, change(None, Some(at(3)))));
    kept(&subject, [1, 0, 1, 1]);
    while subject.take().is_some() {}
    kept(&subject, [0, 0, 0, 0]);
}

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u32),
    Remove(u8),
    Resync,
    Synced,
    Take,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4_u8, 0..100_u32).prop_map(|(key, value)| Step::Set(key, value)),
        3 => (0..4_u8).prop_map(Step::Remove),
        1 => Just(Step::Resync),
        1 => Just(Step::Synced),
        4 => Just(Step::Take),
    ];
    prop::collection::vec(step, 0..80)
}

/// The naive model: every change of each key since its last delivery.
#[derive(Default)]
struct Model {
    store: BTreeMap<u8, Arc<u32>>,
    /// The values that the subscriber has received.
    believed: BTreeMap<u8, Arc<u32>>,
    /// The changes of each key since the subscriber was last up to date with it.
    untold: BTreeMap<u8, Vec<EventKind>>,
    /// The keys of `untold`, in the order of the first change; `None` is the end of the initial list.
    order: Vec<Option<u8>>,
}

impl Model {
    fn happened(&mut self, key: u8, kind: EventKind) {
        let history = self.untold.entry(key).or_default();
        if history.is_empty() {
            self.order.push(Some(key));
        }
        history.push(kind);
    }

    /// Checks one event against the history of its key, and applies it to `believed`.
    fn hear(&mut self, notice: &NextEvent<u8, u32>) {
        let Some(key) = notice.event.key().copied() else {
            assert_eq!(self.order.remove(0), None);
            return;
        };
        assert_eq!(self.order[0], Some(key), "a key out of turn");
        let history = &self.untold[&key];
        let deletions = history.contains(&EventKind::Deleted);
        let believed = self.believed.get(&key).cloned();
        let same = |one: &Arc<u32>, other: &Arc<u32>| Arc::ptr_eq(one, other);
        match &notice.event {
            Event::Created { new, .. } => {
                assert!(believed.is_none() && same(new, &self.store[&key]));
                assert_eq!(notice.origin, Origin::Change);
                self.believed.insert(key, Arc::clone(new));
            }
            Event::Updated { old, new, .. } => {
                assert!(believed.is_some_and(|believed| same(old, &believed)) && !same(old, new));
                assert!(deletions || same(new, &self.store[&key]));
                self.believed.insert(key, Arc::clone(new));
            }
            Event::Deleted { last, .. } => {
                assert!(deletions && believed.is_none_or(|believed| same(&believed, last)));
                self.believed.remove(&key);
                // The rest of the history has no deletion.
                let history = self.untold.entry(key).or_default();
                history.retain(|kind| *kind != EventKind::Deleted);
            }
            Event::Unchanged { value, .. } => {
                assert!(history.iter().all(|kind| *kind == EventKind::Unchanged));
                assert!(same(value, &self.store[&key]) && believed.is_some_and(|believed| same(value, &believed)));
            }
            Event::Synced => unreachable!("it has no key"),
        }
        let agrees = match (self.believed.get(&key), self.store.get(&key)) {
            (None, None) => true,
            (Some(one), Some(other)) => same(one, other),
            _ => false,
        };
        if agrees && !self.untold[&key].contains(&EventKind::Deleted) {
            self.untold.remove(&key);
            self.order.remove(0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn events_agree_with_the_model_at_every_step(steps in steps()) {
        let mut subject = Subject::new();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Set(key, number) => {
                    let new = value(number);
                    let old = model.store.insert(key, Arc::clone(&new));
                    model.happened(key, if old.is_none() { EventKind::Created } else { EventKind::Updated });
                    subject.add(&key, change(old.as_ref(), Some(new)));
                }
                Step::Remove(key) => {
                    if let Some(last) = model.store.remove(&key) {
                        model.happened(key, EventKind::Deleted);
                        subject.add(&key, change(Some(&last), None));
                    }
                }
                Step::Resync => {
                    let all: Vec<_> = model.store.iter().map(|(key, value)| (*key, Arc::clone(value))).collect();
                    for (key, value) in all {
                        // A resync adds nothing to other changes of a key.
                        if model.untold.get(&key).is_none_or(Vec::is_empty) {
                            model.happened(key, EventKind::Unchanged);
                        }
                        subject.add(&key, unchanged(&value, EnqueueMethod::EnqueueResync));
                    }
                }
                Step::Synced => {
                    model.order.push(None);
                    subject.add_synced();
                }
                Step::Take => match subject.take() {
                    Some(notice) => model.hear(&notice),
                    None => prop_assert!(model.order.is_empty()),
                },
            }
            prop_assert_eq!(subject.len(), model.order.len());
            prop_assert!(subject.index.len() <= 4);
        }
        while let Some(notice) = subject.take() {
            model.hear(&notice);
        }
        prop_assert!(model.order.is_empty() && model.untold.is_empty());
        prop_assert_eq!(model.believed, model.store);
    }
}
