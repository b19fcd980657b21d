//! The keys: numbers, shared names, and strings such as UUIDs.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

/// A kind of key.
pub(crate) trait BenchKey: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// Returns key number `number`. Different numbers give different keys, in an order that does not help hash tables.
    fn nth(number: u64) -> Self;
}

impl BenchKey for u64 {
    fn nth(number: u64) -> Self {
        scatter(number)
    }
}

/// 32 characters, reference-counted.
impl BenchKey for Arc<str> {
    fn nth(number: u64) -> Self {
        String::nth(number).into()
    }
}

/// 32 characters.
impl BenchKey for String {
    fn nth(number: u64) -> Self {
        format!("{:016x}{:016x}", scatter(number), scatter(!number))
    }
}

pub(crate) fn keys<K: BenchKey>(count: usize) -> Vec<K> {
    (0..count as u64).map(K::nth).collect()
}

/// A bijection on numbers: the last step of splitmix64.
fn scatter(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_distinct_and_of_the_length_that_is_said() {
        assert_eq!(keys::<u64>(10_000).into_iter().collect::<HashSet<_>>().len(), 10_000);
        assert_eq!(keys::<String>(10_000).into_iter().collect::<HashSet<_>>().len(), 10_000);
        assert!(keys::<Arc<str>>(100).iter().all(|key| key.len() == 32));
    }
}
