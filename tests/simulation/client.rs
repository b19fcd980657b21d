//! A client around another one, whose lists fail as a test says, and whose streams are what a test makes of them.

use std::sync::Arc;

use homeostat::CancellationToken;
use homeostat::objects::{
    Client, ClientError, DeleteOptions, FieldOwner, Kind, MemoryClient, ObjectKey, ObjectList, ObjectRef, ObjectStream,
    Part, Patch, Query,
};
use serde_json::Value;

pub(crate) struct Around {
    pub(crate) inner: MemoryClient,
    list: Box<dyn Fn() -> Result<(), &'static str> + Send + Sync>,
    stream: Box<dyn Fn(ObjectStream) -> ObjectStream + Send + Sync>,
}

impl Around {
    pub(crate) fn new(
        list: impl Fn() -> Result<(), &'static str> + Send + Sync + 'static,
        stream: impl Fn(ObjectStream) -> ObjectStream + Send + Sync + 'static,
    ) -> Self {
        Self { inner: MemoryClient::new(), list: Box::new(list), stream: Box::new(stream) }
    }
}

impl Client for Around {
    fn get(&self, kind: &Kind, key: &ObjectKey) -> Result<Arc<Value>, ClientError> {
        self.inner.get(kind, key)
    }
    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<Arc<Value>>, ClientError> {
        let error = |error| ClientError::transport(ObjectRef::new(kind, &ObjectKey::cluster("")), error);
        (self.list)().map_err(error)?;
        self.inner.list(kind, query)
    }
    fn create(&self, kind: &Kind, object: Value) -> Result<Arc<Value>, ClientError> {
        self.inner.create(kind, object)
    }
    fn update(&self, kind: &Kind, object: Value) -> Result<Arc<Value>, ClientError> {
        self.inner.update(kind, object)
    }
    fn update_status(&self, kind: &Kind, object: Value) -> Result<Arc<Value>, ClientError> {
        self.inner.update_status(kind, object)
    }
    fn patch(&self, kind: &Kind, key: &ObjectKey, patch: &Patch, part: Part) -> Result<Arc<Value>, ClientError> {
        self.inner.patch(kind, key, patch, part)
    }
    fn apply(&self, kind: &Kind, object: Value, owner: &FieldOwner) -> Result<Arc<Value>, ClientError> {
        self.inner.apply(kind, object, owner)
    }
    fn delete(&self, kind: &Kind, key: &ObjectKey, options: &DeleteOptions) -> Result<Arc<Value>, ClientError> {
        self.inner.delete(kind, key, options)
    }
    fn watch(
        &self,
        kind: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError> {
        Ok((self.stream)(self.inner.watch(kind, query, from, stop)?))
    }
}
