//! The limits of an object: its depth and its size. Only [`size`] recurses. All other code accepts values of any depth.

use std::io;

use serde_json::Value;

use super::change::Location;
use crate::json::key_of;
use crate::{ClientError, Kind, ObjectKey, ObjectRef, SharedObject};

/// The most levels of nested arrays and objects, the object itself included. Common parsers, such as `serde_json`, read
/// 127 levels: enough for every object, its managed fields, and a list of such objects.
pub(super) const MOST_DEPTH: usize = 120;
/// How many levels deeper `managedFields` may be than the object, because they repeat the paths of the fields.
pub(super) const MANAGED: usize = 5;

/// Returns the number of nested arrays and objects.
pub(super) fn depth(value: &Value) -> usize {
    walk(value, None, 0)
}

/// Returns the depth of an object. For its managed fields, [`MANAGED`] levels are subtracted.
pub(super) fn object_depth(object: &Value) -> usize {
    let managed = object.get("metadata").and_then(|meta| meta.get("managedFields"));
    walk(object, managed, MANAGED) - MANAGED
}

fn walk(value: &Value, managed: Option<&Value>, above: usize) -> usize {
    let mut deepest = above;
    let mut open = vec![(value, above)];
    while let Some((value, above)) = open.pop() {
        let above = if managed.is_some_and(|managed| std::ptr::eq(managed, value)) { above - MANAGED } else { above };
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, above + 1))),
            Value::Object(fields) => open.extend(fields.values().map(|field| (field, above + 1))),
            _ => continue,
        }
        deepest = deepest.max(above + 1);
    }
    deepest
}

/// Returns the length of a value's JSON text in bytes. It recurses, so check the depth first.
pub(super) fn size(value: &Value) -> usize {
    struct Count(usize);

    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    // Writing a value cannot fail: its keys are strings.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Returns an upper bound for the length of a value's JSON text in bytes. Much faster than [`size`]. Returns `None` for
/// a value with numbers other than integers, which may have any number of digits.
fn most_bytes(value: &Value) -> Option<usize> {
    /// An integer of 64 bits, or `false`, or two brackets; and a comma.
    const PLAIN: usize = 21;
    // A control character becomes six bytes, `\u0000`. A string has two quotes, and a comma or colon.
    let text = |text: &str| 6 * text.len() + 3;
    let (mut most, mut open) = (0, vec![value]);
    while let Some(value) = open.pop() {
        most += PLAIN;
        match value {
            Value::String(string) => most += text(string),
            Value::Number(number) if number.as_u64().is_none() && number.as_i64().is_none() => return None,
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                most += fields.keys().map(|name| text(name)).sum::<usize>();
                open.extend(fields.values());
            }
            _ => {}
        }
    }
    Some(most)
}

/// Drops a value of any depth without recursion.
pub(crate) fn dismantle(value: Value) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => open.extend(fields.into_iter().map(|(_, field)| field)),
            _ => {}
        }
    }
}

/// Returns the first names on the path to the deepest value.
fn way_down(mut value: &Value) -> String {
    let mut path = String::new();
    for _ in 0..4 {
        let child = match value {
            Value::Array(items) => {
                items.iter().enumerate().map(|(at, item)| (at.to_string(), item)).max_by_key(deepest)
            }
            Value::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), field)).max_by_key(deepest),
            _ => None,
        };
        let Some((name, child)) = child else { break };
        if !path.is_empty() {
            path.push('.');
        }
        path.extend(name.chars().take(63));
        value = child;
    }
    path
}

fn deepest((_, value): &(String, &Value)) -> usize {
    depth(value)
}

/// Refuses an object that is nested too deep, before any code recurses into it. A stored object that is too deep may be
/// written again if it does not become deeper. `current` returns the stored object with a key.
///
/// # Errors
///
/// Returns [`Invalid`](crate::ClientErrorKind::Invalid), with the path of the deepest field.
pub fn admit(
    kind: &Kind,
    object: Value,
    current: impl FnOnce(&ObjectKey) -> Option<SharedObject>,
) -> Result<Value, ClientError> {
    let found = object_depth(&object);
    if found > MOST_DEPTH {
        let key = key_of(&object);
        if current(&key).is_none_or(|current| found > object_depth(&current.to_value())) {
            let error = too_deep(ObjectRef::new(kind, &key), &object);
            dismantle(object);
            return Err(error);
        }
    }
    Ok(object)
}

fn too_deep(object: ObjectRef, value: &Value) -> ClientError {
    let rule = format!("must be nested at most {MOST_DEPTH} levels deep");
    ClientError::invalid(object, way_down(value), format!("{} levels deep", object_depth(value)), rule)
}

/// Refuses an object that is too deep or has more than `most_size` bytes of JSON. A stored object beyond the limits may
/// be written again if it does not grow, so that its finalizers can be removed.
pub(super) fn check_limits(
    location: &Location,
    current: Option<&SharedObject>,
    next: &Value,
    most_size: usize,
) -> Result<(), ClientError> {
    check_depth(location, current, next)?;
    if most_bytes(next).is_some_and(|most| most <= most_size) {
        return Ok(());
    }
    let found = size(next);
    if found > most_size && current.is_none_or(|current| found > size(&current.to_value())) {
        let rule = format!("its JSON has {found} bytes, but at most {most_size} are allowed");
        return Err(ClientError::invalid(location.object_ref(), "", found.to_string(), rule));
    }
    Ok(())
}

/// Refuses an object that is too deep, as [`check_limits`] does.
pub(super) fn check_depth(
    location: &Location,
    current: Option<&SharedObject>,
    next: &Value,
) -> Result<(), ClientError> {
    let found = object_depth(next);
    if found > MOST_DEPTH && current.is_none_or(|current| found > object_depth(&current.to_value())) {
        return Err(too_deep(location.object_ref(), next));
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let text = || "[a\u{0}\u{1f}\"\\\\é😀]{0,9}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(text(), inner, 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_text_is_never_longer_than_its_bound(json in any_json()) {
            prop_assert!(size(&json) <= most_bytes(&json).unwrap());
        }
    }

    /// The longest text for each kind of value. The bound exceeds it by at most 21 bytes for each value.
    #[test]
    fn the_bound_counts_the_longest_texts() {
        let lists = [Value::from(vec![u64::MAX; 100]), vec![i64::MIN; 100].into(), vec![false; 100].into()];
        for json in lists.into_iter().chain(["\u{0}".repeat(100).into()]) {
            let (size, most) = (size(&json), most_bytes(&json).unwrap());
            assert!(size <= most && most <= size + 100 * 21, "{size} and {most}: {json}");
        }
        assert_eq!(most_bytes(&json!([1.5])), None);
    }

    #[test]
    fn an_object_is_refused_from_one_byte_above_the_limit() {
        let location = Location { kind: std::sync::Arc::new(Kind::of("v1", "X")), key: ObjectKey::new("default", "a") };
        let object = json!({"data": {"text": "x".repeat(100)}});
        let found = size(&object);
        assert!(check_limits(&location, None, &object, found).is_ok());
        assert!(check_limits(&location, None, &object, found - 1).is_err());
    }
}
