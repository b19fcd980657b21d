//! Merges the changes of admission hooks into the object that the client applied.

use serde_json::Value;

/// Returns the applied object with its fields as they are after the admission.
///
/// `next` is the state before the admission. Fields that the admission removes are removed. Fields that it adds are
/// not added, so that they get no owner.
pub(super) fn overlaid(applied: &Value, next: &Value, admitted: &Value) -> Value {
    let (Value::Object(fields), Value::Object(before), Value::Object(after)) = (applied, next, admitted) else {
        return if next == admitted { applied.clone() } else { admitted.clone() };
    };
    let kept = fields.iter().filter_map(|(name, value)| match (before.get(name), after.get(name)) {
        (Some(_), None) => None,
        (Some(before), Some(after)) => Some((name.clone(), overlaid(value, before, after))),
        (None, _) => Some((name.clone(), value.clone())),
    });
    Value::Object(kept.collect())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn applied_fields_have_their_admitted_values() {
        let applied = json!({"spec": {"title": "T", "extra": 1, "list": [1]}});
        let next = json!({"metadata": {"uid": "u"}, "spec": {"title": "T", "extra": 1, "list": [1], "other": 2}});
        let admitted = json!({"metadata": {"uid": "u"}, "spec": {"title": "t", "list": [1, 2], "other": 3, "new": 1}});
        assert_eq!(overlaid(&applied, &next, &admitted), json!({"spec": {"title": "t", "list": [1, 2]}}));
        assert_eq!(overlaid(&applied, &next, &next), applied);
    }
}
