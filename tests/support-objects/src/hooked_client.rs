//! An in-memory client. Tests can observe its calls, fail them and change them.

use std::sync::Arc;

use homeostat::CancellationToken;
use homeostat_objects::{
    Api, Capabilities, Client, ClientError, DeleteOptions, Deletion, DynamicObject, FieldOwner, Kind, MemoryClient,
    ObjectKey, ObjectList, ObjectRef, ObjectStream, Patch, PatchTarget, Query, SharedObject,
};
use parking_lot::{Mutex, ReentrantMutex};
use serde_json::Value;

type Answer = Result<SharedObject, ClientError>;
type CallHook = dyn FnMut(&mut Call<'_>) -> Option<ClientError> + Send;
type ReadHook = dyn Fn(&Kind, Option<&Query>) -> Option<ObjectList<SharedObject>> + Send + Sync;
type ListHook = dyn Fn(&mut ObjectList<SharedObject>) + Send + Sync;
type StreamHook = dyn Fn(Option<&str>, ObjectStream) -> Result<ObjectStream, ClientError> + Send + Sync;

/// A call before it reaches the in-memory client.
pub struct Call<'a> {
    /// The method of the client: `get`, `update_status`.
    pub verb: &'static str,
    /// Lists and watches have the name `*`.
    pub object: &'a ObjectRef,
    /// The query of a list or a watch.
    pub query: Option<&'a Query>,
    /// The object that is created, updated or applied. A hook may change it.
    pub sent: Option<&'a mut Value>,
}

/// An in-memory client that records its calls and passes them through hooks.
///
/// Calls to `inner` are neither recorded nor hooked, so a hook may use it.
pub struct HookedClient {
    /// The in-memory client.
    pub inner: MemoryClient,
    hooks: Arc<Hooks>,
    /// If set, reads return only these objects, and pass no hook.
    snapshot: Option<Vec<SharedObject>>,
}

#[derive(Default)]
struct OnCall {
    /// `None` if there is no hook, and while the hook runs.
    hook: Option<Box<CallHook>>,
    /// How often the hook was replaced. If a hook was replaced while it ran, it is not restored.
    replaced: usize,
}

impl OnCall {
    fn replace(&mut self, hook: Option<Box<CallHook>>) {
        self.hook = hook;
        self.replaced += 1;
    }
}

#[derive(Default)]
struct Hooks {
    calls: Mutex<Vec<String>>,
    on_call: Mutex<OnCall>,
    /// Held while `on_call` runs. Other threads wait, but calls from within the hook pass.
    turn: ReentrantMutex<()>,
    on_read: Mutex<Option<Arc<ReadHook>>>,
    on_list: Mutex<Option<Arc<ListHook>>>,
    on_stream: Mutex<Option<Arc<StreamHook>>>,
    capabilities: Mutex<Option<Capabilities>>,
}

impl HookedClient {
    /// Returns a client without hooks.
    pub fn new(inner: MemoryClient) -> Arc<Self> {
        Arc::new(Self { inner, hooks: Arc::default(), snapshot: None })
    }

    /// Returns a client that reads from `objects` and writes to this client.
    pub fn with_snapshot(&self, objects: Vec<SharedObject>) -> Arc<Self> {
        Arc::new(Self { inner: self.inner.clone(), hooks: Arc::clone(&self.hooks), snapshot: Some(objects) })
    }

    /// Returns an API of this client.
    pub fn api(self: &Arc<Self>, kind: &Kind) -> Api<DynamicObject> {
        let client: Arc<dyn Client> = self.clone();
        Api::of_kind(client, kind.clone())
    }

    /// Returns an API of the in-memory client, without hooks.
    pub fn inner(&self, kind: &Kind) -> Api<DynamicObject> {
        Api::of_kind(Arc::new(self.inner.clone()), kind.clone())
    }

    /// Calls `hook` before each call, and replaces the previous hook. If `hook` returns an error, the call fails with
    /// it.
    pub fn on_call(&self, hook: impl FnMut(&mut Call<'_>) -> Option<ClientError> + Send + 'static) {
        self.hooks.on_call.lock().replace(Some(Box::new(hook)));
    }

    /// Like [`on_call`](Self::on_call), for a hook that needs only the verb and the object.
    pub fn before(&self, mut hook: impl FnMut(&str, &ObjectRef) -> Option<ClientError> + Send + 'static) {
        self.on_call(move |call| hook(call.verb, call.object));
    }

    /// Passes each object through `change` before its creation or update, like an admission controller.
    pub fn mutate(&self, mut change: impl FnMut(&mut Value) + Send + 'static) {
        self.on_call(move |call| {
            if let ("create" | "update", Some(sent)) = (call.verb, &mut call.sent) {
                change(sent);
            }
            None
        });
    }

    /// Fails all calls from now on, or stops failing them.
    pub fn cut_off(&self, cut_off: bool) {
        self.before(move |_, object| cut_off.then(|| unreachable(object)));
    }

    /// Removes the hook of calls.
    pub fn heal(&self) {
        self.hooks.on_call.lock().replace(None);
    }

    /// Lets `hook` answer reads with an older state: all objects of a kind, for a get or for the query of a list.
    pub fn on_read(
        &self,
        hook: impl Fn(&Kind, Option<&Query>) -> Option<ObjectList<SharedObject>> + Send + Sync + 'static,
    ) {
        *self.hooks.on_read.lock() = Some(Arc::new(hook));
    }

    /// Passes each list through `hook`.
    pub fn on_list(&self, hook: impl Fn(&mut ObjectList<SharedObject>) + Send + Sync + 'static) {
        *self.hooks.on_list.lock() = Some(Arc::new(hook));
    }

    /// Passes each watch stream through `hook`, with the version from which it starts.
    pub fn on_stream(
        &self,
        hook: impl Fn(Option<&str>, ObjectStream) -> Result<ObjectStream, ClientError> + Send + Sync + 'static,
    ) {
        *self.hooks.on_stream.lock() = Some(Arc::new(hook));
    }

    /// Declares these capabilities instead of the in-memory client's.
    pub fn declare(&self, capabilities: Capabilities) {
        *self.hooks.capabilities.lock() = Some(capabilities);
    }

    /// Returns the writes since the last call of this method, each as `create Page default/index`.
    pub fn writes(&self) -> Vec<String> {
        self.take_calls(|call| !is_read(call))
    }

    /// Returns the reads since the last call of this method, each as `get Page default/index`.
    pub fn reads(&self) -> Vec<String> {
        self.take_calls(is_read)
    }

    /// Counts the recorded calls of a verb.
    pub fn count(&self, verb: &str) -> usize {
        let is_it = |call: &&String| call.split(' ').next() == Some(verb);
        self.hooks.calls.lock().iter().filter(is_it).count()
    }

    fn take_calls(&self, wanted: fn(&str) -> bool) -> Vec<String> {
        let mut calls = std::mem::take(&mut *self.hooks.calls.lock());
        calls.retain(|call| wanted(call));
        calls
    }

    fn call(
        &self,
        verb: &'static str,
        object: &ObjectRef,
        query: Option<&Query>,
        sent: Option<&mut Value>,
    ) -> Result<(), ClientError> {
        self.hooks.calls.lock().push(format!("{verb} {object}"));
        let _turn = self.hooks.turn.lock();
        // The hook may call this client, and may set another hook.
        let (hook, replaced) = {
            let mut on_call = self.hooks.on_call.lock();
            (on_call.hook.take(), on_call.replaced)
        };
        let Some(mut hook) = hook else { return Ok(()) };
        let error = hook(&mut Call { verb, object, query, sent });
        let mut on_call = self.hooks.on_call.lock();
        if on_call.replaced == replaced {
            on_call.hook = Some(hook);
        }
        drop(on_call);
        error.map_or(Ok(()), Err)
    }

    /// Returns the older state that answers a read.
    fn older(&self, kind: &Kind, query: Option<&Query>) -> Option<ObjectList<SharedObject>> {
        let hook = self.hooks.on_read.lock().clone();
        hook.and_then(|hook| hook(kind, query))
    }

    fn send(&self, verb: &'static str, kind: &Kind, mut object: Value) -> Result<Value, ClientError> {
        self.call(verb, &ObjectRef::new(kind, &key_of(&object)), None, Some(&mut object))?;
        Ok(object)
    }
}

fn is_read(call: &str) -> bool {
    ["get ", "list ", "watch "].iter().any(|verb| call.starts_with(verb))
}

/// Returns the error of a call that reaches no server.
pub fn unreachable(object: &ObjectRef) -> ClientError {
    ClientError::transport(object.clone(), "no answer")
}

/// Returns the key of an object. The `generateName` replaces a missing name.
fn key_of(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let name = if text("name").is_empty() { text("generateName") } else { text("name") };
    ObjectKey::new(text("namespace"), name)
}

fn all_of(kind: &Kind, query: &Query) -> ObjectRef {
    ObjectRef::new(kind, &ObjectKey::new(query.namespace.as_deref().unwrap_or_default(), "*"))
}

impl Client for HookedClient {
    fn get(&self, kind: &Kind, key: &ObjectKey) -> Answer {
        let object = ObjectRef::new(kind, key);
        if let Some(objects) = &self.snapshot {
            let is_it = |seen: &&SharedObject| seen.key() == *key && seen.kind() == *kind;
            return objects.iter().find(is_it).cloned().ok_or_else(|| ClientError::not_found(object));
        }
        self.call("get", &object, None, None)?;
        if let Some(older) = self.older(kind, None) {
            let is_it = |seen: &SharedObject| seen.key() == *key;
            return older.items.into_iter().find(is_it).ok_or_else(|| ClientError::not_found(object));
        }
        self.inner.get(kind, key)
    }

    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<SharedObject>, ClientError> {
        if let Some(objects) = &self.snapshot {
            let items = objects.iter().filter(|seen| query.selects(*seen)).cloned().collect();
            return Ok(ObjectList::new("1", items));
        }
        self.call("list", &all_of(kind, query), Some(query), None)?;
        let mut list = match self.older(kind, Some(query)) {
            Some(mut older) => {
                older.items.retain(|seen| query.selects(seen));
                older
            }
            None => self.inner.list(kind, query)?,
        };
        let hook = self.hooks.on_list.lock().clone();
        if let Some(hook) = hook {
            hook(&mut list);
        }
        Ok(list)
    }

    fn create(&self, kind: &Kind, object: Value) -> Answer {
        self.inner.create(kind, self.send("create", kind, object)?)
    }

    fn update(&self, kind: &Kind, object: Value) -> Answer {
        self.inner.update(kind, self.send("update", kind, object)?)
    }

    fn update_status(&self, kind: &Kind, object: Value) -> Answer {
        self.inner.update_status(kind, self.send("update_status", kind, object)?)
    }

    fn patch(&self, kind: &Kind, key: &ObjectKey, patch: &Patch, target: PatchTarget) -> Answer {
        self.call("patch", &ObjectRef::new(kind, key), None, None)?;
        self.inner.patch(kind, key, patch, target)
    }

    fn apply(&self, kind: &Kind, object: Value, owner: &FieldOwner) -> Answer {
        self.inner.apply(kind, self.send("apply", kind, object)?, owner)
    }

    fn delete(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Deletion<SharedObject>, ClientError> {
        self.call("delete", &ObjectRef::new(kind, key), None, None)?;
        self.inner.delete(kind, key, options)
    }

    fn watch(
        &self,
        kind: &Kind,
        query: &Query,
        from: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<ObjectStream, ClientError> {
        self.call("watch", &all_of(kind, query), Some(query), None)?;
        let stream = self.inner.watch(kind, query, from, stop)?;
        let hook = self.hooks.on_stream.lock().clone();
        match hook {
            Some(hook) => hook(from, stream),
            None => Ok(stream),
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.hooks.capabilities.lock().unwrap_or_else(|| self.inner.capabilities())
    }
}
