//! The keys of objects in a bucket. Plain values.
//!
//! The key of an object is `<group or core>.<kind>.<namespace or _>.<name>`. Other keys of the bucket are `_owners.<uid
//! of the owner>`, `_owners.<uid of the owner>.<key of the dependent>`, `_markers` and `_reserve`.
//!
//! Parts are escaped: letters, digits and `-` stay as they are, any other byte becomes `=` and two hexadecimal digits,
//! and an empty text becomes a single `=`. No escaped part contains a dot or equals `_`, and no group begins with `_`.
//! A group that is actually named `core` becomes `=63ore`, because `core` means the core group.

use std::fmt::Write as _;

use homeostat_objects::{Kind, ObjectKey};

/// The key of the note about removed markers. Its value is the revision of the newest one.
pub(super) const MARKERS: &str = "_markers";
/// The key of the entry that a deletion in a full bucket may remove.
pub(super) const RESERVE: &str = "_reserve";
/// The first part of the keys that name owners' dependents.
pub(super) const OWNERS: &str = "_owners";
/// The group part for the core group.
const CORE: &str = "core";
/// The group part for a group named `core`.
const NAMED_CORE: &str = "=63ore";
/// The namespace part for cluster-wide objects.
const NO_NAMESPACE: &str = "_";

/// The parts of an object's key. The version of its kind is not one of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct EntryKey {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) key: ObjectKey,
}

impl EntryKey {
    pub(super) fn new(kind: &Kind, key: &ObjectKey) -> Self {
        Self { group: kind.group().to_owned(), kind: kind.name().to_owned(), key: key.clone() }
    }

    /// Returns the key as text.
    pub(super) fn text(&self) -> String {
        let Self { group, kind, key } = self;
        format!("{}.{}.{}.{}", group_part(group), escaped(kind), namespace_part(key.namespace()), escaped(key.name()))
    }

    /// Parses a key of the bucket. `None` if it is not the key of an object.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let (group, kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let group = match group {
            CORE => String::new(),
            NAMED_CORE => CORE.to_owned(),
            group => plain(group)?,
        };
        let namespace = if namespace == NO_NAMESPACE { String::new() } else { plain(namespace)? };
        Some(Self { group, kind: plain(kind)?, key: ObjectKey::new(&namespace, &plain(name)?) })
            .filter(|key| key.text() == text)
    }
}

/// Returns the filter for the objects of a kind. An empty namespace selects the cluster-wide objects.
pub(super) fn filter(kind: &Kind, namespace: Option<&str>, name: Option<&str>) -> String {
    let start = format!("{}.{}", group_part(kind.group()), escaped(kind.name()));
    match (namespace.map(namespace_part), name.map(escaped)) {
        (None, None) => format!("{start}.>"),
        (Some(namespace), None) => format!("{start}.{namespace}.*"),
        (namespace, Some(name)) => format!("{start}.{}.{name}", namespace.as_deref().unwrap_or("*")),
    }
}

/// Returns the key that names a dependent of the owner with this uid.
pub(super) fn dependent(uid: &str, dependent: &EntryKey) -> String {
    format!("{OWNERS}.{}.{}", escaped(uid), dependent.text())
}

/// Returns the key that exists if the owner with this uid may have dependents.
pub(super) fn owner(uid: &str) -> String {
    format!("{OWNERS}.{}", escaped(uid))
}

/// Returns the filter for the dependents of the owner with this uid.
pub(super) fn dependents(uid: &str) -> String {
    format!("{OWNERS}.{}.>", escaped(uid))
}

/// Parses the key that names a dependent. Returns the owner's uid and the dependent.
pub(super) fn parse_dependent(text: &str) -> Option<(String, EntryKey)> {
    let (uid, dependent) = text.strip_prefix(OWNERS)?.strip_prefix('.')?.split_once('.')?;
    Some((plain(uid)?, EntryKey::parse(dependent)?))
}

/// Parses the key of an owner. Returns its uid.
pub(super) fn parse_owner(text: &str) -> Option<String> {
    plain(text.strip_prefix(OWNERS)?.strip_prefix('.')?)
}

fn group_part(group: &str) -> String {
    match group {
        "" => CORE.to_owned(),
        CORE => NAMED_CORE.to_owned(),
        group => escaped(group),
    }
}

fn namespace_part(namespace: &str) -> String {
    if namespace.is_empty() { NO_NAMESPACE.to_owned() } else { escaped(namespace) }
}

fn escaped(text: &str) -> String {
    if text.is_empty() {
        return "=".to_owned();
    }
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "={byte:02X}");
        }
    }
    escaped
}

/// Unescapes a part. `None` if it is not the escaped form of a text.
fn plain(part: &str) -> Option<String> {
    if part == "=" {
        return Some(String::new());
    }
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'=' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    let text = String::from_utf8(bytes).ok()?;
    (!text.is_empty() && escaped(&text) == part).then_some(text)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof!["[a-z0-9.-]{1,20}", "[a-zA-Z=_.*> ]{0,6}", ".{0,6}", Just("core".to_owned())]
    }

    fn any_key() -> impl Strategy<Value = EntryKey> {
        (any_text(), any_text(), any_text(), any_text()).prop_filter_map(
            "slashes separate namespace and name",
            |(group, kind, namespace, name)| {
                let has_slash = namespace.contains('/') || name.contains('/');
                (!has_slash).then(|| EntryKey { group, kind, key: ObjectKey::new(&namespace, &name) })
            },
        )
    }

    proptest! {
        #[test]
        fn a_key_is_read_as_it_was_written(key in any_key()) {
            let text = key.text();
            prop_assert!(text.split('.').count() == 4);
            let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-/_=.".contains(&byte);
            prop_assert!(text.bytes().all(is_valid) && !text.contains("..") && !text.ends_with('.'), "{}", text);
            prop_assert_eq!(EntryKey::parse(&text), Some(key));
        }

        #[test]
        fn different_keys_have_different_texts(one in any_key(), other in any_key()) {
            prop_assert_eq!(one == other, one.text() == other.text());
        }

        #[test]
        fn a_text_that_is_read_is_the_text_of_its_key(text in "[a-z=_0-9AF.]{0,24}") {
            if let Some(key) = EntryKey::parse(&text) {
                prop_assert_eq!(key.text(), text);
            }
        }

        #[test]
        fn dependents_are_read_as_they_were_written(uid in any_text(), key in any_key()) {
            let text = dependent(&uid, &key);
            prop_assert_eq!(EntryKey::parse(&text), None, "no object has such a key");
            prop_assert!(EntryKey::parse(&owner(&uid)).is_none() && parse_dependent(&owner(&uid)).is_none());
            prop_assert!(text.starts_with(dependents(&uid).trim_end_matches('>')));
            prop_assert_eq!(parse_dependent(&text), Some((uid, key)));
        }
    }

    #[test]
    fn keys_begin_with_the_kind_and_the_namespace() {
        let widget = Kind::namespaced("example.com", "v1", "Widget");
        let key = EntryKey::new(&widget, &ObjectKey::new("default", "web.1")).text();
        assert_eq!(key, "example=2Ecom.Widget.default.web=2E1");
        assert_eq!(filter(&widget, None, None), "example=2Ecom.Widget.>");
        assert_eq!(filter(&widget, Some("default"), None), "example=2Ecom.Widget.default.*");
        assert_eq!(filter(&widget, Some(""), None), "example=2Ecom.Widget._.*");
        assert_eq!(filter(&widget, None, Some("web.1")), "example=2Ecom.Widget.*.web=2E1");
        assert_eq!(filter(&widget, Some("default"), Some("web.1")), key);
        let node = EntryKey::new(&Kind::cluster("", "v1", "Node"), &ObjectKey::cluster("n-1")).text();
        assert_eq!(node, "core.Node._.n-1");
        for text in [MARKERS, RESERVE, "_owners", "a.b.c", "a.b.c.d.e", "a.b.c.=2e", "a.b.c.=61", "a.b..d", ""] {
            assert_eq!(EntryKey::parse(text), None, "{text}");
        }
    }
}
