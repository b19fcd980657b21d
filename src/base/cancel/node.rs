//! The node of a token.
//!
//! Tokens form a tree. A child holds its parent, so that a cancellation of an ancestor reaches the child even if no
//! other handle to the nodes between them is left. A parent refers to its children weakly: a child is dropped with its
//! last handle, and removes itself from its parent.
//!
//! **Locks.** Each node has one lock. No thread holds two of them. No callback runs under a lock, and no node or user
//! value is dropped under one.
//!
//! **Guarantee for readers.** All descendants of a cancelled node are cancelled. Therefore a cancellation makes three
//! passes. It goes down the tree and *closes* every node: new children of a closed node are cancelled from the start.
//! It goes up and sets the flags, children before parents. It goes down again and runs the callbacks. A second thread
//! that meets a closed node does not wait for the first: it makes the first two passes itself, which are idempotent.
//! Only the thread that closed a node runs its callbacks, or lets one other thread run them.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Weak};

// In a loom model, all threads are one thread to the system. Only loom's own ids distinguish them.
#[cfg(all(test, loom))]
use loom::thread::{self, ThreadId};
#[cfg(not(all(test, loom)))]
use std::thread::{self, ThreadId};

use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Condvar, Mutex};
use crate::base::thread::shielded;

pub(super) type Callback = Box<dyn FnOnce() + Send>;

pub(super) struct Node {
    /// Set once, under the lock of `state`, so that `wait` cannot miss it. Read without the lock.
    cancelled: AtomicBool,
    /// `None` for a root, for a child that was cancelled from the start, and after the drop has begun.
    parent: Option<ParentLink>,
    pub(super) state: Mutex<NodeState>,
    /// Notified when `cancelled` is set, and when a callback has ended.
    changed: Condvar,
}

struct ParentLink {
    parent: Arc<Node>,
    /// The number of this node in the parent.
    id: i64,
}

#[derive(Default)]
pub(super) struct NodeState {
    /// A cancellation has reached this node, so no child may join.
    closed: bool,
    /// The children, and the callbacks that have not run, by number: in the order of registration, after the callbacks
    /// that come first.
    pub(super) listeners: BTreeMap<i64, Listener>,
    last_id: i64,
    running: Option<RunningCallback>,
}

/// A child or a callback.
pub(super) enum Listener {
    Child(Weak<Node>),
    Callback(Callback),
}

/// The callback that is running. There is at most one, because one thread runs all callbacks of a node.
struct RunningCallback {
    id: i64,
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
        let id = state.next_id();
        let child = Self::build(Some(ParentLink { parent: Arc::clone(parent), id }), false);
        state.listeners.insert(id, Listener::Child(Arc::downgrade(&child)));
        child
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

    /// `Acquire` pairs with the `Release` in [`set_cancelled`](Self::set_cancelled). A thread that reads `true` sees
    /// everything before the cancellation, and the flags of all descendants.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Returns whether a cancellation has reached this node. The flag may not be set yet, although flags of descendants
    /// are.
    pub(super) fn is_closed(&self) -> bool {
        self.is_cancelled() || self.state.lock().closed
    }

    /// Makes the first two passes. Returns the nodes with callbacks. The caller runs these.
    pub(super) fn cancel(top: &Arc<Self>) -> Vec<Arc<Self>> {
        // Parents come before their children in this list. All passes are loops over it, so depth costs heap, not
        // stack.
        let mut walk = Vec::new();
        let mut pending = vec![Arc::clone(top)];
        while let Some(node) = pending.pop() {
            // A cancelled node has only cancelled descendants, so its subtree needs no work.
            if !node.is_cancelled() {
                let first = node.close(&mut pending);
                walk.push((node, first));
            }
        }
        for (node, _) in walk.iter().rev() {
            node.set_cancelled();
        }
        // A cancelled node gets no further callbacks.
        walk.retain(|(node, first)| *first && !node.state.lock().listeners.is_empty());
        walk.into_iter().map(|(node, _)| node).collect()
    }

    /// Closes the node, and appends its children to `children`. Returns whether this call was the first.
    fn close(&self, children: &mut Vec<Arc<Self>>) -> bool {
        let mut state = self.state.lock();
        children.extend(state.listeners.values().filter_map(|listener| match listener {
            Listener::Child(child) => child.upgrade(),
            Listener::Callback(_) => None,
        }));
        !mem::replace(&mut state.closed, true)
    }

    fn set_cancelled(&self) {
        let mut state = self.state.lock();
        self.cancelled.store(true, Ordering::Release);
        // No cancellation passes through a cancelled node, so its children are no longer needed.
        state.listeners.retain(|_, listener| matches!(listener, Listener::Callback(_)));
        drop(state);
        self.changed.notify_all();
    }

    pub(super) fn run_callbacks(&self) {
        loop {
            let mut state = self.state.lock();
            let next = state.listeners.pop_first();
            state.running = next.as_ref().map(|&(id, _)| RunningCallback { id, thread: thread::current().id() });
            drop(state);
            // The previous callback has ended. A drop of its guard may be waiting for that.
            self.changed.notify_all();
            let Some((_, Listener::Callback(callback))) = next else { return };
            shielded("a cancellation callback", callback);
        }
    }

    /// Registers a callback, before all others if `first`. Returns `None` if the node is already cancelled: then the
    /// callback has run already.
    pub(super) fn register(&self, callback: Callback, first: bool) -> Option<i64> {
        let mut state = self.state.lock();
        // Read under the lock under which it is set: a thread that sets it later finds the callback here. Between the
        // first and the second pass, a node is closed but not cancelled. Its callbacks have not begun then, so another
        // one may be added.
        if self.is_cancelled() {
            drop(state);
            shielded("a cancellation callback", callback);
            return None;
        }
        let id = if first { -state.next_id() } else { state.next_id() };
        state.listeners.insert(id, Listener::Callback(callback));
        Some(id)
    }

    /// Unregisters a callback. After this returns, the callback does not run, unless the caller is that callback.
    pub(super) fn unregister(&self, id: i64) {
        let mut state = self.state.lock();
        if let Some(callback) = state.listeners.remove(&id) {
            // Outside the lock, because its captured values are user values.
            drop(state);
            drop(callback);
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
        // A loop instead of a recursion: each ancestor's link is taken before the ancestor is dropped.
        let mut link = self.parent.take();
        while let Some(ParentLink { parent, id }) = link {
            parent.state.lock().listeners.remove(&id);
            link = Arc::into_inner(parent).and_then(|mut last| last.parent.take());
        }
    }
}

impl NodeState {
    fn next_id(&mut self) -> i64 {
        self.last_id += 1;
        self.last_id
    }

    fn runs_elsewhere(&self, id: i64) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.id == id && running.thread != thread::current().id())
    }
}
