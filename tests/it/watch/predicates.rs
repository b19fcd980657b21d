//! Predicates: the truth table of deletions, and test cases ported from controller-runtime's
//! `pkg/predicate/predicate_test.go` (Apache-2.0) and kube-rs's `runtime/src/utils/predicate.rs` (Apache-2.0).

use std::ops::Not;
use std::sync::Arc;

use homeostat::watch::EventKind;
use homeostat::watch::EventKind::{Created, Deleted, Unchanged, Updated};
use homeostat::{Event, Predicate};

#[derive(Clone, Debug, PartialEq)]
struct Pod {
    namespace: &'static str,
    labels: Vec<(&'static str, &'static str)>,
    uid: u32,
    generation: Option<u64>,
    resource_version: u64,
}

fn pod() -> Pod {
    Pod { namespace: "biz", labels: vec![], uid: 1, generation: Some(1), resource_version: 1 }
}

type Wanted = Predicate<&'static str, Pod>;

fn created(new: Pod) -> Event<&'static str, Pod> {
    Event::Created { key: "baz", new: Arc::new(new) }
}

fn updated(old: Pod, new: Pod) -> Event<&'static str, Pod> {
    Event::Updated { key: "baz", old: Arc::new(old), new: Arc::new(new) }
}

fn deleted(last: Pod) -> Event<&'static str, Pod> {
    Event::Deleted { key: "baz", last: Arc::new(last) }
}

fn unchanged(value: Pod) -> Event<&'static str, Pod> {
    Event::Unchanged { key: "baz", value: Arc::new(value) }
}

/// Returns whether a creation, an update, a deletion and an unchanged item pass.
fn verdicts(wanted: &Wanted) -> [bool; 4] {
    assert!(wanted.accepts(&Event::Synced));
    [created(pod()), updated(pod(), pod()), deleted(pod()), unchanged(pod())].map(|event| wanted.accepts(&event))
}

/// A predicate that is undecided about deletions, and returns `says` for other events.
fn undecided(says: bool) -> Wanted {
    Predicate::new(move |_| says)
}

/// A predicate that returns `says` for deletions, and accepts other events.
fn decides(says: bool) -> Wanted {
    Predicate::deletions(move |_, _| says)
}

#[test]
fn a_deletion_passes_unless_a_predicate_names_deletions() {
    let passes = |wanted: &Wanted| wanted.accepts(&deleted(pod()));
    for says in [false, true] {
        assert!(passes(&undecided(says)) && passes(&undecided(says).not()) && passes(&!!undecided(says)));
        assert_eq!(passes(&decides(says)), says);
        assert_eq!(passes(&decides(says).not()), !says);
        assert_eq!(passes(&decides(says).not().not()), says);
        for other in [false, true] {
            let (one, two) = (undecided(says), undecided(other));
            assert!(passes(&one.clone().and(two.clone())) && passes(&one.clone().or(two.clone())));
            assert!(passes(&one.and(two.clone()).not()) && passes(&two.or(undecided(says)).not()));
            // Only one predicate decides about deletions, so it decides alone, on either side.
            for wanted in [
                decides(says).and(undecided(other)),
                decides(says).or(undecided(other)),
                undecided(other).and(decides(says)),
                undecided(other).or(decides(says)),
            ] {
                assert_eq!(passes(&wanted), says);
                assert_eq!(passes(&!wanted), !says);
            }
            // Both decide about deletions.
            assert_eq!(passes(&decides(says).and(decides(other))), says && other);
            assert_eq!(passes(&decides(says).or(decides(other))), says || other);
            assert_eq!(passes(&decides(says).and(decides(other)).not()), !(says && other));
            assert_eq!(passes(&decides(says).or(decides(other)).not()), !(says || other));
        }
    }
}

/// `only` and its `not` decide about deletions if `only` lists them.
#[test]
fn only_and_its_not_pass_unlisted_deletions() {
    let listed = |kinds: &[EventKind]| verdicts(&Predicate::only(kinds.to_vec()));
    let others = |kinds: &[EventKind]| verdicts(&Predicate::only(kinds.to_vec()).not());
    assert_eq!(listed(&[]), [false, false, true, false]);
    assert_eq!(listed(&[Created]), [true, false, true, false]);
    assert_eq!(listed(&[Updated, Unchanged]), [false, true, true, true]);
    assert_eq!(listed(&[Deleted]), [false, false, true, false]);
    assert_eq!(others(&[]), [true, true, true, true]);
    assert_eq!(others(&[Created]), [false, true, true, true]);
    assert_eq!(others(&[Deleted]), [true, true, false, true]);
    assert_eq!(others(&[Created, Deleted]), [false, true, false, true]);
    assert_eq!(verdicts(&Predicate::no_deletions()), [true, true, false, true]);
    assert_eq!(verdicts(&Predicate::only([Created]).and(Predicate::no_deletions())), [true, false, false, false]);
    assert_eq!(verdicts(&Predicate::only([Created]).or(Predicate::no_deletions())), [true, true, false, true]);
}

#[test]
fn a_deletion_is_judged_by_its_key_and_its_last_value() {
    let wanted: Wanted = Predicate::deletions(|key, last: &Pod| *key == "baz" && last.generation == Some(7));
    assert!(!wanted.accepts(&deleted(pod())));
    assert!(wanted.accepts(&deleted(Pod { generation: Some(7), ..pod() })));
}

/// `predicate_test.go`, "Funcs": each function is called for its own kind of event, and a missing one accepts.
#[test]
fn a_predicate_gets_the_values_of_each_kind_of_event() {
    let newer = Pod { namespace: "biz2", ..pod() };
    let seen = newer.clone();
    let wanted: Wanted = Predicate::new(move |event| {
        assert_eq!(event.key(), Some(&"baz"));
        match event {
            Event::Created { new, .. } => **new == pod(),
            Event::Updated { old, new, .. } => **old == pod() && **new == seen,
            Event::Unchanged { .. } => false,
            Event::Deleted { .. } | Event::Synced => panic!("it is not asked about these"),
        }
    });
    assert!(wanted.accepts(&created(pod())) && !wanted.accepts(&created(newer.clone())));
    assert!(wanted.accepts(&updated(pod(), newer.clone())) && !wanted.accepts(&updated(newer, pod())));
    assert!(!wanted.accepts(&unchanged(pod())));
    assert!(wanted.accepts(&deleted(pod())) && wanted.accepts(&Event::Synced));
}

/// `predicate_test.go`, `ResourceVersionChangedPredicate` and `GenerationChangedPredicate`: an update passes if the
/// version or generation has changed; other events pass.
#[test]
fn an_update_passes_if_the_compared_part_has_changed() {
    let newer = Pod { resource_version: 2, ..pod() };
    let wanted: Wanted = Predicate::changed_by(|pod: &Pod| pod.resource_version);
    assert_eq!(verdicts(&wanted), [true, false, true, true]);
    assert!(wanted.accepts(&updated(pod(), newer.clone())) && wanted.accepts(&updated(newer.clone(), pod())));

    let wanted: Wanted = Predicate::generation(|pod: &Pod| pod.generation);
    assert_eq!(verdicts(&wanted), [true, false, true, true]);
    assert!(!wanted.accepts(&updated(pod(), newer)));
    assert!(wanted.accepts(&updated(pod(), Pod { generation: Some(2), ..pod() })));
}

/// kube-rs passes an update without a generation. controller-runtime refuses it, and so never sees a change of such an
/// object.
#[test]
fn an_update_without_a_generation_passes() {
    let wanted: Wanted = Predicate::generation(|pod: &Pod| pod.generation);
    let none = Pod { generation: None, ..pod() };
    for (old, new) in [(none.clone(), none.clone()), (pod(), none.clone()), (none.clone(), pod())] {
        assert!(wanted.accepts(&updated(old, new)));
    }
}

/// kube-rs, `predicate_filtering_should_handle_recreated_resources_with_same_generation`: the comparison includes the
/// identity of the object.
#[test]
fn a_recreated_object_of_the_same_generation_is_a_change() {
    let wanted: Wanted = Predicate::generation(|pod: &Pod| pod.generation.map(|generation| (pod.uid, generation)));
    assert!(!wanted.accepts(&updated(pod(), pod())));
    assert!(wanted.accepts(&updated(pod(), Pod { uid: 2, ..pod() })));
}

/// `predicate_test.go`, "With a boolean predicate".
#[test]
fn and_or_and_not_for_other_events_than_deletions() {
    let all = |says: bool, wanted: Wanted| assert_eq!(verdicts(&wanted), [says, says, true, says]);
    all(false, undecided(true).and(undecided(false)));
    all(false, undecided(false).and(undecided(true)));
    all(true, undecided(true).and(undecided(true)));
    all(true, undecided(true).or(undecided(false)));
    all(true, undecided(false).or(undecided(true)));
    all(false, undecided(false).or(undecided(false)));
    all(true, undecided(false).not());
    all(false, !undecided(true));
}

#[test]
fn the_second_predicate_is_not_called_if_the_first_decides() {
    let never = || Predicate::new(|_: &Event<&'static str, Pod>| panic!("nobody asks"));
    assert!(!undecided(false).and(never()).accepts(&created(pod())));
    assert!(undecided(true).or(never()).accepts(&created(pod())));
}

/// `predicate_test.go`, `NewPredicateFuncs` with a namespace filter function, and `LabelSelectorPredicate`. These also
/// filter deletions, and check only the new object of an update, so they miss objects that leave the selection.
#[test]
fn an_update_that_leaves_the_selection_passes() {
    let ours: Wanted = Predicate::matching(|pod: &Pod| pod.namespace == "biz" || pod.labels.contains(&("foo", "bar")));
    let other = Pod { namespace: "bizz", ..pod() };
    let labelled = Pod { labels: vec![("foo", "bar")], ..other.clone() };
    assert!(ours.accepts(&created(pod())) && ours.accepts(&created(labelled.clone())));
    assert!(!ours.accepts(&created(other.clone())) && !ours.accepts(&unchanged(other.clone())));
    assert!(ours.accepts(&updated(pod(), pod())) && ours.accepts(&updated(other.clone(), labelled.clone())));
    assert!(ours.accepts(&updated(labelled, other.clone())), "it leaves");
    assert!(!ours.accepts(&updated(other.clone(), other.clone())));
    assert!(ours.accepts(&deleted(other)));
}
