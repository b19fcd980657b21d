//! Adds the changes of an admission to an applied object.

use serde_json::Value;

/// Returns the applied object with the changes that lead from `next` to `admitted`.
///
/// A field that the admission sets or changes is set. A field that it removes is removed, if the applied object has it.
pub(super) fn overlaid(applied: &Value, next: &Value, admitted: &Value) -> Value {
    let mut wanted = applied.clone();
    overlay(&mut wanted, next, admitted);
    wanted
}

fn overlay(wanted: &mut Value, next: &Value, admitted: &Value) {
    let (Value::Object(before), Value::Object(after)) = (next, admitted) else {
        if next != admitted {
            *wanted = admitted.clone();
        }
        return;
    };
    for (name, value) in after {
        let old = before.get(name);
        if old == Some(value) {
            continue;
        }
        if !wanted.is_object() {
            *wanted = Value::Object(serde_json::Map::new());
        }
        let Some(fields) = wanted.as_object_mut() else { continue };
        match old {
            Some(old) if old.is_object() && value.is_object() => {
                let inner = fields.entry(name).or_insert_with(|| Value::Object(serde_json::Map::new()));
                overlay(inner, old, value);
            }
            _ => drop(fields.insert(name.clone(), value.clone())),
        }
    }
    if let Some(fields) = wanted.as_object_mut() {
        fields.retain(|name, _| !before.contains_key(name) || after.contains_key(name));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_of_an_admission_are_applied_too() {
        let applied = json!({"spec": {"title": "T", "extra": 1, "list": [1]}});
        let next = json!({"metadata": {"uid": "u"}, "spec": {"title": "T", "extra": 1, "list": [1], "other": 2}});
        let admitted =
            json!({"metadata": {"uid": "u"}, "spec": {"title": "t", "list": [1, 2], "other": 2, "new": {"a": 1}}});
        let wanted = overlaid(&applied, &next, &admitted);
        assert_eq!(wanted, json!({"spec": {"title": "t", "list": [1, 2], "new": {"a": 1}}}));
        assert_eq!(overlaid(&applied, &next, &next), applied);
    }
}
