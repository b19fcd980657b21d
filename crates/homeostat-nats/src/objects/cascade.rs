//! The work that a write causes: one transaction for each owner and dependent.

use std::collections::BTreeMap;

use serde_json::Value;

use super::key::{EntryKey, OWNERS, parse_dependent, parse_owner};
use super::store::{CascadeStep, ObjectStore, failure, kind_of, nats_error};
use super::view::BucketView;
use crate::error::NatsErrorKind;
use crate::kv::KvEntry;
use homeostat::rt::Chain;
use homeostat_objects::store::{DistinctQueue, Location, StoredObjects};
use homeostat_objects::{ClientError, ClientErrorKind, Kind, ObjectKey, ObjectRef, ValueRef};

/// The largest number of steps that wait for the next write.
const MOST_UNFINISHED: usize = 1_000;
/// After this many failures in a row, a write leaves its remaining steps to the next write. After this many failures
/// in total, it leaves the steps of earlier writes.
const MOST_FAILURES: usize = 10;

impl ObjectStore {
    /// Does all work that a write causes, then the work that failed earlier. Keeps failed work for the next write.
    pub(super) fn run_cascade(&self, steps: impl IntoIterator<Item = CascadeStep>) {
        let mut earlier = std::mem::take(&mut *self.unfinished.lock());
        let (mut queue, mut left) = (DistinctQueue::default(), Vec::new());
        queue.extend(steps);
        // A step that fails again and again must not delay this write's own work.
        if self.run_steps(&mut queue, usize::MAX, &mut left) {
            self.run_steps(&mut earlier, MOST_FAILURES, &mut left);
        }
        left.extend(earlier.take_all());
        self.postpone(left);
    }

    /// Runs steps, and adds those that remain to `left`. A failed step does not stop the others. Stops after `most`
    /// failures, or after [`MOST_FAILURES`] in a row. Returns false if it has stopped.
    fn run_steps(&self, queue: &mut DistinctQueue<CascadeStep>, most: usize, left: &mut Vec<CascadeStep>) -> bool {
        let (mut failed, mut in_a_row, mut can_go_on) = (Vec::new(), 0, true);
        while let Some(step) = queue.take() {
            match self.run_step(&step) {
                Ok(more) => {
                    in_a_row = 0;
                    queue.extend(more);
                }
                Err(error) => {
                    let (bucket, shown) = (self.bucket.name(), Chain(&error));
                    log::warn!(
                        bucket, error:% = shown;
                        "bucket {bucket}: cannot update or delete dependents: {shown}"
                    );
                    if error.is_transport() || error.is_conflict() || *error.kind() == ClientErrorKind::Forbidden {
                        *self.last_failure.lock() = shown.to_string();
                        failed.push(step);
                        in_a_row += 1;
                        can_go_on = !is_unreachable(&error) && in_a_row < MOST_FAILURES && failed.len() < most;
                        if !can_go_on {
                            break;
                        }
                    }
                }
            }
        }
        left.extend(queue.take_all());
        // Next time, start with the steps that were not tried.
        left.extend(failed);
        can_go_on
    }

    /// Keeps steps for the next write. Steps beyond the limit are left to the next client.
    pub(super) fn postpone(&self, steps: impl IntoIterator<Item = CascadeStep>) {
        let mut unfinished = self.unfinished.lock();
        for step in steps {
            if unfinished.len() < MOST_UNFINISHED {
                unfinished.push(step);
            }
        }
    }

    /// Runs one step. Returns the steps that it causes.
    fn run_step(&self, step: &CascadeStep) -> Result<Vec<CascadeStep>, ClientError> {
        match step {
            CascadeStep::Settle(location) => {
                let settled = self.run(&|txn| {
                    txn.settle_one(location);
                    Ok(location.clone())
                });
                match settled {
                    Ok(written) => Ok(written.cascade),
                    // The object no longer exists.
                    Err(error) if error.is_not_found() => Ok(Vec::new()),
                    Err(error) => Err(error),
                }
            }
            CascadeStep::SettleDependents { uid, is_gone } => {
                let named = || ObjectRef::new(&Kind::UNKNOWN, &ObjectKey::cluster(uid));
                let entry = self.owner_entry(uid).map_err(|error| failure(named(), error))?;
                let Some(entry) = entry else { return Ok(Vec::new()) };
                let mut view = BucketView::new(self);
                let keys = view.dependent_keys(uid);
                view.check()?;
                let (mut steps, mut are_readable) = (Vec::new(), true);
                for key in keys {
                    match self.readable(&mut view, |view| view.dependent(key, uid))? {
                        Some(dependent) => steps.extend(dependent.map(|(location, _)| CascadeStep::Settle(location))),
                        None => are_readable = false,
                    }
                }
                if *is_gone && are_readable {
                    // No writer needs the key of a deleted owner.
                    steps.push(CascadeStep::Forget { key: entry.key, before: entry.revision + 1 });
                }
                Ok(steps)
            }
            CascadeStep::Forget { key, before } => {
                let owners = ObjectRef::new(&Kind::UNKNOWN, &ObjectKey::cluster(key));
                // Watches of objects select no such key, so servers of all versions may remove it.
                self.bucket.forget_before(key, *before).map_err(|error| failure(owners, error))?;
                Ok(Vec::new())
            }
        }
    }

    /// Does the work that killed clients have left. Logs and skips entries that it cannot read.
    pub(super) fn repair(&self) -> Result<(), ClientError> {
        let bucket = ObjectRef::new(&Kind::UNKNOWN, &ObjectKey::cluster(self.bucket.name()));
        let named = self.bucket.list(&format!("{OWNERS}.>")).map_err(|error| failure(bucket, error))?.entries;
        self.repair_named(&named)
    }

    /// Does the work that killed clients have left, for the owners and dependents that these entries name.
    pub(super) fn repair_named(&self, named: &[KvEntry]) -> Result<(), ClientError> {
        let mut owners: BTreeMap<String, (Value, Vec<EntryKey>)> = BTreeMap::new();
        for entry in named {
            let (uid, dependent) = match (parse_dependent(&entry.key), parse_owner(&entry.key)) {
                (Some((uid, dependent)), _) => (uid, Some(dependent)),
                (None, Some(uid)) => (uid, None),
                (None, None) => continue,
            };
            match serde_json::from_slice::<Value>(&entry.value) {
                Ok(reference) if reference.is_object() => {
                    owners.entry(uid).or_insert_with(|| (reference, Vec::new())).1.extend(dependent);
                }
                _ => self.skip(&entry.key, "it is not a reference to an owner"),
            }
        }
        for (uid, (mut reference, dependents)) in owners {
            reference["uid"] = uid.into();
            let (mut view, mut steps) = (BucketView::new(self), Vec::new());
            // The last dependent may have been removed just before the owner began to wait for it.
            if let Some(namespace) = reference["namespace"].as_str() {
                let near = Location { kind: Kind::UNKNOWN.into(), key: ObjectKey::new(namespace, "") };
                let found = self.readable(&mut view, |view| waiting_owner(view, &near, &reference))?;
                steps.extend(found.flatten().map(CascadeStep::Settle));
            }
            for dependent in dependents {
                let found = self.readable(&mut view, |view| unfinished(view, &dependent, &reference))?;
                steps.extend(found.into_iter().flatten());
            }
            self.run_cascade(steps);
        }
        Ok(())
    }

    /// Returns the result of `read`. If an entry cannot be read, logs it, starts with a new view, and returns `None`.
    fn readable<'a, R>(
        &'a self,
        view: &mut BucketView<'a>,
        read: impl FnOnce(&BucketView<'a>) -> R,
    ) -> Result<Option<R>, ClientError> {
        let found = read(view);
        match view.check() {
            Ok(()) => Ok(Some(found)),
            Err(error) if error.is_invalid() => {
                *view = BucketView::new(self);
                self.skip(&error.object().to_string(), &Chain(&error).to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Logs an entry that cannot be read.
    fn skip(&self, key: &str, error: &str) {
        let bucket = self.bucket.name();
        log::warn!(bucket, key, error; "bucket {bucket}: cannot read {key}, so a deletion may stay unfinished: {error}");
    }
}

/// Returns whether the next request would fail too.
fn is_unreachable(error: &ClientError) -> bool {
    nats_error(error).is_some_and(|cause| {
        // Without a responder or JetStream, the stream has no leader, or its leader is unreachable.
        matches!(
            cause.kind(),
            NatsErrorKind::Disconnected
                | NatsErrorKind::Timeout
                | NatsErrorKind::Closed
                | NatsErrorKind::NoResponders
                | NatsErrorKind::NoJetStream
        )
    })
}

/// Returns the location of an owner near this place, if it is being deleted.
fn waiting_owner(view: &BucketView<'_>, near: &Location, reference: &Value) -> Option<Location> {
    let owner = view.owner(near, ValueRef::from(reference))?;
    view.object(&owner).is_some_and(|object| object.is_deleting()).then_some(owner)
}

/// Returns the steps that finish an owner's deletion, if it has begun.
fn unfinished(view: &BucketView<'_>, dependent: &EntryKey, reference: &Value) -> Vec<CascadeStep> {
    let near = Location { kind: kind_of(dependent).into(), key: dependent.key.clone() };
    let owner = view.owner(&near, ValueRef::from(reference));
    if owner.as_ref().and_then(|owner| view.object(owner)).is_some_and(|owner| !owner.is_deleting()) {
        return Vec::new();
    }
    let object = view.entry(dependent).object;
    let dependent = object.map(|object| Location { kind: object.kind().into(), key: dependent.key.clone() });
    dependent.into_iter().chain(owner).map(CascadeStep::Settle).collect()
}
