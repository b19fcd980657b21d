//! Controllers of primaries. One kind of object is in a real cluster, the other in memory.

use std::sync::Arc;
use std::time::Duration;

use homeostat::{Action, BoxError, Manager};
use homeostat_objects::{
    Api, Client, DeleteOptions, DynamicObject, Ignore, Kind, MemoryClient, Object, ObjectKey, PrimaryContext,
    PrimaryController, PrimaryReconciler, Secondary, remove_finalizer,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::cluster;
use crate::kinds;
use crate::until::within;

const MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
const NAMESPACE: Kind = Kind::cluster("", "v1", "Namespace");
const FINALIZER: &str = "example.com/hold";
const PATIENCE: Duration = Duration::from_secs(120);

/// The calls of a reconciler, such as `put a` or `gone delete a`.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    fn note(&self, call: String) {
        self.0.lock().push(call);
    }

    fn has(&self, call: &str) -> bool {
        self.0.lock().iter().any(|known| known == call)
    }

    #[track_caller]
    fn wait(&self, call: &str) {
        within(PATIENCE, call, || self.has(call).then_some(()));
    }
}

/// Copies the data of each primary into a secondary.
struct Copies {
    calls: Calls,
    secondaries: Secondary<DynamicObject>,
}

impl PrimaryReconciler<DynamicObject> for Copies {
    fn sync(&self, cx: &PrimaryContext<'_>, primary: &DynamicObject) -> Result<Action, BoxError> {
        let key = primary.key();
        self.calls.note(format!("{} {}", cx.operation(), key.name()));
        if !primary.meta().is_deleting() {
            let copy = map(key.namespace(), &format!("{}-copy", key.name()), &primary.fields()["data"]["text"]);
            self.secondaries.ensure(cx, primary, copy)?;
        }
        Ok(Action::await_change())
    }

    fn gone(&self, cx: &PrimaryContext<'_>, key: &ObjectKey) -> Result<(), BoxError> {
        self.calls.note(format!("gone {} {}", cx.operation(), key.name()));
        Ok(())
    }
}

fn map(namespace: &str, name: &str, text: &Value) -> DynamicObject {
    DynamicObject::new(&MAP, namespace, name).with("data", json!({"text": text}))
}

/// Given a client of the cluster and a client in memory, returns the clients for primaries and secondaries.
type Split = fn(Arc<dyn Client>, Arc<dyn Client>) -> [Arc<dyn Client>; 2];

/// Follows primaries from creation to deletion. `split` chooses the clients for primaries and secondaries.
fn follow(namespace: &str, split: Split) {
    let cluster = cluster::client(&cluster::shared());
    kinds::create_namespace(&cluster, namespace);
    let [primaries, secondaries] = split(Arc::new(cluster.clone()), Arc::new(MemoryClient::new()));
    let [primaries, copies] = [primaries, secondaries].map(|client| Api::<DynamicObject>::of_kind(client, MAP));
    let key = |name: &str| ObjectKey::new(namespace, name);
    let text = |name: &str| {
        let copy = copies.get(&key(&format!("{name}-copy"))).ignore_not_found().unwrap();
        copy.map(|copy| copy.fields()["data"]["text"].clone())
    };
    let becomes = |name: &str, expected: Option<Value>| {
        within(PATIENCE, &format!("the copy of {name} is {expected:?}"), || (text(name) == expected).then_some(()));
    };

    let calls = Calls::default();
    let marked = Secondary::new(copies.clone()).namespace(namespace);
    let reconciler = Copies { calls: calls.clone(), secondaries: marked.clone() };
    let manager = Manager::builder().build().unwrap();
    let controller = PrimaryController::new("maps", primaries.clone(), reconciler).namespace(namespace);
    controller.secondary(&marked).add_to(&manager).unwrap();
    let running = manager.start().unwrap();

    let free = primaries.create(&map(namespace, "free", &json!("one"))).unwrap();
    let mut held = map(namespace, "held", &json!("two"));
    held.meta_mut().finalizers.push(FINALIZER.to_owned());
    primaries.create(&held).unwrap();
    becomes("free", Some(json!("one")));
    becomes("held", Some(json!("two")));
    primaries.update(&free.with("data", json!({"text": "three"}))).unwrap();
    becomes("free", Some(json!("three")));
    let by_hand = copies.get(&key("held-copy")).unwrap();
    copies.delete(&by_hand.key(), &DeleteOptions::default()).unwrap();
    within(PATIENCE, "the copy is made again", || {
        let again = copies.get(&by_hand.key()).ignore_not_found().unwrap()?;
        (again.meta().uid != by_hand.meta().uid).then_some(())
    });

    // Without a finalizer, an object's last state does not show its deletion.
    assert!(primaries.delete(&key("free"), &DeleteOptions::default()).unwrap().is_gone());
    calls.wait("gone delete free");
    becomes("free", None);
    let deletion = primaries.delete(&key("held"), &DeleteOptions::default()).unwrap();
    calls.wait("delete held");
    assert_eq!(text("held"), Some(json!("two")));
    remove_finalizer(&primaries, deletion.object().unwrap(), FINALIZER).unwrap();
    calls.wait("gone delete held");
    becomes("held", None);
    assert!(!calls.has("gone purge free") && !calls.has("gone purge held"));

    manager.stop();
    running.join().unwrap();
    cluster.delete(&NAMESPACE, &ObjectKey::cluster(namespace), &DeleteOptions::default()).unwrap();
}

#[test]
fn primaries_in_a_cluster_have_secondaries_in_memory() {
    follow("primaries-in-cluster", |cluster, memory| [cluster, memory]);
}

#[test]
fn primaries_in_memory_have_secondaries_in_a_cluster() {
    follow("primaries-in-memory", |cluster, memory| [memory, cluster]);
}
