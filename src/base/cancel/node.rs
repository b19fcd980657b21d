//! The node of a token.
//!
//! Tokens form a tree. A child holds its parent, so that whatever cancels an ancestor reaches the child even when nobody
//! else holds what lies between. A parent knows its children only weakly, so a child ends with its last holder, and then
//! takes itself off its parent's list.
//!
//! **Locks.** Each node has one lock, and no thread ever holds two of them. No callback runs, and no node or value of a
//! user is dropped, under one.
//!
//! **What a reader may conclude.** A node that reads as cancelled has only cancelled descendants. So a cancellation takes
//! three passes: down the tree, *closing* every node (from then on its new children are born cancelled); up again, setting
//! the flags, children before their parents; and down once more, running the callbacks. A second thread that meets a closed
//! node does not wait for the first: it makes the first two passes itself, which are idempotent. Only the thread that
//! closed a node runs its callbacks.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Weak};

// Under the model checker all threads of a model are one thread to the system: only its own names tell them apart.
#[cfg(loom)]
use loom::thread::{self, ThreadId};
#[cfg(not(loom))]
use std::thread::{self, ThreadId};

use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Condvar, Mutex};
use crate::base::thread::shielded;

pub(super) type Callback = Box<dyn FnOnce() + Send>;

pub(super) struct Node {
    /// Set once, under the lock of `state`, so that `wait` cannot miss it; read without.
    cancelled: AtomicBool,
    /// `None` for a root, for a child born cancelled, and once the drop has begun.
    parent: Option<ParentLink>,
    pub(super) state: Mutex<NodeState>,
    /// Notified when `cancelled` is set, and when a callback has ended.
    changed: Condvar,
}

struct ParentLink {
    parent: Arc<Node>,
    /// Where the parent's list has this node.
    slot: usize,
}

#[derive(Default)]
pub(super) struct NodeState {
    /// A cancellation has come by: no child may join any more.
    closed: bool,
    pub(super) children: ChildList,
    /// Those not yet run, by number, that is, in the order of registration.
    callbacks: BTreeMap<u64, Callback>,
    next_id: u64,
    running: Option<RunningCallback>,
}

/// The callback that runs just now. There is at most one, because only the thread that closed the node runs them.
struct RunningCallback {
    id: u64,
    thread: ThreadId,
}

impl Node {
    pub(super) fn root() -> Arc<Self> {
        Self::build(None, false)
    }

    pub(super) fn child(parent: &Arc<Self>) -> Arc<Self> {
        let mut state = parent.state.lock();
        if state.closed {
            return Self::build(None, true);
        }
        state.children.insert_with(|slot| {
            let parent = Arc::clone(parent);
            Self::build(Some(ParentLink { parent, slot }), false)
        })
    }

    fn build(parent: Option<ParentLink>, cancelled: bool) -> Arc<Self> {
        let state = NodeState { closed: cancelled, ..NodeState::default() };
        Arc::new(Self {
            cancelled: AtomicBool::new(cancelled),
            parent,
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// `Acquire` pairs with the `Release` in [`set_cancelled`](Self::set_cancelled): who reads `true` sees what came before
    /// the cancellation, and the flags of all descendants.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Whether a cancellation has come by, also if it has not read as cancelled yet: some of its descendants may.
    pub(super) fn is_closed(&self) -> bool {
        self.is_cancelled() || self.state.lock().closed
    }

    pub(super) fn cancel(top: &Arc<Self>) {
        // Parents stand before their children here. All passes are loops over it, so that depth costs heap, not stack.
        let mut walk = Vec::new();
        let mut pending = vec![Arc::clone(top)];
        while let Some(node) = pending.pop() {
            // A cancelled node has only cancelled descendants: there is nothing to do below it.
            if !node.is_cancelled() {
                let first = node.close(&mut pending);
                walk.push((node, first));
            }
        }
        for (node, _) in walk.iter().rev() {
            node.set_cancelled();
        }
        for (node, first) in walk {
            if first {
                node.run_callbacks();
            }
        }
    }

    /// Lets no child join any more and hands out those that have. Returns whether this call was the first.
    fn close(&self, children: &mut Vec<Arc<Self>>) -> bool {
        let mut state = self.state.lock();
        children.extend(state.children.alive());
        !mem::replace(&mut state.closed, true)
    }

    fn set_cancelled(&self) {
        let mut state = self.state.lock();
        self.cancelled.store(true, Ordering::Release);
        // Nobody walks through a cancelled node, so the list has served.
        let children = mem::take(&mut state.children);
        drop(state);
        drop(children);
        self.changed.notify_all();
    }

    fn run_callbacks(&self) {
        loop {
            let mut state = self.state.lock();
            let next = state.callbacks.pop_first();
            state.running = next.as_ref().map(|&(id, _)| RunningCallback { id, thread: thread::current().id() });
            drop(state);
            // The one before has ended, and a drop of its guard may be waiting for that.
            self.changed.notify_all();
            let Some((_, callback)) = next else { return };
            shielded("a cancellation callback", callback);
        }
    }

    /// Returns `None` when the node is cancelled already and the callback has therefore just been run.
    pub(super) fn register(&self, callback: Callback) -> Option<u64> {
        let mut state = self.state.lock();
        // Read under the lock under which it is set: who sets it later finds the callback here. Between the first pass and
        // the second a node is closed but not cancelled; its callbacks have not begun then, and one more may join them.
        if self.is_cancelled() {
            drop(state);
            shielded("a cancellation callback", callback);
            return None;
        }
        let id = state.next_id;
        state.next_id += 1;
        state.callbacks.insert(id, callback);
        Some(id)
    }

    /// When this has returned, the callback neither runs nor will run, unless the caller is that callback.
    pub(super) fn unregister(&self, id: u64) {
        let mut state = self.state.lock();
        if let Some(callback) = state.callbacks.remove(&id) {
            drop(state);
            shielded("the drop of a cancellation callback", || drop(callback));
            return;
        }
        while state.runs_elsewhere(id) {
            self.changed.wait(&mut state);
        }
    }

    pub(super) fn wait(&self) {
        if self.is_cancelled() {
            return;
        }
        let mut state = self.state.lock();
        while !self.is_cancelled() {
            self.changed.wait(&mut state);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Detached callbacks that were never run.
        let callbacks = mem::take(&mut self.state.lock().callbacks);
        for callback in callbacks.into_values() {
            shielded("the drop of a cancellation callback", || drop(callback));
        }
        // Taking each ancestor's link out before the ancestor is dropped makes a loop of what would be a recursion.
        let mut link = self.parent.take();
        while let Some(ParentLink { parent, slot }) = link {
            parent.state.lock().children.remove(slot);
            link = Arc::into_inner(parent).and_then(|mut last| last.parent.take());
        }
    }
}

impl NodeState {
    fn runs_elsewhere(&self, id: u64) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.id == id && running.thread != thread::current().id())
    }
}

/// A list of children in slots that are used again: joining and leaving cost the same however many there are.
#[derive(Default)]
pub(super) struct ChildList {
    slots: Vec<Option<Weak<Node>>>,
    /// The indexes of `slots` that hold `None`.
    vacant: Vec<usize>,
}

impl ChildList {
    /// How many slots a list that has become empty keeps, to be ready for the next child.
    const KEPT: usize = 16;

    /// `make` is told the slot that its child will have.
    fn insert_with(&mut self, make: impl FnOnce(usize) -> Arc<Node>) -> Arc<Node> {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let child = make(slot);
        self.slots[slot] = Some(Arc::downgrade(&child));
        child
    }

    fn remove(&mut self, slot: usize) {
        // A cancelled parent has given its list up and has no such slot.
        let Some(taken) = self.slots.get_mut(slot) else {
            return;
        };
        *taken = None;
        self.vacant.push(slot);
        if self.vacant.len() == self.slots.len() {
            self.slots.clear();
            self.slots.shrink_to(Self::KEPT);
            self.vacant.clear();
            self.vacant.shrink_to(Self::KEPT);
        }
    }

    /// Those that are not being dropped; nobody can look at one that is.
    fn alive(&self) -> impl Iterator<Item = Arc<Node>> {
        self.slots.iter().flatten().filter_map(Weak::upgrade)
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity() + self.vacant.capacity()
    }
}
