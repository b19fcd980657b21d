//! The versions of objects in a bucket. Plain values.

use std::fmt;

use jiff::Timestamp;

/// The number of digits of the revision in a version.
const DIGITS: usize = 12;
/// The number of digits of the creation time in a version.
const CREATED_DIGITS: usize = 13;

/// The `resourceVersion` of an object: a decimal number made of the bucket's creation time and the revision.
///
/// A bucket that was deleted and created again starts with revision 1. Because its creation time is later, its
/// versions are greater than all earlier ones, and no client can confuse versions of the two buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectVersion {
    /// The bucket's creation time in milliseconds since 1970.
    pub(super) created_ms: u64,
    pub(super) revision: u64,
}

impl ObjectVersion {
    /// Parses a version. `None` if it is not the version of an object in a bucket.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (created_ms, revision) = text.split_at_checked(CREATED_DIGITS)?;
        let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
        let version = Self { created_ms: created_ms.parse().ok()?, revision: revision.parse().ok()? };
        (is_decimal && version.to_string() == text).then_some(version)
    }
}

/// Parses a bucket's creation time, as the server writes it, to milliseconds since 1970.
pub(super) fn parse_created_ms(created: &str) -> Option<u64> {
    let time: Timestamp = created.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

impl fmt::Display for ObjectVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0CREATED_DIGITS$}{:0DIGITS$}", self.created_ms, self.revision)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_version_is_read_as_it_was_written(created_ms in 0..10_u64.pow(13), revision in any::<u64>()) {
            let version = ObjectVersion { created_ms, revision };
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
        let created_ms = |created: &str| parse_created_ms(created).unwrap();
        let (one, other) = (created_ms("2026-11-22T22:00:00.123456789Z"), created_ms("2026-11-22T22:00:00.125Z"));
        let last = ObjectVersion { created_ms: one, revision: 999_999_999_999 }.to_string();
        let first = ObjectVersion { created_ms: other, revision: 1 }.to_string();
        assert_eq!((last.as_str(), first.as_str()), ("1795384800123999999999999", "1795384800125000000000001"));
        assert!(last < first && last.len() == first.len());
        assert_eq!(parse_created_ms("yesterday"), None);
    }
}
