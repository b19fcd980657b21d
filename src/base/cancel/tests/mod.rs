//! The tree of tokens; `callbacks` has the rest.

mod callbacks;

use std::fmt::Debug;
use std::mem;
use std::sync::Arc;
use std::thread;

use super::{CancellationToken, OnCancel};
use crate::base::sync::Mutex;

/// The calls of callbacks, in order.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Vec<&'static str>>>);

impl Record {
    fn note(&self, what: &'static str) {
        self.0.lock().push(what);
    }

    /// Returns a callback that notes `what`.
    fn noting(&self, what: &'static str) -> impl FnOnce() + Send + use<> {
        let record = self.clone();
        move || record.note(what)
    }

    fn taken(&self) -> Vec<&'static str> {
        mem::take(&mut *self.0.lock())
    }
}

/// Runs `f` on a stack that is too small for ten thousand nested calls.
fn on_a_small_stack(f: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let small = thread::Builder::new().stack_size(128 * 1024);
        let ran = small.spawn_scoped(scope, f).map(|thread| thread.join().is_ok());
        assert_eq!(ran.ok(), Some(true));
    });
}

const DEEP: usize = 10_000;

/// Returns the ends of a chain of children. No handle to the tokens between them is left.
fn chain() -> (CancellationToken, CancellationToken) {
    let root = CancellationToken::new();
    let leaf = (0..DEEP).fold(root.clone(), |parent, _| parent.child());
    (root, leaf)
}

#[test]
fn public_types_are_send_sync_and_debug() {
    fn check<T: Send + Sync + Debug>() {}
    check::<CancellationToken>();
    check::<OnCancel>();
    let token = CancellationToken::default();
    assert_eq!(format!("{token:?}"), "CancellationToken { cancelled: false, .. }");
    token.cancel();
    assert_eq!(format!("{token:?}"), "CancellationToken { cancelled: true, .. }");
    assert_eq!(format!("{:?}", token.on_cancel(|| {})), "OnCancel { .. }");
}

#[test]
fn clones_are_one_token() {
    let token = CancellationToken::new();
    let clone = token.clone();
    assert!(!clone.is_cancelled());
    token.cancel();
    token.cancel();
    assert!(clone.is_cancelled() && token.is_cancelled());
}

#[test]
fn a_child_is_cancelled_with_its_parent_or_alone() {
    let parent = CancellationToken::new();
    let (one, other) = (parent.child(), parent.child());
    one.cancel();
    assert!(one.is_cancelled() && !parent.is_cancelled() && !other.is_cancelled());
    parent.cancel();
    assert!(parent.is_cancelled() && other.is_cancelled());
}

#[test]
fn a_child_of_a_cancelled_token_is_born_cancelled() {
    let parent = CancellationToken::new();
    parent.cancel();
    assert!(parent.child().is_cancelled());
    assert!(parent.child().child().is_cancelled());
}

#[test]
fn a_grandchild_is_reached_through_a_dropped_child() {
    let root = CancellationToken::new();
    let grandchild = root.child().child();
    root.cancel();
    assert!(grandchild.is_cancelled());
}

#[test]
fn a_child_outlives_its_dropped_parent() {
    let parent = CancellationToken::new();
    let child = parent.child();
    drop(parent);
    assert!(!child.is_cancelled());
    child.cancel();
    assert!(child.is_cancelled());
}

#[test]
fn a_million_short_lived_children_leave_nothing_behind() {
    let parent = CancellationToken::new();
    let kept = parent.child();
    for _ in 0..1_000_000 {
        drop(parent.child().clone());
    }
    assert_eq!(parent.node.state.lock().listeners.len(), 1);
    // The two handles: `parent`, and the link of `kept`.
    assert_eq!(Arc::strong_count(&parent.node), 2);
    parent.cancel();
    assert!(kept.is_cancelled());
}

#[test]
fn a_crowd_of_children_is_cancelled_and_forgotten() {
    let parent = CancellationToken::new();
    let mut crowd: Vec<_> = (0..10_000).map(|_| parent.child()).collect();
    assert_eq!(parent.node.state.lock().listeners.len(), 10_000);
    crowd.clear();
    assert!(parent.node.state.lock().listeners.is_empty());

    let crowd: Vec<_> = (0..10_000).map(|_| parent.child()).collect();
    let (gone, stay): (Vec<_>, Vec<_>) = crowd.into_iter().enumerate().partition(|(i, _)| i % 3 == 0);
    drop(gone);
    let late: Vec<_> = (0..100).map(|_| parent.child()).collect();
    parent.cancel();
    assert!(stay.iter().all(|(_, child)| child.is_cancelled()));
    assert!(late.iter().all(CancellationToken::is_cancelled));
    assert!(parent.node.state.lock().listeners.is_empty());
    drop((stay, late));
}

#[test]
fn cancelling_a_deep_chain_does_not_overflow_the_stack() {
    on_a_small_stack(|| {
        let (root, leaf) = chain();
        let record = Record::default();
        leaf.on_cancel(record.noting("leaf")).detach();
        root.cancel();
        assert!(leaf.is_cancelled());
        assert_eq!(record.taken(), ["leaf"]);
    });
}

#[test]
fn dropping_a_deep_chain_does_not_overflow_the_stack() {
    on_a_small_stack(|| {
        let (root, leaf) = chain();
        drop(root);
        drop(leaf);
        let (root, leaf) = chain();
        drop(leaf);
        assert_eq!(Arc::strong_count(&root.node), 1);
        assert_eq!(Arc::weak_count(&root.node), 0);
    });
}
