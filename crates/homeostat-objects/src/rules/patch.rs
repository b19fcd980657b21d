//! Applies patches to objects.

use json_patch::PatchOperation;
use serde_json::Value;

use super::change::Location;
use super::limits::{MANAGED, MOST_DEPTH, depth, object_depth, size};
use crate::{ClientError, Patch};

/// The most operations of a JSON patch: the same limit as in an API server.
const MOST_OPERATIONS: usize = 10_000;

/// Applies a patch to the current object.
///
/// No operation may make it deeper than the limit for objects. The operations of a JSON patch may copy at most
/// `most_size` bytes in total.
pub(super) fn patched(
    location: &Location,
    mut object: Value,
    patch: &Patch,
    most_size: usize,
) -> Result<Value, ClientError> {
    let refuse = |field: String, value: String, rule: String| {
        Err(ClientError::invalid(location.object_ref(), field, value, rule))
    };
    let too_deep = |field: String, found: usize| {
        refuse(field, format!("{found} levels deep"), format!("must be nested at most {MOST_DEPTH} levels deep"))
    };
    let (Patch::Merge(json) | Patch::Json(json)) = patch;
    // The values of a JSON patch are two levels below its top.
    let found = depth(json);
    let is_too_deep = |object: &Value| found > MOST_DEPTH.max(object_depth(object)) + MANAGED + 2;
    if found > MOST_DEPTH + MANAGED + 2 && is_too_deep(&object) {
        return too_deep("patch".to_owned(), found);
    }
    let Patch::Json(operations) = patch else {
        json_patch::merge(&mut object, json);
        return Ok(object);
    };
    let operations: json_patch::Patch = match serde_json::from_value(operations.clone()) {
        Ok(operations) => operations,
        Err(error) => return refuse("patch".to_owned(), String::new(), error.to_string()),
    };
    if operations.len() > MOST_OPERATIONS {
        let rule = format!("must have at most {MOST_OPERATIONS} operations");
        return refuse("patch".to_owned(), format!("{} operations", operations.len()), rule);
    }
    let most_depth = MOST_DEPTH.max(object_depth(&object)) + MANAGED;
    let mut copied = 0;
    for (at, operation) in operations.iter().enumerate() {
        let field = || format!("patch[{at}]");
        let value = match operation {
            PatchOperation::Add(add) => Some(&add.value),
            PatchOperation::Replace(replace) => Some(&replace.value),
            PatchOperation::Move(from) => object.pointer(from.from.as_str()),
            PatchOperation::Copy(from) => object.pointer(from.from.as_str()).inspect(|value| copied += size(value)),
            _ => None,
        };
        let found = operation.path().count() + value.map_or(0, depth);
        if found > most_depth {
            return too_deep(field(), found);
        }
        if copied > most_size {
            let rule = format!("must copy at most {most_size} bytes, with the copies before it");
            return refuse(field(), format!("{copied} bytes"), rule);
        }
        if is_test_of_absence(&object, operation) {
            continue;
        }
        if let Err(error) = json_patch::patch_unsafe(&mut object, std::slice::from_ref(operation)) {
            return refuse(field(), String::new(), format!("{}: {}", error.path, error.kind));
        }
    }
    Ok(object)
}

/// Returns whether an operation tests that a field is absent, and the object has no such field.
///
/// For an API server, a missing field equals `null` in a test. The finalizer helper of kube-rs begins with such a test.
fn is_test_of_absence(object: &Value, operation: &PatchOperation) -> bool {
    let PatchOperation::Test(test) = operation else { return false };
    let Some((parent, field)) = test.path.split_back().filter(|_| test.value.is_null()) else { return false };
    let parent = object.pointer(parent.as_str()).and_then(Value::as_object);
    parent.is_some_and(|fields| !fields.contains_key(&*field.decoded()))
}
