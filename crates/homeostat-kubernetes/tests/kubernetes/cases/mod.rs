//! The cases in which Kubernetes clients fail in practice, each with its number. `src/cases.md` lists them.

mod applying;
mod connections;
mod credentials;
mod events;
mod kinds_come_and_go;
mod private;
mod refused;
pub(crate) mod silent;
mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use homeostat::watch::Subscription;
use homeostat::{Event, Exponential, Running, Subscriber, Watch, WorkQueue};
use homeostat_kubernetes::{ClusterConfig, KubernetesClient};
use homeostat_objects::{
    Api, Client, DeleteOptions, DynamicObject, Ignore, Kind, Object, ObjectKey, ObjectWatch, Query, SharedObject,
};
use homeostat_testing::ApiServer;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::cluster::{self, Programs};
use crate::kinds;
use crate::until::within;

pub(crate) const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");

/// The longest wait for a server's event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The path of config maps in the namespace `default`.
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A config map with a number.
pub(crate) fn map(namespace: &str, name: &str, number: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name}, "data": {"number": number.to_string()},
    })
}

/// A client of a scripted server.
fn client_of(server: &ApiServer) -> KubernetesClient {
    KubernetesClient::new(ClusterConfig::new(&server.url()).unwrap()).unwrap()
}

/// A test's own namespace in the shared cluster. Dropping this deletes it.
struct Scratch {
    client: KubernetesClient,
    namespace: String,
}

impl Scratch {
    fn new(test: &str) -> Self {
        Self::of(cluster::client(&cluster::shared()), test)
    }

    /// Creates a namespace in the shared cluster, even if the tests use another cluster.
    fn own(test: &str) -> Self {
        Self::of(cluster::client(&cluster::own().join("kubeconfig")), test)
    }

    fn of(client: KubernetesClient, test: &str) -> Self {
        let namespace = format!("{test}-{}", std::process::id());
        if Programs::find().are_complete() {
            kinds::create_namespace(&client, &namespace);
        }
        Self { client, namespace }
    }

    fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(&self.namespace, name)
    }

    fn map(&self, name: &str) -> Value {
        map(&self.namespace, name, 0)
    }

    fn query(&self) -> Query {
        Query::all().namespace(self.namespace.as_str())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let namespace = Kind::cluster("", "v1", "Namespace");
        let _ = self.client.delete(&namespace, &ObjectKey::cluster(&self.namespace), &DeleteOptions::default());
    }
}

/// The versions of objects by key.
pub(crate) type Versions = BTreeMap<ObjectKey, String>;

/// Returns the versions of the objects on the server.
pub(crate) fn fresh(client: &dyn Client, kind: &Kind, query: &Query) -> Versions {
    let list = client.list(kind, query).unwrap();
    list.items.iter().map(|object| (object.key(), object.resource_version().to_owned())).collect()
}

/// A watch, and a subscriber that replays its events.
pub(crate) struct Follower {
    pub(crate) watch: Running<Watch<ObjectKey, DynamicObject>>,
    replayed: Arc<Mutex<Versions>>,
    deleted: Arc<Mutex<Vec<ObjectKey>>>,
    _subscription: Running<Subscription>,
}

impl Follower {
    /// Watches objects. Retries soon after failures.
    pub(crate) fn start(client: &KubernetesClient, kind: &Kind, query: Query) -> Self {
        Self::of(ObjectWatch::new(Api::of_kind(Arc::new(client.clone()), kind.clone())).query(query))
    }

    pub(crate) fn of(watch: ObjectWatch<DynamicObject>) -> Self {
        let backoff = Exponential::new(Duration::from_millis(10), Duration::from_millis(500));
        let watch = watch.backoff(backoff).start().unwrap();
        let (replayed, deleted) = (Arc::new(Mutex::new(Versions::new())), Arc::new(Mutex::new(Vec::new())));
        let (to, deletions) = (Arc::clone(&replayed), Arc::clone(&deleted));
        let replay = move |event: &Event<ObjectKey, DynamicObject>| {
            match event {
                Event::Created { key, new } | Event::Updated { key, new, .. } => {
                    to.lock().insert(key.clone(), version_of(new));
                }
                Event::Deleted { key, .. } => {
                    deletions.lock().push(key.clone());
                    to.lock().remove(key);
                }
                _ => {}
            }
            None::<u8>
        };
        let subscription = watch.watch().subscribe(Subscriber::to(&WorkQueue::<u8>::new(), replay)).unwrap();
        Self { watch, replayed, deleted, _subscription: subscription }
    }

    /// Waits until the store is filled.
    pub(crate) fn synced(self) -> Self {
        assert!(self.watch.watch().store().wait_synced(PATIENCE), "{:?}", self.watch.watch().source().status());
        self
    }

    /// Waits until the store and the replayed events both equal the objects on the server.
    pub(crate) fn waits_until_equal(&self, fresh: impl Fn() -> Option<Versions>) {
        within(PATIENCE, "the store equals the server", || {
            let expected = fresh().ok_or_else(|| "the server does not answer".to_owned())?;
            let snapshot = self.watch.watch().store().snapshot();
            let stored: Versions = snapshot.iter().map(|(key, object)| (key.clone(), version_of(object))).collect();
            let replayed = self.replayed.lock().clone();
            if stored == expected && replayed == expected {
                return Ok(());
            }
            let counts =
                format!("{} on the server, {} stored, {} replayed", expected.len(), stored.len(), replayed.len());
            Err(format!("{counts}, {:?}", self.watch.watch().source().status()))
        });
    }

    /// Waits until an object with this name is stored, or until it is not.
    pub(crate) fn waits_for(&self, key: &ObjectKey, stored: bool) {
        within(PATIENCE, &format!("{key} is stored: {stored}"), || {
            (self.watch.watch().store().contains(key) == stored).then_some(())
        });
    }

    /// Returns the keys of all deletions so far.
    pub(crate) fn deletions(&self) -> Vec<ObjectKey> {
        self.deleted.lock().clone()
    }
}

fn version_of(object: &DynamicObject) -> String {
    object.meta().resource_version.clone()
}

/// Deletes an object that must exist.
fn delete(client: &dyn Client, kind: &Kind, key: &ObjectKey) {
    client.delete(kind, key, &DeleteOptions::default()).unwrap();
}

/// Returns a value in a stored object.
fn at(object: &SharedObject, pointer: &str) -> Value {
    object.pointer(pointer).map_or(Value::Null, homeostat_objects::ValueRef::to_value)
}

/// Returns whether an object exists.
fn exists(client: &dyn Client, kind: &Kind, key: &ObjectKey) -> bool {
    client.get(kind, key).ignore_not_found().unwrap().is_some()
}
