//! An object to reconcile, and a client that records its calls.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat::objects::{
    Api, Client, ClientError, Condition, DeleteOptions, EventRecorder, FieldOwner, Kind, MemoryClient, Object,
    ObjectKey, ObjectList, ObjectMeta, ObjectRef, ObjectStream, Patch, PatchTarget, Query,
};
use homeostat::sub::{Config, Request, SubContext, SubReconciler, SubResult};
use homeostat::{CancellationToken, Context, ManualClock};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The reconciled object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Thing {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) status: ThingStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ThingStatus {
    pub(crate) observed_generation: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) fields: BTreeMap<String, String>,
}

homeostat::object!(Thing, namespaced, "example.com", "v1", status: ThingStatus);

impl Thing {
    pub(crate) fn new(name: &str) -> Self {
        Self { metadata: ObjectMeta::new("default", name), spec: BTreeMap::new(), status: ThingStatus::default() }
    }

    /// A reference to the thing `web`.
    pub(crate) fn reference() -> ObjectRef {
        Self::new("web").object_ref()
    }
}

/// Returns the error for a verb and an object, if the call should fail.
type Fails = Box<dyn Fn(&str, &ObjectRef) -> Option<ClientError> + Send + Sync>;
/// Changes a written object, by the verb and its JSON.
type Mutates = Box<dyn Fn(&str, &mut Value) + Send + Sync>;

/// An embedded client that records its calls, such as `create Thing default/web`, and fails on demand.
pub(crate) struct Spy {
    pub(crate) inner: MemoryClient,
    calls: Mutex<Vec<String>>,
    fails: Mutex<Option<Fails>>,
    mutates: Mutex<Option<Mutates>>,
    holds: Arc<(Mutex<bool>, Condvar)>,
}

impl Spy {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryClient::new(),
            calls: Mutex::default(),
            fails: Mutex::default(),
            mutates: Mutex::default(),
            holds: Arc::default(),
        })
    }

    pub(crate) fn fail(&self, fails: impl Fn(&str, &ObjectRef) -> Option<ClientError> + Send + Sync + 'static) {
        *self.fails.lock() = Some(Box::new(fails));
    }

    pub(crate) fn heal(&self) {
        *self.fails.lock() = None;
    }

    /// Changes created and updated objects, as an admission controller does.
    pub(crate) fn mutate(&self, mutates: impl Fn(&str, &mut Value) + Send + Sync + 'static) {
        *self.mutates.lock() = Some(Box::new(mutates));
    }

    /// Holds back or releases the events of watches.
    pub(crate) fn hold(&self, holds: bool) {
        *self.holds.0.lock() = holds;
        self.holds.1.notify_all();
    }

    fn mutated(&self, verb: &str, mut object: Value) -> Value {
        if let Some(mutates) = &*self.mutates.lock() {
            mutates(verb, &mut object);
        }
        object
    }

    /// Takes the writes since the last call.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.calls(|call| !is_read(call))
    }

    /// Takes the reads since the last call.
    pub(crate) fn reads(&self) -> Vec<String> {
        self.calls(is_read)
    }

    fn calls(&self, wanted: fn(&str) -> bool) -> Vec<String> {
        let mut calls = std::mem::take(&mut *self.calls.lock());
        calls.retain(|call| wanted(call));
        calls
    }

    fn call(&self, verb: &str, kind: &Kind, key: &ObjectKey) -> Result<(), ClientError> {
        let object = ObjectRef::new(kind, key);
        self.calls.lock().push(format!("{verb} {object}"));
        self.fails.lock().as_ref().and_then(|fails| fails(verb, &object)).map_or(Ok(()), Err)
    }
}

fn is_read(call: &str) -> bool {
    call.starts_with("get ") || call.starts_with("list ")
}

fn key_of(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let name = if text("name").is_empty() { text("generateName") } else { text("name") };
    ObjectKey::new(text("namespace"), name)
}

impl Client for Spy {
    fn get(&self, kind: &Kind, key: &ObjectKey) -> Result<Arc<Value>, ClientError> {
        self.call("get", kind, key)?;
        self.inner.get(kind, key)
    }

    fn list(&self, kind: &Kind, query: &Query) -> Result<ObjectList<Arc<Value>>, ClientError> {
        self.call("list", kind, &ObjectKey::new(query.namespace.as_deref().unwrap_or_default(), "*"))?;
        self.inner.list(kind, query)
    }

    fn create(&self, kind: &Kind, object: Value) -> Result<Arc<Value>, ClientError> {
        self.call("create", kind, &key_of(&object))?;
        self.inner.create(kind, self.mutated("create", object))
    }

    fn update(&self, kind: &Kind, object: Value) -> Result<Arc<Value>, ClientError> {
        self.call("update", kind, &key_of(&object))?;
        self.inner.update(kind, self.mutated("update", object))
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
        let (events, holds) = (self.inner.watch(kind, query, from, stop)?, Arc::clone(&self.holds));
        Ok(ObjectStream::new(events.inspect(move |_| holds.1.wait_while(&mut holds.0.lock(), |holds| *holds))))
    }
}

/// Returns a config with this client, and the client that stores its events.
pub(crate) fn config(client: &Arc<Spy>) -> (Config, Arc<MemoryClient>) {
    let events = Arc::new(MemoryClient::new());
    // On a held clock, events are stored when they are read.
    let recorder = EventRecorder::builder("test").client(events.clone()).log(false).clock(ManualClock::new().clock());
    let recorder = recorder.build();
    RECORDERS.with_borrow_mut(|recorders| recorders.push(recorder.clone()));
    (Config::new(client.clone()).with_recorder(recorder), events)
}

thread_local! {
    /// The recorders of this test.
    static RECORDERS: RefCell<Vec<EventRecorder>> = const { RefCell::new(Vec::new()) };
}

/// The events, such as `Normal Created Created Page "x"`, in the order of their keys.
pub(crate) fn events(client: &MemoryClient) -> Vec<String> {
    RECORDERS.with_borrow(|recorders| recorders.iter().for_each(EventRecorder::flush));
    let listed = client.list(&EventRecorder::KIND, &Query::all()).unwrap();
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    listed
        .items
        .iter()
        .map(|event| [text(event, "type"), text(event, "reason"), text(event, "message")].join(" "))
        .collect()
}

/// Runs a step by itself. The client need not have the object.
pub(crate) fn step<T: Object>(step: &impl SubReconciler<T>, config: &Config, resource: &mut T) -> SubResult {
    let request = Request::new(resource, config.clone());
    step.reconcile(&SubContext::new("test", &Context::detached(), &request), resource)
}

pub(crate) fn things(client: &Arc<Spy>) -> Api<Thing> {
    Api::new(client.clone())
}
