//! A client around another one, whose lists fail as a test says, and whose streams are what a test makes of them.

use std::sync::Arc;

use homeostat::CancellationToken;
use homeostat::objects::{
    Client, ClientError, Kind, MemoryClient, ObjectKey, ObjectList, ObjectRef, ObjectStream, Query,
};
use serde_json::Value;

use crate::clients::hand_on;

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
    hand_on!(self.inner: get, create, update, update_status, patch, apply, delete);

    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<Arc<Value>>, ClientError> {
        let error = |error| ClientError::transport(ObjectRef::new(kind, &ObjectKey::cluster("")), error);
        (self.list)().map_err(error)?;
        self.inner.list(kind, query)
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
