//! An index of objects by the values of chosen labels. A plain value.

use std::ops::Bound;
use std::sync::Arc;

use crate::json::meta_field;
use crate::persistent::PersistentMap;
use crate::rules::change::Location;
use crate::{Kind, LabelOperator, LabelSelector, ObjectKey, SharedObject};

/// A label by its number, its value, and an object that has it.
type Entry = (usize, Arc<str>, Arc<Kind>, ObjectKey);

#[derive(Clone, Debug, Default)]
pub(super) struct LabelIndex {
    /// The indexed labels.
    labels: Arc<[String]>,
    entries: PersistentMap<Entry, ()>,
}

impl LabelIndex {
    pub(super) fn new(labels: &[String]) -> Self {
        Self { labels: labels.into(), entries: PersistentMap::default() }
    }

    /// Replaces an object at this location. `None` means that there is no object.
    pub(super) fn replace(&mut self, old: Option<&SharedObject>, new: Option<&SharedObject>, location: &Location) {
        for (number, label) in self.labels.iter().enumerate() {
            let [was, is] = [old, new].map(|object| object.and_then(|object| value_of(object, label)));
            if was == is {
                continue;
            }
            let entry = |value: &str| (number, value.into(), Arc::clone(&location.kind), location.key.clone());
            if let Some(was) = was {
                self.entries.remove(&entry(was));
            }
            if let Some(is) = is {
                self.entries.insert(entry(is), ());
            }
        }
    }

    /// Returns the keys of a kind from `first` up to but excluding `end`, in order, that have one of the values that a
    /// selector requires of an indexed label. Returns `None` if the selector requires no value of an indexed label.
    pub(super) fn find(
        &self,
        selector: &LabelSelector,
        kind: &Arc<Kind>,
        first: &ObjectKey,
        end: Option<&ObjectKey>,
    ) -> Option<Vec<&ObjectKey>> {
        let number_of = |label: &str| self.labels.iter().position(|indexed| indexed == label);
        let mut required = required_values(selector);
        let (number, values) = required.find_map(|(label, values)| Some((number_of(label)?, values)))?;
        let mut found = Vec::new();
        for value in &values {
            let from = (number, Arc::from(*value), Arc::clone(kind), first.clone());
            let entries = self.entries.range(Bound::Included(&from), None).map(|(entry, ())| entry);
            let entries =
                entries.take_while(|(number, value, kind, _)| (number, value, kind) == (&from.0, &from.1, &from.2));
            found.extend(entries.map(|(.., key)| key).take_while(|key| end.is_none_or(|end| *key < end)));
        }
        if values.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        Some(found)
    }
}

fn value_of<'a>(object: &'a SharedObject, label: &str) -> Option<&'a str> {
    meta_field(object, "labels")?.get(label)?.as_str()
}

/// Returns the labels that must have certain values, with these values.
fn required_values(selector: &LabelSelector) -> impl Iterator<Item = (&str, Vec<&str>)> {
    let exact = selector.match_labels.iter().map(|(key, value)| (key.as_str(), vec![value.as_str()]));
    let any = selector.match_expressions.iter().filter(|requirement| requirement.operator == LabelOperator::In);
    exact.chain(any.map(|any| (any.key.as_str(), any.values.iter().map(String::as_str).collect())))
}
