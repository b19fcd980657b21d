//! How deep and how large an object may be. Nothing here recurses, so that no value is too deep for it.

use std::io;

use serde_json::Value;

use super::Server;
use super::state::Place;
use super::txn::Txn;
use crate::objects::json::key_of;
use crate::objects::{ClientError, Kind, ObjectRef};

/// The most arrays and objects in one another, the object itself included. Parsers commonly read 127 levels, as `serde_json`
/// does: they can read every object, its managed fields, and a list of such objects.
pub(super) const MOST_DEPTH: usize = 120;
/// How many levels deeper than its fields an object's `managedFields` may be: they repeat the paths of the fields.
pub(super) const MANAGED: usize = 5;
/// The size of an object unless it is set, in bytes of JSON: as etcd has it.
pub(super) const MOST_SIZE: usize = 1_536 * 1_024;

/// The number of arrays and objects in one another.
pub(super) fn depth(value: &Value) -> usize {
    walk(value, None, 0)
}

/// The depth of an object, of which managed fields count for [`MANAGED`] levels less.
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

/// The length of a value's JSON text in bytes. Recurses: the depth must be known to be small.
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
    // A value is always written: its keys are strings.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// About how many bytes of memory a value takes.
pub(super) fn footprint(value: &Value) -> usize {
    // A node of a map has place for eleven fields, of which some eight are taken.
    const NODE: usize = 11 * (size_of::<String>() + size_of::<Value>());
    let mut bytes = size_of::<Value>();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => bytes += text.len(),
            Value::Array(items) => {
                bytes += size_of_val(items.as_slice());
                open.extend(items);
            }
            Value::Object(fields) => {
                bytes += fields.len().div_ceil(8) * NODE + fields.keys().map(String::len).sum::<usize>();
                open.extend(fields.values());
            }
            _ => {}
        }
    }
    bytes
}

/// Drops a value of any depth. A plain drop would recurse.
fn dismantle(value: Value) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => open.extend(fields.into_iter().map(|(_, field)| field)),
            _ => {}
        }
    }
}

/// The first names on the way to the deepest value.
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

fn too_deep(object: ObjectRef, value: &Value) -> ClientError {
    let rule = format!("must be nested at most {MOST_DEPTH} levels deep");
    ClientError::invalid(object, way_down(value), format!("{} levels deep", object_depth(value)), rule)
}

impl Server {
    /// Refuses an object that is too deep, before anything recurses into it. One that is stored already may be written again.
    pub(super) fn admit(&self, kind: &Kind, object: Value) -> Result<Value, ClientError> {
        let found = object_depth(&object);
        if found > MOST_DEPTH {
            let key = key_of(&object);
            let current = self.state.read().get(kind, &key).cloned();
            if current.is_none_or(|current| found > object_depth(&current)) {
                let error = too_deep(ObjectRef::new(kind, &key), &object);
                dismantle(object);
                return Err(error);
            }
        }
        Ok(object)
    }
}

impl Txn<'_> {
    /// Refuses an object that is too deep or too large. One that is so already may be written if it does not grow: so its
    /// finalizers can go.
    pub(super) fn check_limits(&self, place: &Place, current: Option<&Value>, next: &Value) -> Result<(), ClientError> {
        let found = object_depth(next);
        if found > MOST_DEPTH && current.is_none_or(|current| found > object_depth(current)) {
            return Err(too_deep(place.object_ref(), next));
        }
        let (found, most) = (size(next), self.most_size);
        if found > most && current.is_none_or(|current| found > size(current)) {
            let rule = format!("its JSON has {found} bytes, but at most {most} are allowed");
            return Err(ClientError::invalid(place.object_ref(), "", found.to_string(), rule));
        }
        Ok(())
    }
}
