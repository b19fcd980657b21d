//! The hash of a key, which decides which member owns the key.
//!
//! Rendezvous hashing (D. Thaler and C. Ravishankar, "A Name-Based Mapping Scheme for Rendezvous", 1996): each member
//! gets a weight for each key, and the greatest weight wins. If a member leaves, only its own keys move; if one joins,
//! it only takes keys.

use crate::stable_hash::stable_number;

/// The hash of a key. A [`Shards`](super::Shards) uses it to divide keys among processes.
///
/// It is the same in every process and version. Keys with equal hashes stay together.
///
/// # Examples
///
/// ```
/// use homeostat_objects::ShardHash;
///
/// let by_key = ShardHash::of(["default", "web"]);
/// assert_ne!(by_key, ShardHash::of(["defaultw", "eb"]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardHash(u64);

impl ShardHash {
    /// Returns the hash of a key from its parts, for example its namespace and its name.
    pub fn of<P: AsRef<[u8]>>(parts: impl AsRef<[P]>) -> Self {
        Self(stable_number(parts.as_ref().iter().map(AsRef::as_ref)))
    }

    /// Returns the bucket of this key: a number from zero to `count - 1`.
    ///
    /// It is the same in every process and version, so an object can have it in a label, and servers can select objects
    /// by it. The [guide](crate::guide::sharding) shows how processes then watch only the objects in their own buckets.
    ///
    /// # Panics
    ///
    /// If `count` is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat_objects::ShardHash;
    ///
    /// assert_eq!(ShardHash::of(["default", "web"]).bucket(64), 32);
    /// ```
    #[must_use]
    pub fn bucket(self, count: u64) -> u64 {
        assert!(count > 0, "the number of buckets is zero");
        mixed(self.0) % count
    }

    /// Returns the weight of a member for this key.
    fn weight(self, member: Self) -> u64 {
        mixed(self.0 ^ mixed(member.0))
    }

    /// Returns the index of the member that this key belongs to. `None` if there are no members.
    pub(super) fn owner(self, members: impl IntoIterator<Item = Self>) -> Option<usize> {
        let weighed = members.into_iter().enumerate().map(|(index, member)| (self.weight(member), member, index));
        weighed.max().map(|(_, _, index)| index)
    }

    /// Returns whether this key belongs to `me`, one of the members.
    pub(super) fn belongs_to(self, me: Option<Self>, members: &[Self]) -> bool {
        self.owner(members.iter().copied()).is_some_and(|index| Some(members[index]) == me)
    }
}

/// Mixes the bits of a number: the finalizer of `SplitMix64` (G. Steele, D. Lea and C. Flood, 2014).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const KEYS: usize = 100_000;

    fn members(count: usize) -> Vec<ShardHash> {
        (0..count).map(|number| ShardHash::of([format!("sites-node-{number}")])).collect()
    }

    fn keys() -> impl Iterator<Item = ShardHash> {
        (0..KEYS).map(|number| ShardHash::of(["default".to_owned(), format!("site-{number}")]))
    }

    #[test]
    fn keys_are_divided_evenly() {
        for count in 1..=7 {
            let mut owned = vec![0_usize; count];
            for key in keys() {
                owned[key.owner(members(count)).unwrap()] += 1;
            }
            let fair = KEYS / count;
            assert!(owned.iter().all(|keys| keys.abs_diff(fair) < fair / 25), "{owned:?}");
        }
    }

    /// Objects have the number of their bucket in a label, so it must never change.
    #[test]
    fn the_bucket_of_a_key_never_changes() {
        let buckets = |key: &[&str]| [1, 7, 16, 64].map(|count| ShardHash::of(key).bucket(count));
        assert_eq!(buckets(&["default", "web"]), [0, 6, 0, 32]);
        assert_eq!(buckets(&["default", "db"]), [0, 1, 8, 8]);
        assert_eq!(buckets(&["a"]), [0, 2, 5, 53]);
    }

    #[test]
    fn buckets_have_equal_shares_of_the_keys() {
        let mut sizes = vec![0_usize; 64];
        for key in keys() {
            sizes[usize::try_from(key.bucket(64)).unwrap()] += 1;
        }
        let fair = KEYS / 64;
        assert!(sizes.iter().all(|size| size.abs_diff(fair) < fair / 8), "{sizes:?}");
    }

    #[test]
    fn a_change_of_members_moves_only_the_keys_that_must_move() {
        let (five, six) = (members(5), members(6));
        let mut moved = 0;
        for key in keys() {
            let (before, after) = (five[key.owner(five.clone()).unwrap()], six[key.owner(six.clone()).unwrap()]);
            if before != after {
                assert_eq!(after, six[5], "a key moves only to the new member");
                moved += 1;
            }
        }
        assert!(moved < KEYS / 6 * 12 / 10, "{moved} keys have moved");
    }

    #[test]
    fn the_order_of_the_members_does_not_matter() {
        let (ordered, reversed) = (members(5), members(5).into_iter().rev().collect::<Vec<_>>());
        for key in keys().take(1_000) {
            let owner = |members: &[ShardHash]| members[key.owner(members.iter().copied()).unwrap()];
            assert_eq!(owner(&ordered), owner(&reversed));
        }
        assert_eq!(ShardHash::of(["a"]).owner([]), None);
    }
}
