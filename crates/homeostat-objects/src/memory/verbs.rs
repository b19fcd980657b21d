//! The [`Client`] methods of the embedded clients, each as a transaction or a read of the engine.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::client::MemoryClient;
#[cfg(feature = "file-client")]
use super::file::FileClient;
use super::stream::Stream;
use crate::client::{ReadableList, delete_each};
use crate::rules::check::check_selector;
use crate::{
    Capabilities, Client, ClientError, DeleteOptions, Deletion, FieldOwner, Kind, ObjectKey, ObjectList, ObjectRef,
    ObjectStream, Patch, PatchTarget, Query, SharedObject,
};
use homeostat::base::CancellationToken;

/// Implements [`Client`] for a type with a field `server` of type `Arc<Server>`.
macro_rules! embedded_client {
    ($client:ty) => {
        impl Client for $client {
            fn store_id(&self) -> usize {
                Arc::as_ptr(&self.server).addr()
            }

            fn get(&self, kind: &Kind, key: &ObjectKey) -> Result<SharedObject, ClientError> {
                self.server.expire_before_reading(kind);
                let found = self.server.visible.read().get(kind, key).cloned();
                found.ok_or_else(|| ClientError::not_found(ObjectRef::new(kind, key)))
            }

            fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<SharedObject>, ClientError> {
                check_selector(kind, &query.labels)?;
                self.server.expire_before_reading(kind);
                self.server.snapshot().list(kind, query)
            }

            fn list_readable(
                &self,
                kind: &Kind,
                query: &Query,
                _stop: &CancellationToken,
            ) -> Result<ReadableList, ClientError> {
                self.list(kind, query).map(|list| (list, Vec::new()))
            }

            fn create(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError> {
                let object = self.server.admit(kind, object)?;
                self.server.write(|txn| txn.create(kind, object, self.server.names))
            }

            fn update(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError> {
                let object = self.server.admit(kind, object)?;
                self.server.write(|txn| txn.update(kind, object, PatchTarget::Object))
            }

            fn update_status(&self, kind: &Kind, object: Value) -> Result<SharedObject, ClientError> {
                let object = self.server.admit(kind, object)?;
                self.server.write(|txn| txn.update(kind, object, PatchTarget::Status))
            }

            fn patch(
                &self,
                kind: &Kind,
                key: &ObjectKey,
                patch: &Patch,
                target: PatchTarget,
            ) -> Result<SharedObject, ClientError> {
                self.server.write(|txn| txn.patch(kind, key, patch, target))
            }

            fn apply(&self, kind: &Kind, object: Value, owner: &FieldOwner) -> Result<SharedObject, ClientError> {
                let object = self.server.admit(kind, object)?;
                self.server.write(|txn| txn.apply(kind, object, owner, self.server.names))
            }

            fn delete(
                &self,
                kind: &Kind,
                key: &ObjectKey,
                options: &DeleteOptions,
            ) -> Result<Deletion<SharedObject>, ClientError> {
                self.server.delete(kind, key, options)
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
                self.server.expire_before_reading(kind);
                Ok(ObjectStream::polled(Stream::new(&self.server, kind, query, from, stop)?))
            }

            fn stream_list(
                &self,
                kind: &Kind,
                query: &Query,
                stop: &CancellationToken,
            ) -> Result<ObjectStream, ClientError> {
                self.watch(kind, query, None, stop)
            }

            fn with_timeout(&self, _timeout: Duration) -> Option<Arc<dyn Client>> {
                None
            }

            fn capabilities(&self) -> Capabilities {
                Capabilities::all().cascading(self.server.cascades)
            }
        }

        impl fmt::Debug for $client {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let version = self.server.visible.read().head;
                f.debug_struct(stringify!($client)).field("version", &version).finish_non_exhaustive()
            }
        }
    };
}

embedded_client!(MemoryClient);
#[cfg(feature = "file-client")]
embedded_client!(FileClient);
