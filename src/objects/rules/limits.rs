//! The limits of an object: its depth and its size. Except for [`size`], nothing here recurses, so it takes values of any depth.

use std::io;

use serde_json::Value;

use super::change::Location;
use crate::objects::json::key_of;
use crate::objects::{ClientError, Kind, ObjectKey, ObjectRef, SharedObject};

/// The most levels of nested arrays and objects, the object itself included. Common parsers, such as `serde_json`, read 127 levels:
/// enough for every object, its managed fields, and a list of such objects.
pub(super) const MOST_DEPTH: usize = 120;
/// The number of levels that `managedFields` may be deeper than the object. They repeat the paths of the fields.
pub(super) const MANAGED: usize = 5;

/// Returns the number of nested arrays and objects.
pub(super) fn depth(value: &Value) -> usize {
    walk(value, None, 0)
}

/// Returns the depth of an object. Its managed fields count for [`MANAGED`] levels less.
pub(super) fn object_depth(object: &Value) -> usize {
    walk(object, object.pointer("/metadata/managedFields"), MANAGED) - MANAGED
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

/// Refuses an object that is nested too deep, before anything recurses into it. An object that is stored already may be written
/// again if it does not become deeper.
pub(crate) fn admit(
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

/// Refuses an object that is too deep or has more than `most_size` bytes of JSON. A stored object beyond the limits may be
/// written again if it does not grow, so that its finalizers can be removed.
pub(super) fn check_limits(
    location: &Location,
    current: Option<&SharedObject>,
    next: &Value,
    most_size: usize,
) -> Result<(), ClientError> {
    let found = object_depth(next);
    if found > MOST_DEPTH && current.is_none_or(|current| found > object_depth(&current.to_value())) {
        return Err(too_deep(location.object_ref(), next));
    }
    let found = size(next);
    if found > most_size && current.is_none_or(|current| found > size(&current.to_value())) {
        let rule = format!("its JSON has {found} bytes, but at most {most_size} are allowed");
        return Err(ClientError::invalid(location.object_ref(), "", found.to_string(), rule));
    }
    Ok(())
}
