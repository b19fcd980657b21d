//! First-in-first-out lists with links in the entries of a slab.
//!
//! No operation allocates, and each takes constant time, except walking a list. A list is a ring closed by a
//! *sentinel*: a link outside the slab. Every neighbour of an entry has a link, so [`LinkedLists::remove`] needs no
//! list number and no special case for the first or last entry.
//!
//! An index below [`SENTINEL_BASE`] names an entry; `SENTINEL_BASE + n` names the sentinel of list `n`.
//!
//! Invariants: an entry is in at most one list; `next` and `prev` of neighbours name each other; an entry outside all
//! lists holds [`ListLink::FREE`]. This module knows nothing else of an entry.

use std::fmt;

/// The first index of a sentinel. Every entry has a lower index.
pub(crate) const SENTINEL_BASE: u32 = u32::MAX - 1023;

/// The most lists of one [`LinkedLists`]. The last index is reserved for [`ListLink::FREE`].
pub(crate) const MAX_LISTS: usize = 1023;

/// The two neighbours of an entry in a ring. Each is an entry or a sentinel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListLink {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl ListLink {
    /// The link of an entry outside all lists.
    pub(crate) const FREE: Self = Self { prev: u32::MAX, next: u32::MAX };

    /// Returns whether the entry is in no list.
    #[inline]
    pub(crate) fn is_free(self) -> bool {
        self.next == u32::MAX
    }
}

/// The slab of entries, as the lists and the wheel use it.
///
/// Only [`LinkedLists`] changes the link of an entry in a list. The tick of an entry in a wheel must not change.
pub(crate) trait Entries {
    /// Returns the link of the entry. It starts as [`ListLink::FREE`].
    fn link(&self, index: u32) -> ListLink;

    /// Returns the link of the entry, for writing.
    fn link_mut(&mut self, index: u32) -> &mut ListLink;

    /// Returns when the entry is due, in ticks of its wheel. Not used by the lists.
    fn tick(&self, index: u32) -> u64;
}

/// A fixed number of lists, numbered from 0.
///
/// Several `LinkedLists` may share a slab, and an entry may move between them. Call [`remove`](Self::remove) on the one
/// that holds the entry: a link does not tell them apart.
pub(crate) struct LinkedLists<const COUNT: usize> {
    sentinels: [ListLink; COUNT],
}

impl<const COUNT: usize> LinkedLists<COUNT> {
    /// Returns empty lists.
    ///
    /// # Panics
    ///
    /// If there are more than [`MAX_LISTS`].
    pub(crate) fn new() -> Self {
        assert!(COUNT <= MAX_LISTS, "{COUNT} lists, of at most {MAX_LISTS} that have a sentinel");
        let alone = |list| ListLink { prev: sentinel_of(list), next: sentinel_of(list) };
        Self { sentinels: std::array::from_fn(alone) }
    }

    /// Returns whether the list has no entry.
    #[cfg(test)]
    pub(crate) fn is_empty(&self, list: usize) -> bool {
        self.sentinels[list].next == sentinel_of(list)
    }

    /// Returns the first entry of a list.
    #[inline]
    pub(crate) fn front(&self, list: usize) -> Option<u32> {
        entry(self.sentinels[list].next)
    }

    /// Returns the entry after this one. `index` must be in a list.
    #[inline]
    pub(crate) fn next(entries: &impl Entries, index: u32) -> Option<u32> {
        let link = entries.link(index);
        debug_assert!(!link.is_free(), "entry {index} is in no list");
        entry(link.next)
    }

    /// Returns the entries of a list in order.
    pub(crate) fn iter<E: Entries>(&self, entries: &E, list: usize) -> impl Iterator<Item = u32> {
        std::iter::successors(self.front(list), |&index| Self::next(entries, index))
    }

    /// Adds an entry that is in no list to the end of a list.
    #[inline(always)]
    pub(crate) fn push_back(&mut self, entries: &mut impl Entries, list: usize, index: u32) {
        debug_assert!(index < SENTINEL_BASE, "{index} names a sentinel");
        let sentinel = sentinel_of(list);
        let behind = self.sentinels[list].prev;
        let link = entries.link_mut(index);
        debug_assert!(link.is_free(), "entry {index} is in a list already");
        *link = ListLink { prev: behind, next: sentinel };
        self.sentinels[list].prev = index;
        self.link_mut(entries, behind).next = index;
    }

    /// Adds an entry that is in no list to the front of a list.
    pub(crate) fn push_front(&mut self, entries: &mut impl Entries, list: usize, index: u32) {
        let sentinel = sentinel_of(list);
        let ahead = self.sentinels[list].next;
        let link = entries.link_mut(index);
        debug_assert!(link.is_free(), "entry {index} is in a list already");
        *link = ListLink { prev: sentinel, next: ahead };
        self.sentinels[list].next = index;
        self.link_mut(entries, ahead).prev = index;
    }

    /// Removes an entry from the front of its list.
    #[inline(always)]
    pub(crate) fn remove_front(&mut self, entries: &mut impl Entries, list: usize, index: u32) {
        debug_assert_eq!(self.front(list), Some(index), "the front of list {list}");
        let next = std::mem::replace(entries.link_mut(index), ListLink::FREE).next;
        self.sentinels[list].next = next;
        self.link_mut(entries, next).prev = sentinel_of(list);
    }

    /// Moves all entries of a list to the end of another. Constant time.
    pub(crate) fn append(&mut self, entries: &mut impl Entries, from: usize, to: usize) {
        let ListLink { prev: last, next: first } = self.sentinels[from];
        if entry(first).is_none() {
            return;
        }
        let (source, target) = (sentinel_of(from), sentinel_of(to));
        self.sentinels[from] = ListLink { prev: source, next: source };
        let behind = self.sentinels[to].prev;
        self.link_mut(entries, behind).next = first;
        self.link_mut(entries, first).prev = behind;
        self.link_mut(entries, last).next = target;
        self.sentinels[to].prev = last;
    }

    /// Removes an entry from its list. Returns the number of the list if it is empty now.
    #[inline(always)]
    pub(crate) fn remove(&mut self, entries: &mut impl Entries, index: u32) -> Option<usize> {
        let ListLink { prev, next } = std::mem::replace(entries.link_mut(index), ListLink::FREE);
        debug_assert!(next != u32::MAX, "entry {index} is in no list");
        self.link_mut(entries, prev).next = next;
        self.link_mut(entries, next).prev = prev;
        // Only a sentinel can be both neighbours, so the list is empty now.
        if prev == next { list_of(prev) } else { None }
    }

    #[inline(always)]
    fn link_mut<'a>(&'a mut self, entries: &'a mut impl Entries, at: u32) -> &'a mut ListLink {
        match list_of(at) {
            Some(list) => &mut self.sentinels[list],
            None => entries.link_mut(at),
        }
    }
}

impl<const COUNT: usize> fmt::Debug for LinkedLists<COUNT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lists").field("count", &COUNT).finish_non_exhaustive()
    }
}

/// Returns the index of a list's sentinel.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "`LinkedLists::new` bounds the number of lists")]
fn sentinel_of(list: usize) -> u32 {
    SENTINEL_BASE + list as u32
}

/// Returns the list of a sentinel; `None` for an entry.
#[inline]
fn list_of(at: u32) -> Option<usize> {
    at.checked_sub(SENTINEL_BASE).map(|list| list as usize)
}

/// Returns the entry; `None` for a sentinel.
#[inline]
fn entry(at: u32) -> Option<u32> {
    (at < SENTINEL_BASE).then_some(at)
}

#[cfg(test)]
impl<const COUNT: usize> LinkedLists<COUNT> {
    /// Asserts that every list is a ring of matching links. Returns the total number of entries.
    pub(crate) fn check(&self, entries: &impl Entries) -> usize {
        let mut count = 0;
        for (list, sentinel) in self.sentinels.iter().enumerate() {
            let mut behind = sentinel_of(list);
            for index in self.iter(entries, list) {
                assert_eq!(entries.link(index).prev, behind, "entry {index} of list {list}");
                behind = index;
                count += 1;
            }
            assert_eq!(sentinel.prev, behind, "the end of list {list}");
            assert_eq!(self.is_empty(list), behind == sentinel_of(list));
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const LISTS: usize = 3;
    const ENTRIES: u32 = 8;

    struct TestSlab(Vec<ListLink>);

    impl TestSlab {
        fn new() -> Self {
            Self(vec![ListLink::FREE; ENTRIES as usize])
        }
    }

    impl Entries for TestSlab {
        fn link(&self, index: u32) -> ListLink {
            self.0[index as usize]
        }

        fn link_mut(&mut self, index: u32) -> &mut ListLink {
            &mut self.0[index as usize]
        }

        fn tick(&self, _index: u32) -> u64 {
            unreachable!("the lists do not ask for the time")
        }
    }

    #[test]
    fn what_comes_first_leaves_first() {
        let (mut lists, mut slab) = (LinkedLists::<LISTS>::new(), TestSlab::new());
        for index in [4, 0, 7] {
            lists.push_back(&mut slab, 1, index);
        }
        assert_eq!(lists.iter(&slab, 1).collect::<Vec<_>>(), [4, 0, 7]);
        assert_eq!(lists.front(1), Some(4));
        assert_eq!(LinkedLists::<LISTS>::next(&slab, 4), Some(0));
        assert_eq!(LinkedLists::<LISTS>::next(&slab, 7), None);
        assert!(lists.is_empty(0) && !lists.is_empty(1) && lists.is_empty(2));
    }

    #[test]
    fn removal_names_the_list_it_emptied() {
        let (mut lists, mut slab) = (LinkedLists::<LISTS>::new(), TestSlab::new());
        lists.push_back(&mut slab, 2, 3);
        lists.push_back(&mut slab, 2, 5);
        assert_eq!(lists.remove(&mut slab, 3), None);
        assert!(slab.link(3).is_free());
        assert_eq!(lists.remove(&mut slab, 5), Some(2));
        assert_eq!(lists.front(2), None);
        assert_eq!(lists.check(&slab), 0);
    }

    #[test]
    fn a_list_is_appended_to_another_in_order() {
        let (mut lists, mut slab) = (LinkedLists::<LISTS>::new(), TestSlab::new());
        for index in [4, 0, 7] {
            lists.push_back(&mut slab, 0, index);
        }
        lists.push_back(&mut slab, 1, 2);
        lists.append(&mut slab, 0, 1);
        assert_eq!(lists.iter(&slab, 1).collect::<Vec<_>>(), [2, 4, 0, 7]);
        assert!(lists.is_empty(0));
        lists.append(&mut slab, 0, 1);
        lists.append(&mut slab, 1, 2);
        assert_eq!((lists.iter(&slab, 2).collect::<Vec<_>>(), lists.check(&slab)), (vec![2, 4, 0, 7], 4));
    }

    #[test]
    fn the_last_list_and_the_free_link_are_told_apart() {
        let (mut lists, mut slab) = (LinkedLists::<MAX_LISTS>::new(), TestSlab::new());
        lists.push_back(&mut slab, MAX_LISTS - 1, 0);
        assert!(!slab.link(0).is_free());
        assert_eq!(lists.remove(&mut slab, 0), Some(MAX_LISTS - 1));
        assert_eq!(entry(SENTINEL_BASE - 1), Some(SENTINEL_BASE - 1));
        assert_eq!(entry(SENTINEL_BASE), None);
        assert_eq!(list_of(SENTINEL_BASE - 1), None);
    }

    #[test]
    #[should_panic(expected = "1024 lists, of at most 1023")]
    fn more_lists_than_sentinels_are_refused() {
        let _ = LinkedLists::<{ MAX_LISTS + 1 }>::new();
    }

    proptest! {
        /// Each step removes an entry from its list, or adds an entry without a list to either end of one.
        #[test]
        fn lists_are_queues(steps in prop::collection::vec((0..ENTRIES, 0..LISTS, any::<bool>()), 0..80)) {
            let (mut lists, mut slab) = (LinkedLists::<LISTS>::new(), TestSlab::new());
            let mut model: [VecDeque<u32>; LISTS] = Default::default();
            for (index, list, front) in steps {
                if let Some(held) = model.iter().position(|queue| queue.contains(&index)) {
                    model[held].retain(|&other| other != index);
                    let emptied = model[held].is_empty().then_some(held);
                    prop_assert_eq!(lists.remove(&mut slab, index), emptied);
                } else if front {
                    model[list].push_front(index);
                    lists.push_front(&mut slab, list, index);
                } else {
                    model[list].push_back(index);
                    lists.push_back(&mut slab, list, index);
                }
                for (list, queue) in model.iter().enumerate() {
                    prop_assert_eq!(lists.front(list), queue.front().copied());
                    prop_assert_eq!(lists.is_empty(list), queue.is_empty());
                    prop_assert!(lists.iter(&slab, list).eq(queue.iter().copied()));
                }
                lists.check(&slab);
                let free = (0..ENTRIES).filter(|&index| slab.link(index).is_free()).count();
                prop_assert_eq!(free, ENTRIES as usize - model.iter().map(VecDeque::len).sum::<usize>());
            }
        }
    }
}
