//! Runs transactions, and stores their changes by compare-and-swap.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::entry::{WriteKind, WriteNote, encode};
use super::key::{self, EntryKey, dependent};
use super::reserve::EntryWrite;
use super::store::{EntryState, FollowUp, ObjectStore, failure};
use super::view::BucketView;
use crate::base::backoff::Exponential;
use crate::nats::error::NatsError;
use crate::objects::json::{meta_mut, owners_of, string, uid_of};
use crate::objects::rules::cascade::{is_orphaning, is_waiting};
use crate::objects::rules::change::{Location, ObjectChange};
use crate::objects::rules::txn::{Txn, has_owners_of};
use crate::objects::{ClientError, SharedObject};

/// The delays before a write is tried again that another writer has prevented.
const FIRST_DELAY: Duration = Duration::from_millis(1);
const LAST_DELAY: Duration = Duration::from_millis(60);

/// The bytes that an object may grow without counting as larger: counters such as its generation get more digits.
const DIGITS: usize = 16;

/// The outcome of a transaction.
pub(super) struct Written {
    /// The object. If it was removed, its last state.
    pub(super) object: SharedObject,
    pub(super) removed: bool,
    pub(super) follow_ups: Vec<FollowUp>,
}

impl ObjectStore {
    /// Runs a transaction until no other writer disturbs it, for at most the request timeout.
    pub(super) fn run(
        &self,
        verb: &dyn Fn(&mut Txn<'_, BucketView<'_>>) -> Result<Location, ClientError>,
    ) -> Result<Written, ClientError> {
        let mut follow_ups = Vec::new();
        let written = self.run_with(verb, &mut follow_ups);
        match written {
            Ok((object, removed)) => Ok(Written { object, removed, follow_ups }),
            Err(error) => {
                // Some of the changes may be stored.
                self.postpone(follow_ups);
                Err(error)
            }
        }
    }

    /// Runs a transaction. Collects the work that follows it, also after an error. Returns the object, and whether it was removed.
    fn run_with(
        &self,
        verb: &dyn Fn(&mut Txn<'_, BucketView<'_>>) -> Result<Location, ClientError>,
        follow_ups: &mut Vec<FollowUp>,
    ) -> Result<(SharedObject, bool), ClientError> {
        let clock = self.connection().clock();
        let deadline = clock.nanos().after(self.connection().request_timeout());
        let backoff = Exponential::new(FIRST_DELAY, LAST_DELAY).jitter(0.9);
        let mut conflicts = 0;
        loop {
            let view = BucketView::new(self);
            let mut txn = Txn::new(&view, self.most_size(), self.now());
            let result = verb(&mut txn);
            // An answer that follows from a failed read is void.
            view.check()?;
            let location = result?;
            let outcome = txn.outcome(&location);
            let (changes, mut unsettled) = txn.into_parts();
            let mut stored = Vec::new();
            let is_complete = self.store(&view, &changes, &mut stored, follow_ups).inspect_err(|error| {
                let may_be_stored = !is_refusal(error);
                if may_be_stored {
                    // The server may have executed this write without an answer.
                    let removed = changes.iter().filter(|change| change.removed);
                    follow_ups.extend(removed.map(|change| FollowUp::SettleDependents {
                        uid: change.object.uid().to_owned(),
                        is_gone: false,
                    }));
                }
                if may_be_stored || !stored.is_empty() {
                    settle_first(follow_ups, unsettled.take_all());
                }
            })?;
            if !is_complete {
                if !stored.is_empty() {
                    // The next attempt does not see the changes that are stored, nor what follows from them.
                    settle_first(follow_ups, unsettled.take_all());
                }
                conflicts += 1;
                if clock.reached(deadline) {
                    let reason =
                        format!("other writers have changed it {conflicts} times during this call: retry later");
                    return Err(ClientError::conflict(location.object_ref(), reason));
                }
                let draw = self.draws.lock().next();
                let until = clock.nanos().after(backoff.jittered(conflicts, draw)).min(deadline);
                self.connection().pause(until).map_err(|error| failure(location.object_ref(), error))?;
                continue;
            }
            let quiet =
                |location: &Location| changes.iter().any(|change| change.location == *location && is_quiet(change));
            settle_first(follow_ups, unsettled.take_all().filter(|location| !quiet(location)));
            let removed =
                changes.iter().rfind(|change| change.location == location).is_some_and(|change| change.removed);
            let object = match stored.into_iter().rfind(|(at, _)| *at == location) {
                Some((_, object)) => object,
                None => outcome?,
            };
            return Ok((object, removed));
        }
    }

    /// Stores changes one after the other, and adds the objects with their versions to `stored`. Returns false if another writer was
    /// faster.
    fn store(
        &self,
        view: &BucketView<'_>,
        changes: &[Arc<ObjectChange>],
        stored: &mut Vec<(Location, SharedObject)>,
        follow_ups: &mut Vec<FollowUp>,
    ) -> Result<bool, ClientError> {
        for change in changes {
            let ObjectChange { location, old, object, removed, .. } = &**change;
            let key = EntryKey::new(&location.kind, &location.key);
            let expected = view.entry(&key).revision;
            let fail = |error| failure(location.object_ref(), error);
            let uids =
                |object: &SharedObject| owners_of(object).map(|owner| uid_of(owner).to_owned()).collect::<HashSet<_>>();
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
                // A marker must always be possible. Watches then do not show the last state.
                value.clear();
            }
            let write = EntryWrite {
                key: &key.text(),
                value: &value,
                expected,
                note: &note.text(),
                removes: *removed,
                // The removal of a finalizer, and of a reference to an owner that is deleted.
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
            // Dependents may have come after the transaction looked for them.
            let begins_to_wait = is_waiting(&shown) && !old.as_ref().is_some_and(is_waiting);
            if *removed || begins_to_wait {
                follow_ups.push(FollowUp::SettleDependents { uid: shown.uid().to_owned(), is_gone: *removed });
            }
            let left = before.difference(&after);
            follow_ups.extend(left.map(|uid| FollowUp::Forget { key: dependent(uid, &key), before: revision }));
            view.written(key, EntryState { revision, object: (!removed).then(|| shown.clone()) });
            stored.push((location.clone(), shown));
        }
        Ok(true)
    }

    /// Writes the keys that name an object as the dependent of its owners, except for the owners that it had before.
    fn name_dependent(&self, object: &SharedObject, key: &EntryKey, before: &HashSet<String>) -> Result<(), NatsError> {
        for owner in owners_of(object).filter(|owner| !before.contains(uid_of(*owner))) {
            let field = |name| string(owner, name);
            let reference =
                json!({"apiVersion": field("apiVersion"), "kind": field("kind"), "name": field("name")}).to_string();
            let uid = uid_of(owner);
            if self.owner_entry(uid)?.is_none() {
                self.bucket.put(&key::owner(uid), reference.as_bytes())?;
            }
            self.bucket.put(&dependent(uid, key), reference.as_bytes())?;
        }
        Ok(())
    }
}

/// Puts the settling of these objects before the other steps.
///
/// The removal of a key that names a dependent comes after it: a client that begins finds unfinished deletions by these keys.
fn settle_first(steps: &mut Vec<FollowUp>, locations: impl Iterator<Item = Location>) {
    let first = locations.map(FollowUp::Settle).collect::<Vec<_>>();
    steps.splice(0..0, first);
}

/// Returns whether a write that has failed with this error is certainly not stored.
fn is_refusal(error: &ClientError) -> bool {
    match error {
        ClientError::Transport { source, .. } => source.downcast_ref().is_some_and(NatsError::is_refusal),
        ClientError::Forbidden { .. } => false,
        _ => true,
    }
}

/// Returns whether a change needs no look at the owners or dependents of its object.
fn is_quiet(change: &ObjectChange) -> bool {
    let ObjectChange { old, object, removed, .. } = change;
    let has_old_owners = match old {
        Some(old) => has_owners_of(old, object),
        None => owners_of(object).next().is_none(),
    };
    !removed && has_old_owners && !is_waiting(object) && !is_orphaning(object)
}
