//! Clients around other clients.

use std::sync::Arc;

use homeostat::CancellationToken;
use homeostat::rt::Chain;
use homeostat_objects::{
    Client, ClientAnswer, ClientCall, ClientError, ClientLayer, DeleteOptions, FieldOwner, Kind, MemoryClient,
    ObjectKey, Patch, PatchTarget, Query, SharedObject, Verb, WatchEvent,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

const LAMP: Kind = Kind::namespaced("example.com", "v1", "Lamp");

/// Records the calls, with all arguments.
struct Recording<C> {
    inner: C,
    calls: Arc<Mutex<Vec<(Verb, String)>>>,
}

impl<C: Client> Recording<C> {
    fn new(inner: C) -> Self {
        Self { inner, calls: Arc::default() }
    }
}

impl<C: Client> ClientLayer for Recording<C> {
    fn inner(&self) -> &dyn Client {
        &self.inner
    }

    fn around(&self, inner: Arc<dyn Client>) -> Option<Arc<dyn Client>> {
        drop(inner);
        None
    }

    fn call(&self, kind: &Kind, call: ClientCall<'_>) -> Result<ClientAnswer, ClientError> {
        self.calls.lock().push((call.verb(), format!("{} {call:?}", call.object(kind))));
        call.send(self.inner(), kind)
    }
}

fn lamp(name: &str, spec: &Value) -> Value {
    let metadata = json!({"namespace": "hall", "name": name});
    json!({"apiVersion": LAMP.api_version(), "kind": LAMP.name(), "metadata": metadata, "spec": spec})
}

/// Calls each method of the trait once.
fn call_all(client: &dyn Client) {
    let (key, stop) = (ObjectKey::new("hall", "a"), CancellationToken::new());
    let (all, options) = (Query::all().namespace("hall"), DeleteOptions::default());
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut lamp = client.get(&LAMP, &key).unwrap().to_value();
        change(&mut lamp);
        lamp
    };
    client.create(&LAMP, lamp("a", &json!({"watts": 1}))).unwrap();
    client.update(&LAMP, changed(&|lamp| lamp["spec"]["watts"] = json!(2))).unwrap();
    client.update_status(&LAMP, changed(&|lamp| lamp["status"] = json!({"on": true}))).unwrap();
    let patch = Patch::Merge(json!({"spec": {"watts": 3}, "status": {"on": false}}));
    client.patch(&LAMP, &key, &patch, PatchTarget::Object).unwrap();
    client.patch(&LAMP, &key, &patch, PatchTarget::Status).unwrap();
    let owner = FieldOwner::new("test").force();
    client.apply(&LAMP, lamp("a", &json!({"watts": 4})), &owner).unwrap();
    let mut status = lamp("a", &json!({}));
    status["status"] = json!({"on": true});
    client.apply(&LAMP, status, &owner.status()).unwrap();
    assert_eq!(client.list(&LAMP, &all).unwrap().items.len(), 1);
    assert_eq!(client.list_readable(&LAMP, &all, &stop).unwrap().0.items.len(), 1);
    assert!(client.watch(&LAMP, &all, Some("1"), &stop).unwrap().is_polled());
    assert!(client.stream_list(&LAMP, &all, &stop).unwrap().is_polled());
    assert_eq!(client.delete_collection(&LAMP, &all, &options).unwrap().len(), 1);
    assert!(client.delete(&LAMP, &key, &options).unwrap_err().is_not_found());
}

/// `Client` has no default methods, so its implementation for layers has all methods. Here each of them passes the
/// layer and reaches its own method of the inner client, with the same arguments.
#[test]
fn every_method_passes_the_layer_once() {
    let store = MemoryClient::new();
    let inner = Arc::new(Recording::new(store.clone()));
    let reached = Arc::clone(&inner.calls);
    let outer = Recording::new(Through(inner));
    call_all(&outer);
    let passed = outer.calls.lock().clone();
    assert_eq!(passed, *reached.lock());
    let verbs: Vec<_> = passed.iter().map(|(verb, _)| *verb).filter(|verb| *verb != Verb::Get).collect();
    let expected = [
        Verb::Create,
        Verb::Update,
        Verb::UpdateStatus,
        Verb::Patch,
        Verb::PatchStatus,
        Verb::Apply,
        Verb::ApplyStatus,
        Verb::List,
        Verb::List,
        Verb::Watch,
        Verb::Watch,
        Verb::DeleteCollection,
        Verb::Delete,
    ];
    assert_eq!(verbs, expected);
    let calls: Vec<_> = passed.iter().map(|(_, call)| call).collect();
    let distinct: std::collections::BTreeSet<_> = calls.iter().filter(|call| !call.contains("Get(")).collect();
    assert_eq!(distinct.len(), expected.len(), "{calls:?}");
    assert_eq!(outer.store_id(), store.store_id());
    assert_eq!(outer.capabilities(), store.capabilities());
}

/// A layer that changes nothing.
struct Through(Arc<Recording<MemoryClient>>);

impl ClientLayer for Through {
    fn inner(&self) -> &dyn Client {
        &*self.0
    }

    fn around(&self, inner: Arc<dyn Client>) -> Option<Arc<dyn Client>> {
        Some(inner)
    }

    fn call(&self, kind: &Kind, call: ClientCall<'_>) -> Result<ClientAnswer, ClientError> {
        call.send(self.inner(), kind)
    }
}

/// Keeps its objects in another namespace, and hides their watts.
struct Elsewhere(MemoryClient);

impl ClientLayer for Elsewhere {
    fn inner(&self) -> &dyn Client {
        &self.0
    }

    fn around(&self, _: Arc<dyn Client>) -> Option<Arc<dyn Client>> {
        None
    }

    fn call(&self, kind: &Kind, mut call: ClientCall<'_>) -> Result<ClientAnswer, ClientError> {
        if let Some(query) = call.query_mut() {
            query.namespace = Some("attic".to_owned());
        }
        if let Some(sent) = call.sent_mut() {
            sent["metadata"]["namespace"] = json!("attic");
        }
        Ok(match call.send(self.inner(), kind)? {
            ClientAnswer::Stream(events) => {
                ClientAnswer::Stream(events.map_events(|event| event?.try_map(|lamp| Ok(lamp_without_watts(&lamp)))))
            }
            answer => answer,
        })
    }
}

fn lamp_without_watts(lamp: &SharedObject) -> SharedObject {
    let mut lamp = lamp.to_value();
    lamp["spec"]["watts"].take();
    lamp.into()
}

#[test]
fn a_layer_changes_arguments_and_answers() {
    let store = MemoryClient::new();
    let client = Elsewhere(store.clone());
    client.create(&LAMP, lamp("a", &json!({"watts": 1}))).unwrap();
    assert_eq!(store.get(&LAMP, &ObjectKey::new("attic", "a")).unwrap().namespace(), "attic");
    let query = Query::all().namespace("hall");
    assert_eq!(client.list(&LAMP, &query).unwrap().items.len(), 1);
    assert_eq!(query.namespace.as_deref(), Some("hall"), "the caller's query is unchanged");
    let mut events = client.watch(&LAMP, &query, None, &CancellationToken::new()).unwrap();
    let Some(Ok(WatchEvent::Added(lamp))) = events.next() else { panic!("no event") };
    assert_eq!(lamp.pointer("/spec/watts").unwrap(), json!(null));
    assert!(matches!(events.next(), Some(Ok(WatchEvent::Bookmark(_)))));
    assert!(events.poll().is_pending());
}

/// Answers every call with an object.
struct Confused(MemoryClient);

impl ClientLayer for Confused {
    fn inner(&self) -> &dyn Client {
        &self.0
    }

    fn around(&self, _: Arc<dyn Client>) -> Option<Arc<dyn Client>> {
        None
    }

    fn call(&self, _: &Kind, _: ClientCall<'_>) -> Result<ClientAnswer, ClientError> {
        Ok(ClientAnswer::Object(lamp("a", &json!({})).into()))
    }
}

#[test]
fn the_answer_of_another_call_is_an_error() {
    let client = Confused(MemoryClient::new());
    assert_eq!(client.get(&LAMP, &ObjectKey::new("hall", "a")).unwrap().name(), "a");
    let error = Chain(&client.list(&LAMP, &Query::all()).unwrap_err()).to_string();
    assert!(error.contains("a client layer gives list the answer of another call"), "{error}");
}
