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
            items.sort_by_cached_key(number);
        }
    }
}
