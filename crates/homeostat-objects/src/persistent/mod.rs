//! An ordered map with cheap clones that share its nodes. A plain value.
//!
//! It is a B+ tree: the leaves hold the entries, and all leaves have the same depth. A write copies the nodes on its
//! path that a clone shares, and changes the other nodes in place.

#[cfg(all(test, not(loom)))]
mod tests;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Bound;
use std::slice;
use std::sync::Arc;

/// The most entries of a leaf and the most children of an inner node.
const MOST: usize = 32;
/// How many entries a full node grows by.
const STEP: usize = 8;

/// An ordered map with cheap clones.
pub(crate) struct PersistentMap<K, V> {
    /// `None` if the map is empty.
    root: Option<Arc<TreeNode<K, V>>>,
    len: usize,
}

enum TreeNode<K, V> {
    /// The entries in the order of their keys.
    Leaf(Vec<(K, V)>),
    Inner(Vec<Child<K, V>>),
}

/// A child with a lower bound of its keys. The bound is above all keys of the child before it. The bound of a first
/// child has no meaning.
type Child<K, V> = (K, Arc<TreeNode<K, V>>);

impl<K, V> PersistentMap<K, V> {
    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl<K: Ord + Clone, V: Clone> PersistentMap<K, V> {
    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    pub(crate) fn get_key_value<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                TreeNode::Leaf(entries) => {
                    let (key, value) = &entries[find(entries, key).ok()?];
                    return Some((key, value));
                }
                TreeNode::Inner(children) => node = &children[child_of(children, key)].1,
            }
        }
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let mut node = self.root.as_mut()?;
        loop {
            match Arc::make_mut(node) {
                TreeNode::Leaf(entries) => {
                    let at = find(entries, key).ok()?;
                    return Some(&mut entries[at].1);
                }
                TreeNode::Inner(children) => {
                    let at = child_of(children, key);
                    node = &mut children[at].1;
                }
            }
        }
    }

    /// Inserts an entry. Returns the value that the key had before.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let Some(root) = &mut self.root else {
            (self.root, self.len) = (Some(Arc::new(TreeNode::Leaf(vec![(key, value)]))), 1);
            return None;
        };
        let (old, split) = insert(root, key, value);
        if let Some((bound, right)) = split {
            let left = Arc::clone(root);
            *root = Arc::new(TreeNode::Inner(vec![(bound.clone(), left), (bound, right)]));
        }
        self.len += usize::from(old.is_none());
        old
    }

    /// Removes an entry. Returns its value.
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        // Look first: a key that is absent copies no node.
        self.get(key)?;
        let root = self.root.as_mut()?;
        let removed = remove(root, key)?;
        self.len -= 1;
        if root.len() == 0 {
            self.root = None;
        } else if let TreeNode::Inner(children) = &**root
            && let [(_, only)] = children.as_slice()
        {
            *root = Arc::clone(only);
        }
        Some(removed)
    }

    /// Returns the entries from a key up to but excluding the key `end`, in order.
    pub(crate) fn range<'a, Q: Ord + ?Sized>(&'a self, from: Bound<&Q>, end: Option<&'a Q>) -> Range<'a, K, V, Q>
    where
        K: Borrow<Q>,
    {
        let mut range = Range { above: Vec::new(), leaf: [].iter(), end };
        let Some(root) = &self.root else { return range };
        let mut node = root;
        loop {
            match &**node {
                TreeNode::Leaf(entries) => {
                    let skipped = match from {
                        Bound::Included(from) => entries.partition_point(|(key, _)| key.borrow() < from),
                        Bound::Excluded(from) => entries.partition_point(|(key, _)| key.borrow() <= from),
                        Bound::Unbounded => 0,
                    };
                    range.enter(&entries[skipped..]);
                    return range;
                }
                TreeNode::Inner(children) => {
                    let at = match from {
                        Bound::Included(from) | Bound::Excluded(from) => child_of(children, from),
                        Bound::Unbounded => 0,
                    };
                    range.above.push(children[at + 1..].iter());
                    node = &children[at].1;
                }
            }
        }
    }

    /// Returns all entries in order.
    pub(crate) fn iter(&self) -> Range<'_, K, V, K> {
        self.range(Bound::Unbounded, None)
    }
}

/// Returns the index of the item with this key, or the index at which to insert it. It branches, unlike the search of
/// the standard library, so that the processor reads ahead: the keys are behind pointers.
fn find<K: Borrow<Q>, T, Q: Ord + ?Sized>(items: &[(K, T)], key: &Q) -> Result<usize, usize> {
    let (mut from, mut to) = (0, items.len());
    while from < to {
        let middle = usize::midpoint(from, to);
        match items[middle].0.borrow().cmp(key) {
            Ordering::Less => from = middle + 1,
            Ordering::Equal => return Ok(middle),
            Ordering::Greater => to = middle,
        }
    }
    Err(from)
}

/// Returns the index of the child that has this key, if any child has it.
fn child_of<K: Borrow<Q>, T, Q: Ord + ?Sized>(children: &[(K, T)], key: &Q) -> usize {
    match find(&children[1..], key) {
        Ok(before) => before + 1,
        Err(before) => before,
    }
}

/// A new node to the right of another one, with its lower bound.
type Split<K, V> = Option<Child<K, V>>;

fn insert<K: Ord + Clone, V: Clone>(node: &mut Arc<TreeNode<K, V>>, key: K, value: V) -> (Option<V>, Split<K, V>) {
    match Arc::make_mut(node) {
        TreeNode::Leaf(entries) => match find(entries, &key) {
            Ok(at) => (Some(std::mem::replace(&mut entries[at].1, value)), None),
            Err(at) => {
                (None, put(entries, at, (key, value)).map(|(bound, right)| (bound, Arc::new(TreeNode::Leaf(right)))))
            }
        },
        TreeNode::Inner(children) => {
            let at = child_of(children, &key);
            let (old, split) = insert(&mut children[at].1, key, value);
            let split = split.and_then(|split| put(children, at + 1, split));
            (old, split.map(|(bound, right)| (bound, Arc::new(TreeNode::Inner(right)))))
        }
    }
}

/// Inserts an item into a node. If that overfills the node, moves a part into a new node.
fn put<K: Clone, T>(items: &mut Vec<(K, T)>, at: usize, item: (K, T)) -> Option<(K, Vec<(K, T)>)> {
    if items.len() == items.capacity() {
        items.reserve_exact(STEP);
    }
    items.insert(at, item);
    if items.len() <= MOST {
        return None;
    }
    // Keys that are inserted in order leave full nodes.
    let right = items.split_off(if at == MOST { MOST } else { MOST / 2 });
    items.shrink_to_fit();
    Some((right[0].0.clone(), right))
}

fn remove<K: Ord + Clone + Borrow<Q>, V: Clone, Q: Ord + ?Sized>(node: &mut Arc<TreeNode<K, V>>, key: &Q) -> Option<V> {
    match Arc::make_mut(node) {
        TreeNode::Leaf(entries) => find(entries, key).ok().map(|at| entries.remove(at).1),
        TreeNode::Inner(children) => {
            let at = child_of(children, key);
            let removed = remove(&mut children[at].1, key)?;
            merge(children, at);
            Some(removed)
        }
    }
}

/// Removes the child at this index if it is empty. If it is small, merges it with a neighbour that has room.
fn merge<K: Clone, V: Clone>(children: &mut Vec<Child<K, V>>, at: usize) {
    let len = |at: usize| children.get(at).map_or(MOST, |(_, child)| child.len());
    if len(at) == 0 {
        children.remove(at);
    } else if len(at) < MOST / 4 {
        let has_room = |left: &usize| len(*left) + len(*left + 1) <= MOST * 3 / 4;
        let Some(left) = at.checked_sub(1).filter(has_room).or_else(|| Some(at).filter(has_room)) else { return };
        let (bound, right) = children.remove(left + 1);
        Arc::make_mut(&mut children[left].1).append(bound, Arc::unwrap_or_clone(right));
    }
}

impl<K, V> TreeNode<K, V> {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.len(),
        }
    }

    /// Appends the node to the right, which has this lower bound and the same depth.
    fn append(&mut self, bound: K, right: Self) {
        match (self, right) {
            (Self::Leaf(entries), Self::Leaf(right)) => entries.extend(right),
            (Self::Inner(children), Self::Inner(mut right)) => {
                right[0].0 = bound;
                children.extend(right);
            }
            _ => {}
        }
    }
}

impl<K: Clone, V: Clone> Clone for TreeNode<K, V> {
    fn clone(&self) -> Self {
        fn copy<T: Clone>(items: &[T]) -> Vec<T> {
            // The copy is about to be changed.
            let mut copy = Vec::with_capacity((items.len() + 1).next_multiple_of(STEP));
            copy.extend_from_slice(items);
            copy
        }
        match self {
            Self::Leaf(entries) => Self::Leaf(copy(entries)),
            Self::Inner(children) => Self::Inner(copy(children)),
        }
    }
}

impl<K, V> Clone for PersistentMap<K, V> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), len: self.len }
    }
}

impl<K, V> Default for PersistentMap<K, V> {
    fn default() -> Self {
        Self { root: None, len: 0 }
    }
}

impl<K: Ord + Clone + fmt::Debug, V: Clone + fmt::Debug> fmt::Debug for PersistentMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// An iterator over entries in the order of their keys.
pub(crate) struct Range<'a, K, V, Q: ?Sized> {
    /// The remaining children of each inner node on the path.
    above: Vec<slice::Iter<'a, Child<K, V>>>,
    leaf: slice::Iter<'a, (K, V)>,
    end: Option<&'a Q>,
}

impl<'a, K: Borrow<Q>, V, Q: Ord + ?Sized> Range<'a, K, V, Q> {
    fn enter(&mut self, mut entries: &'a [(K, V)]) {
        // One comparison decides whether the range ends in a leaf.
        if let (Some(end), Some((last, _))) = (self.end, entries.last())
            && last.borrow() >= end
        {
            entries = &entries[..entries.partition_point(|(key, _)| key.borrow() < end)];
            self.above.clear();
        }
        self.leaf = entries.iter();
    }
}

impl<'a, K: Borrow<Q>, V, Q: Ord + ?Sized> Iterator for Range<'a, K, V, Q> {
    type Item = (&'a K, &'a V);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.leaf.next() {
                return Some((key, value));
            }
            let mut node = loop {
                match self.above.last_mut()?.next() {
                    Some((_, child)) => break child,
                    None => self.above.pop(),
                };
            };
            while let TreeNode::Inner(children) = &**node {
                let (first, rest) = children.split_first()?;
                self.above.push(rest.iter());
                node = &first.1;
            }
            if let TreeNode::Leaf(entries) = &**node {
                self.enter(entries);
            }
        }
    }
}
