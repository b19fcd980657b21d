//! An object to reconcile, and a client that records its calls.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat::{Context, ManualClock};
use homeostat_objects::sub::{Config, Request, SubContext, SubReconciler, SubResult};
use homeostat_objects::{
    Api, Client, Condition, EventRecorder, MemoryClient, Object, ObjectMeta, ObjectRef, Query, SharedObject,
};
use serde::{Deserialize, Serialize};

use crate::hooked_client::HookedClient;

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

homeostat_objects::object!(Thing, namespaced, "example.com", "v1", status: ThingStatus);

impl Thing {
    pub(crate) fn new(name: &str) -> Self {
        Self { metadata: ObjectMeta::new("default", name), spec: BTreeMap::new(), status: ThingStatus::default() }
    }

    /// A reference to the thing `web`.
    pub(crate) fn reference() -> ObjectRef {
        Self::new("web").object_ref()
    }
}

pub(crate) fn spy() -> Arc<HookedClient> {
    HookedClient::new(MemoryClient::new())
}

/// Returns a config with this client, and the client that stores its events.
pub(crate) fn config(client: &Arc<HookedClient>) -> (Config, Arc<MemoryClient>) {
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
    let text = |event: &SharedObject, field: &str| event.get(field).unwrap().as_str().unwrap_or_default().to_owned();
    listed
        .items
        .iter()
        .map(|event| [text(event, "type"), text(event, "reason"), text(event, "note")].join(" "))
        .collect()
}

/// Runs a step by itself. The client need not have the object.
pub(crate) fn step<T: Object>(step: &impl SubReconciler<T>, config: &Config, resource: &mut T) -> SubResult {
    let request = Request::new(resource, config.clone());
    step.reconcile(&SubContext::new("test", &Context::detached(), &request), resource)
}

pub(crate) fn things(client: &Arc<HookedClient>) -> Api<Thing> {
    Api::new(client.clone())
}
