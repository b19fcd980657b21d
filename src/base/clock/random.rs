//! Random numbers and random orders. In a simulation, its seed determines them.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::Clock;
use crate::base::backoff::Draws;

impl Clock {
    /// Returns an independent stream of random numbers. In a simulation, its scheduler decides them.
    #[must_use]
    pub fn draws(&self) -> Draws {
        self.scheduler().map_or_else(Draws::random, |(_, scheduler)| Draws::new(scheduler.draw()))
    }

    /// Returns the seed of the simulation. `None` outside a simulation, so this also tells whether the clock is
    /// simulated.
    #[must_use]
    pub fn seed(&self) -> Option<u64> {
        self.scheduler().map(|(_, scheduler)| scheduler.seed())
    }

    /// In a simulation, orders the items of a hash table by the seed. Otherwise leaves them as they are.
    pub fn arrange<T, K: Hash + ?Sized>(&self, items: &mut [T], key: impl Fn(&T) -> &K) {
        if let Some(seed) = self.seed() {
            let number = |item: &T| {
                let mut hasher = DefaultHasher::new();
                seed.hash(&mut hasher);
                key(item).hash(&mut hasher);
                hasher.finish()
            };
            for (one, other) in swaps(items.iter().map(number).collect()) {
                items.swap(one, other);
            }
        }
    }
}

/// Returns the swaps, in order, that sort a list with these numbers. A sort itself would be compiled anew for each type
/// of items.
fn swaps(numbers: Vec<u64>) -> Vec<(usize, usize)> {
    let mut order: Vec<(u64, usize)> = numbers.into_iter().zip(0..).collect();
    order.sort_unstable();
    let mut swaps = Vec::new();
    for start in 0..order.len() {
        // Follows one cycle of the permutation.
        let mut at = start;
        loop {
            let from = std::mem::replace(&mut order[at].1, at);
            if from == start || from == at {
                break;
            }
            swaps.push((at, from));
            at = from;
        }
    }
    swaps
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::swaps;

    #[test]
    fn the_swaps_sort_any_list() {
        let mut draws = 7_u64;
        for length in 0..40 {
            let numbers: Vec<u64> = (0..length)
                .map(|_| {
                    draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (draws >> 33) % 16
                })
                .collect();
            let (mut sorted, mut expected) = (numbers.clone(), numbers.clone());
            for (one, other) in swaps(numbers) {
                sorted.swap(one, other);
            }
            expected.sort_unstable();
            assert_eq!(sorted, expected);
        }
    }
}
