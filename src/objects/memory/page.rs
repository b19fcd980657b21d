//! Lists in pages. All pages show the objects as they were at the version of the first page.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use serde_json::Value;

use super::state::ServerState;
use crate::objects::{ClientError, Kind, ObjectKey, ObjectList, ObjectRef, Query};

/// The position at which a list continues. Its text is opaque to users.
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

impl ServerState {
    /// Lists the objects that a query selects, in the order of their keys.
    pub(super) fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<Arc<Value>>, ClientError> {
        let listed = || ObjectRef::new(kind, &ObjectKey::new(query.namespace.as_deref().unwrap_or_default(), ""));
        let token = match query.continue_token.as_deref() {
            None | Some("") => None,
            Some(text) => Some(ContinueToken::parse(text).ok_or_else(|| {
                ClientError::invalid(listed(), "continue", text, "must be the continue token of a list")
            })?),
        };
        let version = token.as_ref().map_or(self.head, |token| token.version);
        let then = self.changed_since(kind, version).ok_or_else(|| ClientError::gone(listed(), version.to_string()))?;

        let namespace = query.namespace.as_deref().unwrap_or_default();
        let first = ObjectKey::new(namespace, "");
        let start = match &token {
            Some(ContinueToken { after, .. }) if *after >= first => Bound::Excluded(after),
            _ => Bound::Included(&first),
        };
        let range = (start, Bound::Unbounded);
        let now = self.table(kind).into_iter().flat_map(|table| table.range(range));
        let mut now = now.filter(|(key, _)| !then.contains_key(key)).peekable();
        let mut then =
            then.range::<ObjectKey, _>(range).filter_map(|(key, object)| Some((*key, (*object)?))).peekable();
        let both = std::iter::from_fn(|| match (now.peek(), then.peek()) {
            (Some(newer), Some(older)) if newer.0 < older.0 => now.next(),
            (Some(_), None) => now.next(),
            _ => then.next(),
        });
        let inside = both.take_while(|(key, _)| namespace.is_empty() || key.namespace() == namespace);
        let mut selected = inside.filter(|(_, object)| query.selects(object)).peekable();

        let limit = query.limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let (mut items, mut last) = (Vec::new(), None);
        for (key, object) in selected.by_ref().take(limit) {
            items.push(Arc::clone(object));
            last = Some(key);
        }
        let more = selected.peek().is_some();
        let continue_token = last.filter(|_| more).map(|last| format!("{version}/{last}"));
        Ok(ObjectList::new(version.to_string(), items).continue_token(continue_token))
    }

    /// Returns the objects of a kind that have changed after this version, each as it was at that version. Returns `None` if the
    /// history does not go back that far.
    fn changed_since(&self, kind: &Kind, version: u64) -> Option<BTreeMap<&ObjectKey, Option<&Arc<Value>>>> {
        let mut then = BTreeMap::new();
        for change in self.since(version)?.filter(|change| *change.location.kind == *kind) {
            then.entry(&change.location.key).or_insert(change.old.as_ref());
        }
        Some(then)
    }
}
