//! The rules of Kubernetes for names and labels, from its documentation ("Object Names and IDs", "Labels and
//! Selectors", "Annotations").

/// The rule for the key of a label or annotation: `name`, or `prefix/name`.
pub(crate) const QUALIFIED: &str = "must be a name of at most 63 letters, digits, '-', '_' and '.', that begins and ends with a \
     letter or digit; before it there may be a DNS subdomain and a slash";
pub(crate) const LABEL_VALUE: &str =
    "must be at most 63 letters, digits, '-', '_' and '.', and begin and end with a letter or digit";
pub(crate) const SUBDOMAIN: &str = "must be a DNS subdomain: at most 253 lower-case letters, digits, '-' and '.', each part of which \
     begins and ends with a letter or digit";
/// The rule of [`is_dns_label`], for error messages.
pub const DNS_LABEL: &str =
    "must be a DNS label: at most 63 lower-case letters, digits and '-', and begin and end with a letter or digit";

fn is_made_of(text: &str, most: usize, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= most
        && bytes.first().is_some_and(|byte| edge(*byte))
        && bytes.last().is_some_and(|byte| edge(*byte))
        && bytes.iter().all(|byte| edge(*byte) || inner(*byte))
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Returns whether a text is a DNS label (RFC 1123), as a namespace must be.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    is_made_of(text, 63, is_lower, |byte| byte == b'-')
}

/// Returns whether a text is a DNS subdomain (RFC 1123), as a name must be.
#[must_use]
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|part| is_made_of(part, 253, is_lower, |byte| byte == b'-'))
}

/// Returns whether a text is a name of at most 63 characters, optionally after a subdomain and a slash. Finalizers and
/// the keys of labels and annotations must be such names.
pub(crate) fn is_qualified(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_subdomain) && !name.is_empty() && is_label_value(name)
}

pub(crate) fn is_label_value(text: &str) -> bool {
    text.is_empty()
        || is_made_of(text, 63, |byte| byte.is_ascii_alphanumeric(), |byte| matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases of apimachinery's `pkg/util/validation/validation_test.go`.
    #[test]
    fn names_follow_the_rules_of_kubernetes() {
        let long = |length: usize| "a".repeat(length);
        for name in ["a", "ab", "a1", "a-1", "a--1--2--b", "0", "01", "0-1--2--b", &long(63)] {
            assert!(is_dns_label(name) && is_subdomain(name), "{name}");
        }
        for name in [
            "",
            "A",
            "ABC",
            "aBc",
            "a.a",
            "-",
            "a-",
            "-a",
            "1-",
            "-1",
            "_",
            "a_b",
            "1_",
            ".",
            "a.b",
            " ",
            "a ",
            &long(64),
        ] {
            assert!(!is_dns_label(name), "{name}");
        }
        for name in ["a.b", "1.a", "a.1-2.b", "a--b.c", &long(253)] {
            assert!(is_subdomain(name), "{name}");
        }
        for name in ["", "A.a", "a..b", ".a", "a.", "a.-b", "a-.b", "a_b.c", "a b", "a/b", &long(254)] {
            assert!(!is_subdomain(name), "{name}");
        }
        let (at_most, too_long) = (format!("{}/{}", long(253), long(63)), format!("{}/b", long(254)));
        for name in [
            "simple",
            "now-with-dashes",
            "1-starts-with-num",
            "1234",
            "simple/simple",
            "now.with.dots/x",
            "a_B.c",
            &at_most,
        ] {
            assert!(is_qualified(name), "{name}");
        }
        for name in [
            "",
            "nospecialchars%^=@",
            "/simple",
            "simple/",
            "a/b/c",
            "-a",
            "a-",
            "A.b/c",
            "only/!",
            &too_long,
            &long(64),
        ] {
            assert!(!is_qualified(name), "{name}");
        }
        for value in ["", "simple", "end-with-num-1", "1234", "a_b.c", "A", &long(63)] {
            assert!(is_label_value(value), "{value}");
        }
        for value in ["nospecialchars%", "-a", "a-", "a b", "only/num", &long(64)] {
            assert!(!is_label_value(value), "{value}");
        }
    }
}
