//! Generates uids and names, at random or from a seed.

use uuid::Uuid;

/// The characters of generated names: no vowels and no confusing digits, as in apimachinery's `rand.SafeEncodeString`.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The length of the generated part of a name.
pub(crate) const SUFFIX: usize = 5;

/// Makes uids and names for new objects.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    seed: Option<u64>,
}

impl Names {
    /// Returns random uids and names.
    #[must_use]
    pub const fn random() -> Self {
        Self { seed: None }
    }

    /// Returns uids and names that depend only on this seed and on the version of the store.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self { seed: Some(seed) }
    }

    /// Returns the uid for the object that is created with this version.
    pub(crate) fn uid(self, version: u64) -> Uuid {
        self.seed.map_or_else(Uuid::new_v4, |seed| Uuid::from_u64_pair(seed, version))
    }
}

/// Returns a suffix of five characters, a different one for each attempt.
pub(crate) fn suffix(uid: Uuid, attempt: u128) -> String {
    // A large step, so that the suffixes of successive attempts do not look alike.
    let mut number = uid.as_u128().wrapping_add(attempt * 8_765_431);
    let digits = std::iter::repeat_with(|| {
        let digit = ALPHABET[(number % 27) as usize];
        number /= 27;
        char::from(digit)
    });
    digits.take(SUFFIX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn successive_names_differ() {
        let names = Names::seeded(3);
        let made: HashSet<_> = (0..1_000).map(|version| suffix(names.uid(version), 0)).collect();
        assert_eq!(made.len(), 1_000);
        let tried: HashSet<_> = (0..100).map(|attempt| suffix(names.uid(1), attempt)).collect();
        assert_eq!(tried.len(), 100);
        assert!(made.iter().all(|suffix| suffix.len() == SUFFIX));
        assert_ne!(Names::random().uid(1), Names::random().uid(1));
    }
}
