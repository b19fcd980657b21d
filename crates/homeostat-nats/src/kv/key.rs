//! Names of buckets, keys and filters.

use super::super::error::NatsError;

/// Checks the name of a bucket: letters, digits, `-` and `_`.
pub(super) fn check_bucket(name: &str) -> Result<(), NatsError> {
    let valid = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if valid { Ok(()) } else { Err(NatsError::invalid("bucket", name, "letters, digits, - and _")) }
}

/// The longest key in bytes. By default, a server closes a connection that sends a line longer than 4,096 bytes.
const MOST_KEY_BYTES: usize = 3_000;

/// Checks a key: parts of letters, digits and `-/_=`, joined by dots.
pub(super) fn check_key(key: &str) -> Result<(), NatsError> {
    let valid = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-/_=".contains(&byte))
    };
    if key.len() > MOST_KEY_BYTES {
        let start: String = key.chars().take(40).collect();
        let rule = format!("at most {MOST_KEY_BYTES} bytes long; it has {}", key.len());
        Err(NatsError::invalid("key", format!("{start}…"), rule))
    } else if key.split('.').all(valid) {
        Ok(())
    } else {
        Err(NatsError::invalid("key", key, "parts of letters, digits and - / _ =, joined by single dots"))
    }
}

/// Checks a filter: a key in which `*` matches one part, and a final `>` matches all further parts.
pub(super) fn check_filter(filter: &str) -> Result<(), NatsError> {
    let rest = filter.strip_suffix('>').map_or(filter, |rest| if rest.is_empty() { "a" } else { rest });
    let rest = if filter.ends_with('>') { rest.strip_suffix('.').unwrap_or(rest) } else { rest };
    let is_whole = !filter.ends_with('>') || filter == ">" || filter.ends_with(".>");
    let parts = rest.split('.').map(|part| if part == "*" { "a" } else { part });
    let plain = parts.collect::<Vec<_>>().join(".");
    if filter.len() > MOST_KEY_BYTES {
        check_key(filter)
    } else if is_whole && check_key(&plain).is_ok() {
        Ok(())
    } else {
        Err(NatsError::invalid("filter", filter, "a key, in which * is one part, and > at the end is the rest"))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn keys_have_parts_of_plain_characters() {
        for key in ["a", "a.b", "A-1/x=_", "a.b.c.d", "=", "-"] {
            assert!(check_key(key).is_ok() && check_filter(key).is_ok(), "{key}");
        }
        for key in ["", ".", "a.", ".a", "a..b", "a b", "a*", "*", ">", "a.>", "ä", "a\r\n", "a\0"] {
            assert!(check_key(key).unwrap_err().is_invalid(), "{key}");
        }
    }

    #[test]
    fn keys_fit_into_a_line_of_the_protocol() {
        assert!(check_key(&"a".repeat(3_000)).is_ok());
        for check in [check_key, check_filter] {
            let error = check(&"a".repeat(3_001)).unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains("3001"), "{error}");
        }
    }

    #[test]
    fn filters_have_whole_wildcards() {
        for filter in [">", "*", "a.*", "*.a", "a.>", "*.>", "a.*.b", "a.*.>"] {
            assert!(check_filter(filter).is_ok(), "{filter}");
        }
        for filter in ["", "a>", "a*", ">.a", "a.>.b", ".>", "a..>", "> ", "**"] {
            assert!(check_filter(filter).unwrap_err().is_invalid(), "{filter}");
        }
    }

    #[test]
    fn buckets_have_no_dots() {
        assert!(check_bucket("My-bucket_1").is_ok());
        for name in ["", "a.b", "a b", "a*", "ä"] {
            assert!(check_bucket(name).unwrap_err().is_invalid(), "{name}");
        }
        let text = check_bucket("a.b").unwrap_err().to_string();
        assert_eq!(text, "bucket is \"a.b\", but must be letters, digits, - and _");
    }
}
