//! A client that lets a test see its calls, fail them, or act before them.

use std::sync::Arc;

use homeostat::CancellationToken;
use homeostat::objects::{
    Api, Client, ClientError, DeleteOptions, DynamicObject, FieldOwner, Kind, MemoryClient, ObjectKey, ObjectList,
    ObjectRef, ObjectStream, Patch, PatchTarget, Query,
};
use parking_lot::{Mutex, ReentrantMutex};
use serde_json::Value;

/// Called with the verb and object before each call. If it returns an error, the call fails with it.
type Before = Box<dyn FnMut(&str, &ObjectRef) -> Option<ClientError> + Send>;

type Change = fn(&mut Value);

/// A client in memory with a hook before each call. Calls through [`inner`](Self::inner) skip the hook.
#[derive(Clone)]
pub(crate) struct Hooked {
    inner: MemoryClient,
    before: Arc<Mutex<Option<Before>>>,
    /// Held while a call is in the hook, so that no other call passes.
    turn: Arc<ReentrantMutex<()>>,
    writes: Arc<Mutex<Vec<String>>>,
    listed_as: Arc<Mutex<Option<Change>>>,
}

impl Hooked {
    pub(crate) fn new(inner: MemoryClient) -> Self {
        Self { inner, before: Arc::default(), turn: Arc::default(), writes: Arc::default(), listed_as: Arc::default() }
    }

    pub(crate) fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        Api::of_kind(Arc::new(self.clone()), kind.clone())
    }

    /// Returns the objects of a kind, without the hook.
    pub(crate) fn inner(&self, kind: &Kind) -> Api<DynamicObject> {
        Api::of_kind(Arc::new(self.inner.clone()), kind.clone())
    }

    pub(crate) fn before(&self, hook: impl FnMut(&str, &ObjectRef) -> Option<ClientError> + Send + 'static) {
        *self.before.lock() = Some(Box::new(hook));
    }

    /// Sets whether all calls fail.
    pub(crate) fn cut_off(&self, cut_off: bool) {
        self.before(move |_, object| cut_off.then(|| unreachable(object)));
    }

    /// Changes objects before they are listed.
    pub(crate) fn listed_as(&self, change: Change) {
        *self.listed_as.lock() = Some(change);
    }

    /// Returns the writes since the last call, as `verb name`.
    pub(crate) fn writes(&self) -> Vec<String> {
        std::mem::take(&mut *self.writes.lock())
    }

    fn call(&self, verb: &str, kind: &Kind, key: &ObjectKey) -> Result<(), ClientError> {
        if !matches!(verb, "get" | "list" | "watch") {
            self.writes.lock().push(format!("{verb} {}", key.name()));
        }
        let _turn = self.turn.lock();
        // Not held during the call: the hook may set another hook.
        let hook = self.before.lock().take();
        let Some(mut hook) = hook else { return Ok(()) };
        let error = hook(verb, &ObjectRef::new(kind, key));
        self.before.lock().get_or_insert(hook);
        error.map_or(Ok(()), Err)
    }
}

pub(crate) fn unreachable(object: &ObjectRef) -> ClientError {
    ClientError::transport(object.clone(), "no answer")
}

fn key_of(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    ObjectKey::new(text("namespace"), text("name"))
}

impl Client for Hooked {
    fn get(&self, kind: &Kind, key: &ObjectKey) -> Result<Arc<Value>, ClientError> {
        self.call("get", kind, key)?;
        self.inner.get(kind, key)
    }

    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<Arc<Value>>, ClientError> {
        self.call("list", kind, &ObjectKey::cluster(""))?;
        let mut list = self.inner.list(kind, query)?;
        if let Some(change) = *self.listed_as.lock() {
            list.items.iter_mut().for_each(|object| change(Arc::make_mut(object)));
        }
        Ok(list)
    }

    fn create(&self, kind: &Kind, object: Value) -> Result<Arc<Value>, ClientError> {
        self.call("create", kind, &key_of(&object))?;
        self.inner.create(kind, object)
    }

    fn update(&self, kind: &Kind, object: Value) -> Result<Arc<Value>, ClientError> {
        self.call("update", kind, &key_of(&object))?;
        self.inner.update(kind, object)
    }

    fn update_status(&self, kind: &Kind, object: Value) -> Result<Arc<Value>, ClientError> {
        self.call("update_status", kind, &key_of(&object))?;
        self.inner.update_status(kind, object)
    }

    fn patch(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        patch: &Patch,
        target: PatchTarget,
    ) -> Result<Arc<Value>, ClientError> {
        self.call("patch", kind, key)?;
        self.inner.patch(kind, key, patch, target)
    }

    fn apply(&self, kind: &Kind, object: Value, owner: &FieldOwner) -> Result<Arc<Value>, ClientError> {
        self.call("apply", kind, &key_of(&object))?;
        self.inner.apply(kind, object, owner)
    }

    fn delete(&self, kind: &Kind, key: &ObjectKey, options: &DeleteOptions) -> Result<Arc<Value>, ClientError> {
        self.call("delete", kind, key)?;
        self.inner.delete(kind, key, options)
    }

    fn watch(
        &self,
        kind: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError> {
        self.call("watch", kind, &ObjectKey::cluster(""))?;
        self.inner.watch(kind, query, from, stop)
    }
}
