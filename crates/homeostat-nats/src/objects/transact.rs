//! Runs transactions, and stores their changes by compare-and-swap.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::entry::{WriteKind, WriteNote, encode};
use super::key::{self, EntryKey, dependent};
use super::reserve::EntryWrite;
use super::store::{CascadeStep, EntryState, ObjectStore, failure, nats_error};
use super::view::BucketView;
use crate::error::NatsError;
use homeostat::base::Exponential;
use homeostat_objects::json::{meta_mut, owners_of, string};
use homeostat_objects::store::{Location, ObjectChange, Transaction, is_waiting};
use homeostat_objects::{ClientError, ClientErrorKind, SharedObject};

/// The shortest and longest delay before a write that met another writer is tried again.
const FIRST_DELAY: Duration = Duration::from_millis(1);
const LAST_DELAY: Duration = Duration::from_millis(60);

/// How many bytes an object may grow without counting as larger. Counters such as its generation get more digits.
const DIGITS: usize = 16;

/// The result of a transaction.
pub(super) struct Written {
    /// The object, or its last state if it was removed.
    pub(super) object: SharedObject,
    pub(super) removed: bool,
    pub(super) cascade: Vec<CascadeStep>,
}

impl ObjectStore {
    /// Runs a transaction until no other writer interferes, for at most the request timeout.
    pub(super) fn run(
        &self,
        verb: &dyn Fn(&mut Transaction<'_, BucketView<'_>>) -> Result<Location, ClientError>,
    ) -> Result<Written, ClientError> {
        let mut cascade = Vec::new();
        let written = self.run_with(verb, &mut cascade);
        match written {
            Ok((object, removed)) => Ok(Written { object, removed, cascade }),
            Err(error) => {
                // Some of the changes may already be stored.
                self.postpone(cascade);
                Err(error)
            }
        }
    }

    /// Runs a transaction. Collects the work that it causes, even after an error. Returns the object, and whether it
    /// was removed.
    fn run_with(
        &self,
        verb: &dyn Fn(&mut Transaction<'_, BucketView<'_>>) -> Result<Location, ClientError>,
        cascade: &mut Vec<CascadeStep>,
    ) -> Result<(SharedObject, bool), ClientError> {
        let clock = self.connection().clock();
        let deadline = clock.nanos().after(self.connection().request_timeout());
        let backoff = Exponential::new(FIRST_DELAY, LAST_DELAY).jitter(0.9);
        let mut conflicts = 0;
        loop {
            let view = BucketView::new(self);
            let mut txn = Transaction::new(&view, self.most_size(), self.now());
            let result = verb(&mut txn);
            // Discard results computed from a failed read.
            view.check()?;
            let location = result?;
            let outcome = txn.outcome(&location);
            let (changes, unsettled) = txn.into_parts();
            let mut stored = Vec::new();
            let is_complete = self.store(&view, &changes, &mut stored, cascade).inspect_err(|error| {
                if !is_refusal(error) {
                    // The server may have executed this write without answering.
                    let removed = changes.iter().filter(|change| change.removed);
                    cascade.extend(removed.map(|change| CascadeStep::SettleDependents {
                        uid: change.object.uid().to_owned(),
                        is_gone: false,
                    }));
                    cascade.extend(unsettled.iter().cloned().map(CascadeStep::Settle));
                }
            })?;
            if !is_complete {
                conflicts += 1;
                if clock.reached(deadline) {
                    let reason =
                        format!("other writers have changed it {conflicts} times during this call: retry later");
                    return Err(ClientError::conflict(location.object_ref(), reason));
                }
                let draw = self.draws.lock().draw();
                let until = clock.nanos().after(backoff.jittered(conflicts, draw)).min(deadline);
                self.connection().pause(until).map_err(|error| failure(location.object_ref(), error))?;
                continue;
            }
            let is_settled =
                |location: &Location| changes.iter().any(|change| change.location == *location && change.is_settled());
            cascade.extend(unsettled.into_iter().filter(|location| !is_settled(location)).map(CascadeStep::Settle));
            let removed =
                changes.iter().rfind(|change| change.location == location).is_some_and(|change| change.removed);
            let object = match stored.into_iter().rfind(|(at, _)| *at == location) {
                Some((_, object)) => object,
                None => outcome?,
            };
            return Ok((object, removed));
        }
    }

    /// Stores changes one after the other, and adds the objects with their versions to `stored`. Returns false if
    /// another writer was faster.
    fn store(
        &self,
        view: &BucketView<'_>,
        changes: &[Arc<ObjectChange>],
        stored: &mut Vec<(Location, SharedObject)>,
        cascade: &mut Vec<CascadeStep>,
    ) -> Result<bool, ClientError> {
        for change in changes {
            let ObjectChange { location, old, object, removed, .. } = &**change;
            let key = EntryKey::new(&location.kind, &location.key);
            let expected = view.entry(&key).revision;
            let fail = |error| failure(location.object_ref(), error);
            let uids = |object: &SharedObject| {
                owners_of(object).map(|owner| string(owner, "uid").to_owned()).collect::<HashSet<_>>()
            };
            let before = old.as_ref().map(uids).unwrap_or_default();
            let after = if *removed { HashSet::new() } else { uids(object) };
            if !removed {
                self.name_dependent(object, &key, &before).map_err(fail)?;
            }
            let kind = match (old, removed) {
                (_, true) => WriteKind::Deleted,
                (None, false) => WriteKind::Created,
                (Some(_), false) => WriteKind::Changed,
            };
            let note = WriteNote { kind, previous: expected };
            let mut shown = object.to_value();
            let mut value = encode(&mut shown);
            if *removed && value.len() > self.most_size() {
                // A marker must always fit. Watches then do not get the last state.
                value.clear();
            }
            let write = EntryWrite {
                key: &key.text(),
                value: &value,
                expected,
                note: &note.text(),
                removes: *removed,
                // Removals of a finalizer, and of a reference to an owner that is being deleted.
                frees: *removed || object.is_deleting() || before.difference(&after).next().is_some(),
                replaces: &|| old.as_ref().is_some_and(|old| value.len() <= encode(&mut old.to_value()).len() + DIGITS),
            };
            let revision = match self.write_entry(&write) {
                Ok(revision) => revision,
                Err(error) if error.is_conflict() => return Ok(false),
                Err(error) => return Err(fail(error)),
            };
            meta_mut(&mut shown).insert("resourceVersion".to_owned(), self.version(revision).to_string().into());
            let shown = SharedObject::from(shown);
            // New dependents may have appeared since the transaction looked for them.
            let begins_to_wait = is_waiting(&shown) && !old.as_ref().is_some_and(is_waiting);
            if *removed || begins_to_wait {
                cascade.push(CascadeStep::SettleDependents { uid: shown.uid().to_owned(), is_gone: *removed });
            }
            let left = before.difference(&after);
            cascade.extend(left.map(|uid| CascadeStep::Forget { key: dependent(uid, &key), before: revision }));
            view.written(key, EntryState { revision, object: (!removed).then(|| shown.clone()) });
            stored.push((location.clone(), shown));
        }
        Ok(true)
    }

    /// Writes the keys that name an object as a dependent of its new owners. Skips the owners in `before`.
    fn name_dependent(&self, object: &SharedObject, key: &EntryKey, before: &HashSet<String>) -> Result<(), NatsError> {
        for owner in owners_of(object).filter(|owner| !before.contains(string(*owner, "uid"))) {
            let field = |name| string(owner, name);
            let reference = json!({
                "apiVersion": field("apiVersion"), "kind": field("kind"), "name": field("name"),
                // The owner is in this namespace or in none.
                "namespace": key.key.namespace(),
            })
            .to_string();
            let uid = string(owner, "uid");
            if self.owner_entry(uid)?.is_none() {
                self.bucket.put(&key::owner(uid), reference.as_bytes())?;
            }
            self.bucket.put(&dependent(uid, key), reference.as_bytes())?;
        }
        Ok(())
    }
}

/// Returns whether a write that failed with this error was certainly not stored.
fn is_refusal(error: &ClientError) -> bool {
    match error.kind() {
        ClientErrorKind::Transport => nats_error(error).is_some_and(NatsError::is_refusal),
        ClientErrorKind::Forbidden => false,
        _ => true,
    }
}
