//! The ready keys: a list for each of three priority levels, with a bound on how long a lower level waits.

use super::lists::{Entries, LinkedLists};
use super::request::Priority;

/// The bound on the wait of a ready key, in dequeues. A key with `p` keys ahead in its level is taken within
/// `STARVATION_BOUND * (p + 1)` dequeues, however full the other levels are.
pub const STARVATION_BOUND: usize = 16;

/// The ready keys by level. Higher levels are served first, but not in two of every [`STARVATION_BOUND`] turns. One of
/// these turns serves the normal level first, and the other one the low level.
#[derive(Debug)]
pub(crate) struct PriorityLevels {
    lists: LinkedLists<4>,
    len: usize,
    /// The number of keys in each level.
    depth: [usize; 3],
    /// The number of keys taken. It decides which of the [`STARVATION_BOUND`] turns is next.
    taken: usize,
}

/// The list of withdrawn keys, which count as ready but are no longer served.
const WITHDRAWN: usize = 3;
/// The turn in which the low level is served first.
const LOW_TURN: usize = STARVATION_BOUND - 1;
/// The turn in which the normal level is served first.
const NORMAL_TURN: usize = STARVATION_BOUND / 2 - 1;

impl PriorityLevels {
    pub(crate) fn new() -> Self {
        Self { lists: LinkedLists::new(), len: 0, depth: [0; 3], taken: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub(crate) fn push_back(&mut self, entries: &mut impl Entries, level: Priority, index: u32) {
        self.len += 1;
        self.depth[level.level()] += 1;
        self.lists.push_back(entries, level.level(), index);
    }

    #[inline]
    pub(crate) fn remove(&mut self, entries: &mut impl Entries, level: Priority, index: u32) {
        self.len -= 1;
        self.depth[level.level()] -= 1;
        self.lists.remove(entries, index);
    }

    /// Stops serving the ready keys. They count as ready until they are [removed](Self::remove). Constant time.
    pub(crate) fn withdraw(&mut self, entries: &mut impl Entries) {
        for level in Priority::SERVED {
            self.lists.append(entries, level.level(), WITHDRAWN);
        }
    }

    /// Returns the number of keys in a level.
    pub(crate) fn depth(&self, level: Priority) -> usize {
        self.depth[level.level()]
    }

    /// Returns the first key of each level.
    pub(crate) fn heads(&self) -> impl Iterator<Item = u32> {
        Priority::SERVED.into_iter().filter_map(|level| self.lists.front(level.level()))
    }

    /// Removes the first key of a level. It has been taken, so the next turn begins.
    #[inline(always)]
    pub(crate) fn take(&mut self, entries: &mut impl Entries, level: Priority, index: u32) {
        self.len -= 1;
        self.depth[level.level()] -= 1;
        self.lists.remove_front(entries, level.level(), index);
        self.taken = self.taken.wrapping_add(1);
    }

    /// Returns the key to take next.
    #[inline(always)]
    pub(crate) fn front(&self) -> Option<u32> {
        // Most queues use one level.
        if self.depth(Priority::Normal) == self.len {
            return self.lists.front(Priority::Normal.level());
        }
        self.front_of_levels()
    }

    fn front_of_levels(&self) -> Option<u32> {
        let front = |level: Priority| self.lists.front(level.level());
        let favoured = match self.taken % STARVATION_BOUND {
            LOW_TURN => front(Priority::Low),
            NORMAL_TURN => front(Priority::Normal),
            _ => None,
        };
        favoured.or_else(|| front(Priority::High)).or_else(|| front(Priority::Normal)).or_else(|| front(Priority::Low))
    }

    /// Moves a random key of the next level to its front and returns it. Only for simulations: otherwise a level is
    /// first in, first out.
    pub(crate) fn shuffle(&mut self, entries: &mut impl Entries, draw: u64) -> Option<u32> {
        let front = self.front()?;
        let level = Priority::SERVED.into_iter().find(|level| self.lists.front(level.level()) == Some(front))?;
        let number = usize::try_from(draw % u64::try_from(self.depth(level)).ok()?).ok()?;
        let chosen = self.lists.iter(entries, level.level()).nth(number)?;
        self.lists.remove(entries, chosen);
        self.lists.push_front(entries, level.level(), chosen);
        Some(chosen)
    }

    /// Returns how many keys have been taken so far. The count wraps.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Returns the ready keys, level by level, in order.
    pub(crate) fn iter<'a>(&'a self, entries: &'a impl Entries) -> impl Iterator<Item = u32> + 'a {
        Priority::SERVED.into_iter().flat_map(move |level| self.lists.iter(entries, level.level()))
    }
}
