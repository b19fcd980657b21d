//! The versions of objects in a bucket. A plain value.

use std::fmt;

use jiff::Timestamp;

/// The digits of a revision in a version.
const DIGITS: usize = 12;
/// The digits of the time before it.
const LIFE_DIGITS: usize = 13;

/// The `resourceVersion` of an object, as a decimal number: the bucket's life and the revision in it.
///
/// A bucket that was deleted and created again begins with revision 1. Its versions are greater than all versions before, because
/// its life begins later. No client can confuse versions of the two buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectVersion {
    /// The time of the bucket's creation in milliseconds since 1970.
    pub(super) life: u64,
    pub(super) revision: u64,
}

impl ObjectVersion {
    /// Reads a version. `None` if no object in a bucket has such a version.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (life, revision) = text.split_at_checked(LIFE_DIGITS)?;
        let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
        let version = Self { life: life.parse().ok()?, revision: revision.parse().ok()? };
        (is_decimal && version.to_string() == text).then_some(version)
    }
}

/// Returns the life of a bucket from the time of its creation, as the server writes it.
pub(super) fn life_of(created: &str) -> Option<u64> {
    let time: Timestamp = created.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

impl fmt::Display for ObjectVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0LIFE_DIGITS$}{:0DIGITS$}", self.life, self.revision)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_version_is_read_as_it_was_written(life in 0..10_u64.pow(13), revision in any::<u64>()) {
            let version = ObjectVersion { life, revision };
            prop_assert_eq!(ObjectVersion::parse(&version.to_string()), Some(version));
        }

        #[test]
        fn another_text_is_no_version(text in "[0-9]{0,30}|.{0,30}") {
            if let Some(version) = ObjectVersion::parse(&text) {
                prop_assert_eq!(version.to_string(), text);
            }
        }
    }

    #[test]
    fn a_later_bucket_has_greater_versions() {
        let life = |created: &str| life_of(created).unwrap();
        let (one, other) = (life("2026-11-22T22:00:00.123456789Z"), life("2026-11-22T22:00:00.125Z"));
        let last = ObjectVersion { life: one, revision: 999_999_999_999 }.to_string();
        let first = ObjectVersion { life: other, revision: 1 }.to_string();
        assert_eq!((last.as_str(), first.as_str()), ("1795384800123999999999999", "1795384800125000000000001"));
        assert!(last < first && last.len() == first.len());
        assert_eq!(life_of("yesterday"), None);
    }
}
