//! Applies fields under an owner: a simple form of Kubernetes' "Server-Side Apply".
//!
//! As in Kubernetes, `metadata.managedFields` records the owners of the fields. A write other than apply ends the
//! ownership of the fields that it changes. An owned field therefore always has the value that its owners applied. An
//! owner of status fields and an owner of other fields are two owners, even if they have the same name.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::json::meta_mut;
use crate::{FieldConflict, FieldOwner, PatchTarget};

/// The names from the top of an object to a field.
type Path = Vec<String>;

/// The fields of the metadata that can be owned.
const OWNED: [&str; 4] = ["annotations", "finalizers", "labels", "ownerReferences"];

/// The metadata arrays in which each element has its own owners. All other arrays are owned as a whole.
const BY_ELEMENT: [&str; 2] = ["finalizers", "ownerReferences"];

/// Maps the names of an array's elements to their positions. The first of equal elements counts.
type Positions = HashMap<String, usize>;

/// An object, and for each array in [`BY_ELEMENT`] the positions of its elements. Such an array may be very long.
struct IndexedObject<'a> {
    object: &'a Value,
    positions: [Positions; BY_ELEMENT.len()],
}

impl<'a> IndexedObject<'a> {
    fn new(object: &'a Value) -> Self {
        let of = |list| object["metadata"][list].as_array().map(|elements| positions(elements)).unwrap_or_default();
        Self { object, positions: BY_ELEMENT.map(of) }
    }

    fn at(&self, path: &[String]) -> Option<&'a Value> {
        let mut value = self.object;
        for (depth, name) in path.iter().enumerate() {
            value = match value {
                Value::Array(elements) => &elements[position(&self.positions, &path[..depth], name)?],
                value => value.get(name)?,
            };
        }
        Some(value)
    }
}

/// Returns the object with the applied fields, and its new `managedFields`. Without force, fails if other owners have
/// applied other values to these fields. `applied` has only fields of the part that the owner applies. An owner without
/// fields has no entry.
pub(super) fn apply(
    current: Option<&Value>,
    applied: &Value,
    owner: &FieldOwner,
    api_version: &str,
    now: Timestamp,
) -> Result<(Value, Value), Vec<FieldConflict>> {
    let fields = fields_of(applied);
    let Some(current) = current else {
        let own = (!fields.is_empty()).then(|| entry(owner, api_version, now, &fields));
        return Ok((applied.clone(), own.into_iter().collect()));
    };
    let (is, wanted) = (IndexedObject::new(current), IndexedObject::new(applied));
    let (mut before, mut own) = (BTreeSet::new(), None);
    let mut others = BTreeSet::new();
    let (mut entries, mut conflicts) = (Vec::new(), Vec::new());
    for known in current["metadata"]["managedFields"].as_array().into_iter().flatten() {
        if known["operation"] != "Apply" {
            entries.push(known.clone());
            continue;
        }
        let mut theirs = BTreeSet::new();
        read(&known["fieldsV1"], &mut Vec::new(), &mut theirs);
        if identity(known) == own_identity(owner) {
            (before, own) = (theirs, Some(known.clone()));
            continue;
        }
        let clash = |path: &Path| is_taken(&is, &wanted, &fields, path);
        if owner.force {
            theirs.retain(|path| !clash(path));
        } else {
            let owner = known["manager"].as_str().unwrap_or_default();
            conflicts
                .extend(theirs.iter().filter(|path| clash(path)).map(|path| FieldConflict::new(path.join("."), owner)));
        }
        if !theirs.is_empty() {
            let mut known = known.clone();
            known["fieldsV1"] = written(&theirs);
            entries.push(known);
        }
        others.extend(theirs);
    }
    if !conflicts.is_empty() {
        return Err(conflicts);
    }
    let mut next = current.clone();
    merge(&mut next, applied, &mut Vec::new());
    let is_kept = |path: &[String]| [&fields, &others].into_iter().any(|kept| has_within(kept, Bound::Included(path)));
    remove_all(&mut next, before.iter().filter(|path| !is_kept(path)), &is_kept);
    // If nothing changes, keep the old time, so that applying again writes nothing.
    let own = own.filter(|_| before == fields && next == *current);
    if !fields.is_empty() {
        let location = entries.partition_point(|entry| identity(entry) < own_identity(owner));
        entries.insert(location, own.unwrap_or_else(|| entry(owner, api_version, now, &fields)));
    }
    meta_mut(&mut next).remove("managedFields");
    Ok((next, Value::Array(entries)))
}

/// Returns the new `managedFields` after a write other than apply, or `None` if they do not change. Owners lose the
/// fields that the write has changed.
pub(super) fn disown(current: &Value, next: &Value) -> Option<Value> {
    let mut entries = current["metadata"]["managedFields"].as_array()?.clone();
    let (current, next) = (IndexedObject::new(current), IndexedObject::new(next));
    let mut lost = false;
    entries.retain_mut(|entry| {
        let mut fields = BTreeSet::new();
        read(&entry["fieldsV1"], &mut Vec::new(), &mut fields);
        let before = fields.len();
        fields.retain(|path| !differs(current.at(path), next.at(path)));
        if fields.len() < before {
            lost = true;
            entry["fieldsV1"] = written(&fields);
        }
        !fields.is_empty()
    });
    lost.then_some(Value::Array(entries))
}

/// Returns whether two values of a field differ. Two objects count as equal, because fields can be added to both.
fn differs(one: Option<&Value>, other: Option<&Value>) -> bool {
    one != other && !(one.is_some_and(Value::is_object) && other.is_some_and(Value::is_object))
}

fn entry(owner: &FieldOwner, api_version: &str, now: Timestamp, fields: &BTreeSet<Path>) -> Value {
    let mut entry = json!({
        "manager": owner.name, "operation": "Apply", "apiVersion": api_version, "time": now.to_string(),
        "fieldsType": "FieldsV1", "fieldsV1": written(fields),
    });
    if let (_, subresource @ "status") = own_identity(owner) {
        entry["subresource"] = subresource.into();
    }
    entry
}

/// Returns the name and the subresource of an entry's owner.
fn identity(entry: &Value) -> (&str, &str) {
    (entry["manager"].as_str().unwrap_or_default(), entry["subresource"].as_str().unwrap_or_default())
}

fn own_identity(owner: &FieldOwner) -> (&str, &str) {
    (&owner.name, if owner.target == PatchTarget::Status { "status" } else { "" })
}

/// Returns the fields that an applied object sets: values other than objects, empty objects, and the elements of some
/// arrays.
fn fields_of(applied: &Value) -> BTreeSet<Path> {
    fn walk(value: &Value, path: &mut Path, fields: &mut BTreeSet<Path>) {
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                for (name, value) in inner {
                    let skip = match path.as_slice() {
                        [] => matches!(name.as_str(), "apiVersion" | "kind"),
                        [top] => top == "metadata" && !OWNED.contains(&name.as_str()),
                        _ => false,
                    };
                    if !skip {
                        path.push(name.clone());
                        walk(value, path, fields);
                        path.pop();
                    }
                }
            }
            Value::Array(elements) if by_element(path).is_some() => {
                for element in elements {
                    path.push(element_name(element));
                    walk(element, path, fields);
                    path.pop();
                }
            }
            _ => drop(fields.insert(path.clone())),
        }
    }
    let mut fields = BTreeSet::new();
    walk(applied, &mut Vec::new(), &mut fields);
    fields.remove(&Vec::new());
    fields
}

/// Returns whether applying these fields changes the value that an owner has at `path`.
///
/// The cost does not depend on the number of fields: an object may have very many.
fn is_taken(current: &IndexedObject<'_>, applied: &IndexedObject<'_>, fields: &BTreeSet<Path>, path: &Path) -> bool {
    let mut around = (1..=path.len()).filter_map(|end| fields.get(&path[..end]));
    around.any(|field| differs(current.at(field), applied.at(field)))
        || (has_within(fields, Bound::Excluded(path)) && current.at(path).is_some_and(|is| !is.is_object()))
}

/// Returns whether one of these fields is within the value at a path. An included path is within itself.
fn has_within(fields: &BTreeSet<Path>, path: Bound<&[String]>) -> bool {
    let (Bound::Included(start) | Bound::Excluded(start)) = path else { return !fields.is_empty() };
    // The fields within a value follow its path.
    fields.range::<[String], _>((path, Bound::Unbounded)).next().is_some_and(|field| field.starts_with(start))
}

/// Returns the index in [`BY_ELEMENT`] of the array at this path.
fn by_element(path: &[String]) -> Option<usize> {
    match path {
        [top, field] if top == "metadata" => BY_ELEMENT.iter().position(|list| list == field),
        _ => None,
    }
}

/// Returns the name of an element in a path: `v:"example.com/a"` or `k:{"uid":"…"}`.
fn element_name(element: &Value) -> String {
    match element.get("uid") {
        Some(uid) => format!("k:{}", json!({"uid": uid})),
        None => format!("v:{element}"),
    }
}

fn positions(elements: &[Value]) -> Positions {
    let mut positions = Positions::with_capacity(elements.len());
    for (position, element) in elements.iter().enumerate() {
        positions.entry(element_name(element)).or_insert(position);
    }
    positions
}

/// Returns the position of an array's element, by the path of the array and the element's name.
fn position(positions: &[Positions; BY_ELEMENT.len()], path: &[String], name: &str) -> Option<usize> {
    positions[by_element(path)?].get(name).copied()
}

fn merge(into: &mut Value, from: &Value, path: &mut Path) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                path.push(name.clone());
                merge(into.entry(name).or_insert(Value::Null), value, path);
                path.pop();
            }
        }
        (Value::Array(into), Value::Array(from)) if by_element(path).is_some() => {
            let mut positions = positions(into);
            for element in from {
                let next = into.len();
                match *positions.entry(element_name(element)).or_insert(next) {
                    position if position < next => merge(&mut into[position], element, path),
                    _ => into.push(element.clone()),
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Removes the fields at these paths, unless they are kept. Then removes the objects and arrays around them that are
/// empty now.
fn remove_all<'a>(object: &mut Value, paths: impl Iterator<Item = &'a Path>, is_kept: &dyn Fn(&[String]) -> bool) {
    let positions = IndexedObject::new(object).positions;
    for path in paths {
        remove(object, path, 1, &positions, is_kept);
    }
    let meta = meta_mut(object);
    for list in BY_ELEMENT {
        let Some(Value::Array(elements)) = meta.get_mut(list) else { continue };
        elements.retain(|element| !element.is_null());
        if elements.is_empty() && !is_kept(&["metadata".to_owned(), list.to_owned()]) {
            meta.remove(list);
        }
    }
}

/// Removes one such field. Elements of arrays become `null`, so that the other elements keep their positions.
fn remove(
    object: &mut Value,
    path: &[String],
    depth: usize,
    positions: &[Positions; BY_ELEMENT.len()],
    is_kept: &dyn Fn(&[String]) -> bool,
) {
    let (way, name) = (&path[..depth], &path[depth - 1]);
    let is_left = |inner: &mut Value| {
        if depth < path.len() {
            remove(inner, path, depth + 1, positions, is_kept);
        }
        let is_empty = match inner {
            Value::Object(fields) => fields.is_empty(),
            _ => depth == path.len(),
        };
        !is_empty || is_kept(way)
    };
    match object {
        Value::Object(fields) => {
            let stays = fields.get_mut(name).is_none_or(is_left);
            if !stays {
                fields.remove(name);
            }
        }
        Value::Array(elements) => {
            if let Some(position) = position(positions, &path[..depth - 1], name)
                && !is_left(&mut elements[position])
            {
                elements[position] = Value::Null;
            }
        }
        _ => {}
    }
}

/// `{"f:spec": {"f:replicas": {}}}`
fn written(fields: &BTreeSet<Path>) -> Value {
    let mut json = json!({});
    for path in fields {
        let mut inner = &mut json;
        for name in path {
            let is_element = name.starts_with("v:") || name.starts_with("k:");
            inner = &mut inner[if is_element { name.clone() } else { format!("f:{name}") }];
            if inner.is_null() {
                *inner = json!({});
            }
        }
    }
    json
}

fn read(json: &Value, path: &mut Path, fields: &mut BTreeSet<Path>) {
    let inner = json.as_object();
    if inner.is_none_or(Map::is_empty) && !path.is_empty() {
        fields.insert(path.clone());
    }
    for (name, value) in inner.into_iter().flatten() {
        path.push(name.strip_prefix("f:").unwrap_or(name).to_owned());
        read(value, path, fields);
        path.pop();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns the state of an object after this owner has applied fields to it.
    fn applied(current: Option<&Value>, applied: &Value, owner: &FieldOwner) -> Result<Value, Vec<FieldConflict>> {
        let (mut next, managed) = apply(current, applied, owner, "v1", Timestamp::UNIX_EPOCH)?;
        meta_mut(&mut next).insert("managedFields".to_owned(), managed);
        Ok(next)
    }

    #[test]
    fn fields_above_and_below_an_owned_one_conflict() {
        let (alice, bob) = (FieldOwner::new("alice"), FieldOwner::new("bob"));
        let current = applied(None, &json!({"spec": {"a": {"b": 1}, "ab": 1, "c": 2}}), &alice).unwrap();
        for (spec, conflicts) in [
            (json!({"a": 1}), vec!["spec.a.b"]),
            (json!({"a": {"b": 1}}), vec![]),
            (json!({"a": {"b": {"c": 1}}, "c": 3}), vec!["spec.a.b", "spec.c"]),
            (json!({"a": {"c": 1}, "d": 1}), vec![]),
        ] {
            let found = applied(Some(&current), &json!({"spec": spec}), &bob).err().unwrap_or_default();
            assert_eq!(found.iter().map(|conflict| &*conflict.field).collect::<Vec<_>>(), conflicts, "{spec}");
        }
        // The owner omits a field, but the other field inside the same object stays.
        let shared = applied(Some(&current), &json!({"spec": {"a": {"c": 1}}}), &bob).unwrap();
        let left = applied(Some(&shared), &json!({"spec": {"ab": 1}}), &alice).unwrap();
        assert_eq!(left["spec"], json!({"a": {"c": 1}, "ab": 1}));
    }

    #[test]
    fn owners_of_the_status_and_of_the_object_with_one_name_are_two() {
        let alice = FieldOwner::new("alice");
        let object = applied(None, &json!({"spec": {"a": 1}}), &alice).unwrap();
        let both = applied(Some(&object), &json!({"status": {"x": 1, "y": 1}}), &alice.clone().status()).unwrap();
        assert_eq!((&both["spec"], &both["status"]), (&json!({"a": 1}), &json!({"x": 1, "y": 1})));
        let identities: Vec<_> = both["metadata"]["managedFields"].as_array().unwrap().iter().map(identity).collect();
        assert_eq!(identities, [("alice", ""), ("alice", "status")]);
        let less = applied(Some(&both), &json!({"spec": {"b": 1}}), &alice).unwrap();
        assert_eq!((&less["spec"], &less["status"]), (&json!({"b": 1}), &json!({"x": 1, "y": 1})));
        let less = applied(Some(&less), &json!({"status": {"x": 1}}), &alice.status()).unwrap();
        assert_eq!((&less["spec"], &less["status"]), (&json!({"b": 1}), &json!({"x": 1})));
    }

    /// The time is linear in the number of fields. If it were quadratic, this test would take many minutes.
    #[test]
    fn very_many_fields_are_applied() {
        let fields = |name: &str| -> Value {
            let fields: Map<_, _> = (0..100_000).map(|number| (format!("{name}{number}"), json!(number))).collect();
            json!({"spec": fields})
        };
        let (alice, bob) = (FieldOwner::new("alice"), FieldOwner::new("bob"));
        let current = applied(None, &fields("a"), &alice).unwrap();
        let both = applied(Some(&current), &fields("b"), &bob).unwrap();
        assert_eq!(both["spec"].as_object().map(Map::len), Some(200_000));
        let less = applied(Some(&both), &json!({"spec": {"a0": 0}}), &alice).unwrap();
        assert_eq!(less["spec"].as_object().map(Map::len), Some(100_001));
    }

    /// The same for the elements of long lists.
    #[test]
    fn very_many_elements_are_applied() {
        let object = |owner: &str, numbers: std::ops::Range<usize>| {
            let finalizers: Vec<_> = numbers.clone().map(|number| format!("example.com/{owner}{number}")).collect();
            let uid = |number| json!({"uid": format!("{owner}{number}"), "name": "a"});
            let owners: Vec<_> = numbers.map(uid).collect();
            json!({"metadata": {"name": "x", "finalizers": finalizers, "ownerReferences": owners}})
        };
        let count = |object: &Value| {
            ["finalizers", "ownerReferences"].map(|list| object["metadata"][list].as_array().map_or(0, Vec::len))
        };
        let (alice, bob) = (FieldOwner::new("alice"), FieldOwner::new("bob"));
        let current = applied(None, &object("a", 0..10_000), &alice).unwrap();
        let both = applied(Some(&current), &object("b", 0..10_000), &bob).unwrap();
        assert_eq!(count(&both), [20_000, 20_000]);
        let less = applied(Some(&both), &object("a", 10..11), &alice).unwrap();
        assert_eq!(count(&less), [10_001, 10_001]);
        assert_eq!(less["metadata"]["finalizers"][0], "example.com/a10");
        let none = applied(Some(&less), &object("b", 0..0), &bob).unwrap();
        assert_eq!(count(&none), [1, 1]);
        assert!(disown(&less, &none).is_some());
        let last = applied(Some(&none), &json!({"metadata": {"name": "x"}}), &alice).unwrap();
        assert_eq!(last["metadata"].as_object().map(Map::len), Some(2), "{last}");
    }
}
