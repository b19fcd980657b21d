//! An in-memory client. Tests can observe its calls, fail them and change them.

use std::sync::Arc;

use homeostat_objects::store::delete_each;
use homeostat_objects::{
    Api, Capabilities, Client, ClientAnswer, ClientCall, ClientError, ClientLayer, DynamicObject, Kind, MemoryClient,
    ObjectKey, ObjectList, ObjectRef, ObjectStream, Query, SharedObject, Verb,
};
use parking_lot::{Mutex, ReentrantMutex};
use serde_json::Value;

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
    /// The object that is created, updated or applied, or the patch. A hook may change it.
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

    fn pass_hook(&self, kind: &Kind, call: &mut ClientCall<'_>) -> Result<(), ClientError> {
        let (verb, query) = (call.verb().as_str(), call.query().cloned());
        let mut object = call.object(kind);
        if query.is_some() {
            object = ObjectRef::new(kind, &ObjectKey::new(object.key().namespace(), "*"));
        }
        self.hooks.calls.lock().push(format!("{verb} {object}"));
        let _turn = self.hooks.turn.lock();
        // The hook may call this client, and may set another hook.
        let (hook, replaced) = {
            let mut on_call = self.hooks.on_call.lock();
            (on_call.hook.take(), on_call.replaced)
        };
        let Some(mut hook) = hook else { return Ok(()) };
        let error = hook(&mut Call { verb, object: &object, query: query.as_ref(), sent: call.sent_mut() });
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
}

fn is_read(call: &str) -> bool {
    ["get ", "list ", "watch "].iter().any(|verb| call.starts_with(verb))
}

/// Returns the error of a call that reaches no server.
pub fn unreachable(object: &ObjectRef) -> ClientError {
    ClientError::transport(object.clone(), "no answer")
}

/// Answers a get or a list from objects of the kind.
fn read(
    mut objects: ObjectList<SharedObject>,
    kind: &Kind,
    call: &ClientCall<'_>,
) -> Option<Result<ClientAnswer, ClientError>> {
    match call {
        ClientCall::Get(key) => {
            let found = objects.items.into_iter().find(|object| object.key() == **key);
            Some(found.map(ClientAnswer::Object).ok_or_else(|| ClientError::not_found(ObjectRef::new(kind, key))))
        }
        ClientCall::List { query, .. } => {
            objects.items.retain(|object| query.selects(object));
            Some(Ok(ClientAnswer::List((objects, Vec::new()))))
        }
        _ => None,
    }
}

impl ClientLayer for HookedClient {
    fn inner(&self) -> &dyn Client {
        &self.inner
    }

    fn around(&self, _: Arc<dyn Client>) -> Option<Arc<dyn Client>> {
        None
    }

    fn call(&self, kind: &Kind, mut call: ClientCall<'_>) -> Result<ClientAnswer, ClientError> {
        if let ClientCall::DeleteCollection(query, options) = &call {
            return delete_each(self, kind, query, options).map(ClientAnswer::Deletions);
        }
        if let Some(objects) = &self.snapshot {
            let is_it = |object: &&SharedObject| object.kind().name() == kind.name();
            let objects = ObjectList::new("1", objects.iter().filter(is_it).cloned().collect());
            if let Some(answer) = read(objects, kind, &call) {
                return answer;
            }
        }
        self.pass_hook(kind, &mut call)?;
        let older = match call.verb() {
            Verb::Get | Verb::List => self.older(kind, call.query()),
            _ => None,
        };
        let from = if let ClientCall::Watch { from, .. } = &call { *from } else { None };
        let answer = older.and_then(|older| read(older, kind, &call));
        let mut answer = answer.unwrap_or_else(|| call.send(&self.inner, kind))?;
        if let ClientAnswer::List((list, _)) = &mut answer
            && let Some(hook) = self.hooks.on_list.lock().clone()
        {
            hook(list);
        }
        match (answer, self.hooks.on_stream.lock().clone()) {
            (ClientAnswer::Stream(stream), Some(hook)) => hook(from, stream).map(ClientAnswer::Stream),
            (answer, _) => Ok(answer),
        }
    }

    fn declared_capabilities(&self) -> Capabilities {
        self.hooks.capabilities.lock().unwrap_or_else(|| self.inner.capabilities())
    }
}
