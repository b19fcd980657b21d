//! Lists of objects, whole or in pages. All pages show the objects as they were at the version of the first page.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::state::ServerState;
use crate::rules::stored::StoredObjects;
use crate::{ClientError, Kind, ObjectKey, ObjectList, ObjectRef, Query, SharedObject};

/// The position at which a list continues. Users must not parse it.
struct ContinueToken {
    version: u64,
    /// The last object of the previous page.
    after: ObjectKey,
}

impl ContinueToken {
    fn parse(text: &str) -> Option<Self> {
        let (version, after) = text.split_once('/')?;
        Some(Self { version: version.parse().ok()?, after: after.parse().ok()? })
    }
}

/// The keys in the namespace of a query, as a range. Without a namespace, the range has all keys.
struct NamespaceKeys {
    first: ObjectKey,
    end: Option<ObjectKey>,
}

impl NamespaceKeys {
    fn of(query: &Query) -> Self {
        let namespace = query.namespace.as_deref().unwrap_or_default();
        // All keys of a namespace begin with its name and a slash. The digit zero is the character after the slash.
        let end = (!namespace.is_empty()).then(|| ObjectKey::cluster(&format!("{namespace}0")));
        Self { first: ObjectKey::new(namespace, ""), end }
    }
}

/// Returns whether a query selects an entry in the range of its namespace. Reads the key only if the query has no
/// namespace, and so no range.
fn selects(query: &Query, key: &ObjectKey, object: &SharedObject) -> bool {
    let is_inside = query.namespace.as_deref() != Some("") || key.namespace().is_empty();
    is_inside && query.selects_content(object)
}

impl ServerState {
    /// Returns the objects that a query selects, in the order of their keys.
    pub(super) fn select(&self, kind: &Kind, query: &Query) -> Vec<SharedObject> {
        let keys = NamespaceKeys::of(query);
        let Some(table) = self.table(kind) else { return Vec::new() };
        let mut selected = Vec::with_capacity(if query.selects_all() { table.len() } else { 0 });
        let offer = |(key, object): (&ObjectKey, &SharedObject)| {
            if selects(query, key, object) {
                selected.push(object.clone());
            }
        };
        match self.labels.find(&query.labels, &self.kind(kind), &keys.first, keys.end.as_ref()) {
            Some(found) => found.into_iter().filter_map(|key| Some((key, table.get(key)?))).for_each(offer),
            None => table.range(Bound::Included(&keys.first), keys.end.as_ref()).for_each(offer),
        }
        selected
    }

    /// Lists the objects that a query selects, in the order of their keys.
    pub(super) fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<SharedObject>, ClientError> {
        let listed = || ObjectRef::new(kind, &ObjectKey::new(query.namespace.as_deref().unwrap_or_default(), ""));
        let token = match query.continue_token.as_deref() {
            None | Some("") => None,
            Some(text) => Some(ContinueToken::parse(text).ok_or_else(|| {
                ClientError::invalid(listed(), "continue", text, "must be the continue token of a list")
            })?),
        };
        let limit = query.limit.filter(|limit| *limit > 0);
        if token.is_none() && limit.is_none() {
            return Ok(ObjectList::new(self.head.to_string(), self.select(kind, query)));
        }
        let version = token.as_ref().map_or(self.head, |token| token.version);
        let then = self.changed_since(kind, version).ok_or_else(|| ClientError::gone(listed(), version.to_string()))?;

        let keys = NamespaceKeys::of(query);
        let start = match &token {
            Some(ContinueToken { after, .. }) if *after >= keys.first => Bound::Excluded(after),
            _ => Bound::Included(&keys.first),
        };
        let now = self.table(kind).into_iter().flat_map(|table| table.range(start, keys.end.as_ref()));
        let mut now = now.filter(|(key, _)| !then.contains_key(key)).peekable();
        let older = then.range::<ObjectKey, _>((start, Bound::Unbounded));
        let older = older.take_while(|(key, _)| keys.end.as_ref().is_none_or(|end| **key < end));
        let mut older = older.filter_map(|(key, object)| Some((*key, (*object)?))).peekable();
        let both = std::iter::from_fn(|| match (now.peek(), older.peek()) {
            (Some(newer), Some(older)) if newer.0 < older.0 => now.next(),
            (Some(_), None) => now.next(),
            _ => older.next(),
        });
        let mut selected = both.filter(|(key, object)| selects(query, key, object)).peekable();

        let (mut items, mut last) = (Vec::new(), None);
        for (key, object) in selected.by_ref().take(limit.unwrap_or(usize::MAX)) {
            items.push(object.clone());
            last = Some(key);
        }
        let more = selected.peek().is_some();
        let continue_token = last.filter(|_| more).map(|last| format!("{version}/{last}"));
        Ok(ObjectList::new(version.to_string(), items).continue_token(continue_token))
    }

    /// Returns the objects of a kind that have changed after this version, each as it was at that version. Returns
    /// `None` if the history begins later.
    fn changed_since(&self, kind: &Kind, version: u64) -> Option<BTreeMap<&ObjectKey, Option<&SharedObject>>> {
        let mut then = BTreeMap::new();
        for change in self.since(version)?.filter(|change| *change.location.kind == *kind) {
            then.entry(&change.location.key).or_insert(change.old.as_ref());
        }
        Some(then)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Client, MemoryClient};

    #[test]
    fn a_list_has_the_objects_of_its_namespace_in_pages_of_any_size() {
        const THING: Kind = Kind::namespaced("example.com", "v1", "Thing");
        // Namespaces with a common beginning, with characters before and after the slash.
        let namespaces = ["a", "a-b", "a0", "a00", "b"];
        let client = MemoryClient::new();
        for namespace in namespaces {
            for name in ["a", "b-c", "z0"] {
                let meta = json!({"namespace": namespace, "name": name});
                let object = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": meta});
                client.create(&THING, object).unwrap();
            }
        }
        for namespace in namespaces.iter().map(|name| Some(*name)).chain([None, Some(""), Some("c")]) {
            let mut query = Query::all();
            query.namespace = namespace.map(str::to_owned);
            let whole = client.list(&THING, &query).unwrap().items;
            let expected = match namespace {
                None => 15,
                Some("" | "c") => 0,
                Some(_) => 3,
            };
            assert_eq!(whole.len(), expected, "{namespace:?}");
            assert!(whole.iter().all(|object| query.selects(object)), "{namespace:?}");
            for limit in 1..=16 {
                let (mut items, mut token) = (Vec::new(), None);
                loop {
                    let page = Query { limit: Some(limit), continue_token: token.take(), ..query.clone() };
                    let page = client.list(&THING, &page).unwrap();
                    assert!(page.items.len() <= limit);
                    items.extend(page.items);
                    token = page.continue_token;
                    if token.is_none() {
                        break;
                    }
                }
                assert_eq!(items, whole, "{namespace:?} by {limit}");
            }
        }
    }

    /// Two clients get the same random writes. One of them indexes two labels.
    #[test]
    fn lists_by_an_index_equal_lists_without_it() {
        const THING: Kind = Kind::namespaced("example.com", "v1", "Thing");
        const OTHER: Kind = Kind::namespaced("example.com", "v1", "Other");
        let indexed = MemoryClient::builder().seed(1).index_label("app").index_label("tier").build();
        let plain = MemoryClient::builder().seed(1).build();
        let selectors = [
            "app=a",
            "app=b,tier=x",
            "tier in (x,y)",
            "app in (a,a)",
            "app=none",
            "app!=a",
            "app",
            "!app",
            "zone=a",
            "zone=a,app=b",
            "",
        ];
        let mut number = 7_usize;
        let mut draw = |bound: usize| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (number >> 33) % bound
        };
        for round in 0..600 {
            let kind = [THING, OTHER][draw(2)].clone();
            let key = ObjectKey::new(["one", "one-b", "two"][draw(3)], &format!("n-{}", draw(12)));
            let mut labels = serde_json::Map::new();
            for (label, values) in [("app", ["a", "b", "c"]), ("tier", ["x", "y", ""]), ("zone", ["a", "b", "c"])] {
                if draw(4) > 0 {
                    labels.insert(label.to_owned(), values[draw(3)].into());
                }
            }
            let removes = draw(4) == 0;
            for client in [&indexed, &plain] {
                let _ = client.delete(&kind, &key, &crate::DeleteOptions::default());
                if !removes {
                    let meta = json!({"namespace": key.namespace(), "name": key.name(), "labels": labels});
                    let object = json!({"apiVersion": kind.api_version(), "kind": kind.name(), "metadata": meta});
                    client.create(&kind, object).unwrap();
                }
            }
            if round % 20 > 0 {
                continue;
            }
            for selector in selectors {
                for namespace in [None, Some("one"), Some("two"), Some("three"), Some("")] {
                    let mut query = Query::all().labels(selector.parse().unwrap());
                    query.namespace = namespace.map(str::to_owned);
                    let names = |client: &MemoryClient| {
                        let list = client.list(&THING, &query).unwrap().items;
                        list.iter()
                            .map(|object| (object.key(), object.resource_version().to_owned()))
                            .collect::<Vec<_>>()
                    };
                    assert_eq!(names(&indexed), names(&plain), "{selector} in {namespace:?}");
                }
            }
        }
    }
}
