//! A queue that holds each item at most once.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

use homeostat::queue::FastState;

/// A queue that holds each item at most once. An item that was taken can be added again.
#[derive(Debug)]
pub struct DistinctQueue<T> {
    line: VecDeque<T>,
    known: HashSet<T, FastState>,
}

impl<T> Default for DistinctQueue<T> {
    fn default() -> Self {
        Self { line: VecDeque::new(), known: HashSet::default() }
    }
}

impl<T: Clone + Eq + Hash> DistinctQueue<T> {
    /// Adds an item at the end, unless the queue holds it.
    pub fn push(&mut self, item: T) {
        if self.known.insert(item.clone()) {
            self.line.push_back(item);
        }
    }

    /// Adds items at the end. Skips those that the queue holds.
    pub fn extend(&mut self, items: impl IntoIterator<Item = T>) {
        items.into_iter().for_each(|item| self.push(item));
    }

    /// Takes the first item.
    pub fn take(&mut self) -> Option<T> {
        let item = self.line.pop_front()?;
        self.known.remove(&item);
        Some(item)
    }

    /// Takes all items, in order.
    pub fn take_all(&mut self) -> impl Iterator<Item = T> {
        self.known.clear();
        std::mem::take(&mut self.line).into_iter()
    }

    /// Returns the number of items.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.line.len()
    }
}
