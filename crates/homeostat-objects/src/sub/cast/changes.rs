//! Finds the first difference between two JSON values, and applies their difference to a third value with more fields.

use serde_json::{Map, Value};

/// Returns one segment of a JSON pointer.
pub(super) fn token(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Returns the JSON pointer of the first field that differs.
pub(super) fn first(before: &Value, after: &Value) -> Option<String> {
    let within = match (before, after) {
        _ if before == after => return None,
        (Value::Object(before), Value::Object(after)) => before.keys().chain(after.keys()).find_map(|name| {
            let (before, after) = (before.get(name), after.get(name));
            let within = || before.zip(after).and_then(|(before, after)| first(before, after));
            (before != after).then(|| token(name) + &within().unwrap_or_default())
        }),
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let mut entries = before.iter().zip(after).enumerate();
            entries.find_map(|(at, (before, after))| Some(format!("/{at}{}", first(before, after)?)))
        }
        _ => None,
    };
    Some(within.unwrap_or_default())
}

/// Makes the same changes to `whole` that turned `before` into `after`. Fields that only `whole` has stay.
pub(super) fn carry(before: &Value, after: &Value, whole: &mut Value) {
    match (before, after, whole) {
        _ if before == after => {}
        (Value::Object(before), Value::Object(after), Value::Object(whole)) => fields(before, after, whole),
        (Value::Array(before), Value::Array(after), Value::Array(whole)) if before.len() == whole.len() => {
            *whole = entries(before, after, whole);
        }
        (.., whole) => whole.clone_from(after),
    }
}

fn fields(before: &Map<String, Value>, after: &Map<String, Value>, whole: &mut Map<String, Value>) {
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        whole.remove(name);
    }
    for (name, after) in after {
        match (before.get(name), whole.get_mut(name)) {
            (Some(before), _) if before == after => {}
            // `null` counts as absent, because the type may not accept it.
            _ if after.is_null() => drop(whole.remove(name)),
            (Some(before), Some(whole)) => carry(before, after, whole),
            _ => drop(whole.insert(name.clone(), after.clone())),
        }
    }
}

/// Computes the entries of a list. A moved entry keeps all its fields.
///
/// If the lists have the same length, a changed entry is changed in place. All other entries are taken from `after`.
fn entries(before: &[Value], after: &[Value], whole: &[Value]) -> Vec<Value> {
    let mut taken: Vec<bool> = before.iter().zip(after).map(|(before, after)| before == after).collect();
    taken.resize(before.len(), false);
    let stays = taken.clone();
    let moved: Vec<Option<usize>> = after
        .iter()
        .enumerate()
        .map(|(at, after)| {
            if stays.get(at) == Some(&true) {
                return Some(at);
            }
            let from = (0..before.len()).find(|&from| !taken[from] && before[from] == *after)?;
            taken[from] = true;
            Some(from)
        })
        .collect();
    let entry = |(at, from): (usize, &Option<usize>)| match from {
        Some(from) => whole[*from].clone(),
        None if before.len() == after.len() && !taken[at] => {
            let mut entry = whole[at].clone();
            carry(&before[at], &after[at], &mut entry);
            entry
        }
        None => after[at].clone(),
    };
    moved.iter().enumerate().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// Generates small values, so that two values have much in common. They contain no `null`, which counts as absent.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..3).prop_map(Value::from)];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ab/]", inner, 0..3)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// Adds one field to each object.
    fn with_more(json: &Value, more: &mut u64) -> Value {
        match json {
            Value::Object(fields) => {
                *more += 1;
                let number = ("more".to_owned(), json!(*more));
                let fields = fields.iter().map(|(name, value)| (name.clone(), with_more(value, more)));
                Value::Object(fields.chain([number]).collect())
            }
            Value::Array(entries) => entries.iter().map(|entry| with_more(entry, more)).collect(),
            other => other.clone(),
        }
    }

    fn without_more(json: &Value) -> Value {
        match json {
            Value::Object(fields) => {
                let fields = fields.iter().filter(|(name, _)| *name != "more");
                Value::Object(fields.map(|(name, value)| (name.clone(), without_more(value))).collect())
            }
            Value::Array(entries) => entries.iter().map(without_more).collect(),
            other => other.clone(),
        }
    }

    fn all_more(json: &Value, found: &mut Vec<u64>) {
        match json {
            Value::Object(fields) => {
                found.extend(fields.get("more").and_then(Value::as_u64));
                fields.values().for_each(|value| all_more(value, found));
            }
            Value::Array(entries) => entries.iter().for_each(|entry| all_more(entry, found)),
            _ => {}
        }
    }

    proptest! {
        #[test]
        fn a_partial_view_shows_the_change(before in any_json(), after in any_json()) {
            let mut whole = with_more(&before, &mut 0);
            carry(&before, &after, &mut whole);
            prop_assert_eq!(without_more(&whole), after);
            let mut found = Vec::new();
            all_more(&whole, &mut found);
            let count = found.len();
            found.sort_unstable();
            found.dedup();
            prop_assert_eq!(found.len(), count, "a hidden field stays with one entry");
        }

        #[test]
        fn the_first_difference_is_where_both_differ(before in any_json(), after in any_json()) {
            let field = first(&before, &after);
            prop_assert_eq!(field.is_none(), before == after);
            if let Some(field) = field {
                prop_assert_ne!(before.pointer(&field), after.pointer(&field));
            }
        }
    }

    #[test]
    fn finds_the_first_difference() {
        let cases = [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": 1}), json!({"a": 2}), Some("/a")),
            (json!({"a": 1}), json!({}), Some("/a")),
            (json!({}), json!({"b": null}), Some("/b")),
            (json!({"a": [1, {"b/c~": 2}]}), json!({"a": [1, {"b/c~": 3}]}), Some("/a/1/b~1c~0")),
            (json!({"a": [1]}), json!({"a": [1, 2]}), Some("/a")),
            (json!(1), json!(2), Some("")),
        ];
        for (before, after, expected) in cases {
            assert_eq!(first(&before, &after).as_deref(), expected, "{before} {after}");
        }
    }

    #[test]
    fn hidden_fields_stay() {
        let [x, y, z] = ["x", "y", "z"].map(|name| json!({"name": name}));
        let full = |name: &str| json!({"name": name, "more": format!("of {name}")});
        let cases = [
            // Fields: set, created, removed, set to null.
            (
                json!({"a": {"b": 1}}),
                json!({"a": {"b": 2}}),
                json!({"a": {"b": 1, "c": 3}}),
                json!({"a": {"b": 2, "c": 3}}),
            ),
            (json!({}), json!({"a": {"b": 1}}), json!({"c": 3}), json!({"a": {"b": 1}, "c": 3})),
            (json!({"a": 1, "b": 2}), json!({"b": 2}), json!({"a": 1, "b": 5, "c": 3}), json!({"b": 5, "c": 3})),
            (json!({"a": 1}), json!({"a": null}), json!({"a": 1, "c": 3}), json!({"c": 3})),
            // A field with a default value is created as a whole.
            (json!({"a": {"b": 0, "c": 0}}), json!({"a": {"b": 1, "c": 0}}), json!({}), json!({"a": {"b": 1, "c": 0}})),
            // Unchanged fields are neither created nor cleared.
            (
                json!({"a": 1, "b": 0, "c": null}),
                json!({"a": 2, "b": 0, "c": null}),
                json!({"a": 1, "c": null}),
                json!({"a": 2, "c": null}),
            ),
            // Entries: changed, moved, removed, inserted, with another type.
            (
                json!([x, y]),
                json!([x, z]),
                json!([full("x"), full("y")]),
                json!([full("x"), {"name": "z", "more": "of y"}]),
            ),
            (json!([x, y]), json!([y, x]), json!([full("x"), full("y")]), json!([full("y"), full("x")])),
            (json!([x, y]), json!([y]), json!([full("x"), full("y")]), json!([full("y")])),
            (json!([x, y]), json!([x, z, y]), json!([full("x"), full("y")]), json!([full("x"), z, full("y")])),
            (json!([x, x]), json!([x]), json!([full("x"), full("other")]), json!([full("x")])),
            (
                json!([x, y, z]),
                json!([y, z, {"name": "w"}]),
                json!([full("x"), full("y"), full("z")]),
                json!([full("y"), full("z"), {"name": "w"}]),
            ),
            (json!([x, y]), json!([z]), json!([full("x"), full("y")]), json!([z])),
            (json!([x]), json!("x"), json!([full("x")]), json!("x")),
            // Lists of different lengths are not related.
            (json!([x]), json!([y]), json!([]), json!([y])),
        ];
        for (before, after, mut whole, expected) in cases {
            carry(&before, &after, &mut whole);
            assert_eq!(whole, expected, "{before} {after}");
        }
    }
}
