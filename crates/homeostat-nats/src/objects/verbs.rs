//! The methods of the [`Client`] trait.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::client::NatsClient;
use super::store::ObjectStore;
use super::transact::Written;
use super::view::BucketView;
use super::watch::ObjectEvents;
use homeostat::base::CancellationToken;
use homeostat::rt::Chain;
use homeostat_objects::store::{
    Location, Names, ReadableList, StoredObjects, Transaction, admit, check_selector, delete_each,
};
use homeostat_objects::{
    Capabilities, Client, ClientError, DeleteOptions, Deletion, FieldOwner, Ignore, Kind, ObjectKey, ObjectList,
    ObjectRef, ObjectStream, Patch, PatchTarget, Propagation, Query, SharedObject,
};

/// The longest call without owners takes this many request timeouts: one for conflicts, then a read and a write.
const REQUESTS: u32 = 4;

/// New uids are random.
const NAMES: Names = Names::random();

impl ObjectStore {
    /// Runs a transaction, and the work that it causes.
    pub(super) fn write(
        &self,
        verb: &dyn Fn(&mut Transaction<'_, BucketView<'_>>) -> Result<Location, ClientError>,
    ) -> Result<Written, ClientError> {
        let mut written = self.run(verb)?;
        self.run_cascade(std::mem::take(&mut written.cascade));
        Ok(written)
    }

    fn find(&self, kind: &Kind, key: &ObjectKey) -> Result<Option<SharedObject>, ClientError> {
        let view = BucketView::new(self);
        let found = view.object(&Location { kind: kind.clone().into(), key: key.clone() });
        view.check()?;
        Ok(found)
    }

    /// Refuses an object that is nested too deeply.
    fn admit(&self, kind: &Kind, object: Value) -> Result<Value, ClientError> {
        let mut failed = None;
        let current = |key: &ObjectKey| {
            self.find(kind, key).unwrap_or_else(|error| {
                failed = Some(error);
                None
            })
        };
        let admitted = admit(kind, object, current);
        failed.map_or(admitted, Err)
    }
}

impl Client for NatsClient {
    fn store_id(&self) -> usize {
        Arc::as_ptr(&self.store).addr()
    }

    fn get(&self, kind: &Kind, key: &ObjectKey) -> Result<SharedObject, ClientError> {
        self.store.find(kind, key)?.ok_or_else(|| ClientError::not_found(ObjectRef::new(kind, key)))
    }

    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<SharedObject>, ClientError> {
        let (list, unreadable) = self.list_readable(kind, query, &CancellationToken::new())?;
        unreadable.into_iter().next().map_or(Ok(list), Err)
    }

    fn list_readable(
        &self,
        kind: &Kind,
        query: &Query,
        _stop: &CancellationToken,
    ) -> Result<ReadableList, ClientError> {
        check_selector(kind, &query.labels)?;
        self.store.list(kind, query)
    }

    fn create(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError> {
        let object = self.store.admit(kind, object)?;
        Ok(self.store.write(&|txn| txn.create(kind, object.clone(), NAMES))?.object)
    }

    fn update(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError> {
        let object = self.store.admit(kind, object)?;
        Ok(self.store.write(&|txn| txn.update(kind, object.clone(), PatchTarget::Object))?.object)
    }

    fn update_status(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError> {
        let object = self.store.admit(kind, object)?;
        Ok(self.store.write(&|txn| txn.update(kind, object.clone(), PatchTarget::Status))?.object)
    }

    fn patch(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        patch: &Patch,
        target: PatchTarget,
    ) -> Result<SharedObject, ClientError> {
        Ok(self.store.write(&|txn| txn.patch(kind, key, patch, target))?.object)
    }

    fn apply(&self, kind: &Kind, object: Value, owner: &FieldOwner) -> Result<SharedObject, ClientError> {
        let object = self.store.admit(kind, object)?;
        Ok(self.store.write(&|txn| txn.apply(kind, object.clone(), owner, NAMES))?.object)
    }

    fn delete(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Deletion<SharedObject>, ClientError> {
        let Written { object, removed, .. } = self.store.write(&|txn| txn.delete(kind, key, options))?;
        if removed {
            return Ok(Deletion::Gone);
        }
        if options.purge {
            // Only the owner has changed so far. Settle its dependents next.
            self.store.write(&|txn| txn.purge_and_orphan(kind, key, object.uid())).ignore_not_found()?;
            return Ok(Deletion::Gone);
        }
        if options.propagation == Propagation::Background {
            return Ok(Deletion::Deleting(object));
        }
        // If all dependents are now gone or orphaned, the object is gone too.
        let left = self.store.find(kind, key)?.filter(|left| left.uid() == object.uid());
        Ok(left.map_or(Deletion::Gone, Deletion::Deleting))
    }

    fn delete_collection(
        &self,
        kind: &Kind,
        query: &Query,
        options: &DeleteOptions,
    ) -> Result<Vec<Deletion<SharedObject>>, ClientError> {
        delete_each(self, kind, query, options)
    }

    fn watch(
        &self,
        kind: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError> {
        check_selector(kind, &query.labels)?;
        Ok(ObjectStream::new(ObjectEvents::new(&self.store, kind, query, from, stop)?))
    }

    fn stream_list(&self, kind: &Kind, query: &Query, stop: &CancellationToken) -> Result<ObjectStream, ClientError> {
        self.watch(kind, query, None, stop)
    }

    fn with_timeout(&self, timeout: Duration) -> Option<Arc<dyn Client>> {
        match self.store.connection().sibling(timeout / REQUESTS) {
            Ok(connection) => Some(Arc::new(Self { store: Arc::new(self.store.with_connection(connection)) })),
            Err(error) => {
                let (bucket, error) = (self.store.bucket.name(), Chain(&error));
                log::warn!(bucket, error:%; "bucket {bucket}: cannot open a separate connection: {error}");
                None
            }
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::all().local(false)
    }
}
