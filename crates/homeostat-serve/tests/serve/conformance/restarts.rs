//! A controller behind a server that stops and starts again on the same port.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use homeostat::{Action, BoxError, Context, Controller, Exponential, WorkerPool};
use homeostat_objects::{
    Api, DeleteOptions, DynamicObject, Ignore, Object, ObjectKey, ObjectWatch, Patch, PatchTarget, Query, SharedObject,
    ValueRef,
};
use serde_json::{Value, json};

use super::*;
use crate::until::until;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn create(objects: &MemoryClient, name: &str) {
    let widget = json!({
        "apiVersion": WIDGET.api_version(), "kind": WIDGET.name(), "metadata": {"namespace": "default", "name": name},
        "spec": {"size": 0},
    });
    objects.create(&WIDGET, widget).unwrap();
}

fn resize(objects: &MemoryClient, name: &str, size: u64) {
    let patch = Patch::Merge(json!({"spec": {"size": size}}));
    objects.patch(&WIDGET, &key(name), &patch, PatchTarget::Object).unwrap();
}

/// Returns all stored widgets.
fn widgets(objects: &MemoryClient) -> Vec<Value> {
    objects.list(&WIDGET, &Query::all()).unwrap().items.iter().map(SharedObject::to_value).collect()
}

/// Starts a server on the port of a previous one. For a while, a connection of another process may occupy the port.
fn serve_again(objects: &MemoryClient, address: SocketAddr) -> Running<ServerControl> {
    until("the port is free", || {
        let api = ObjectApi::builder(Arc::new(objects.clone())).serve(ServedResource::new(WIDGET)).build().unwrap();
        match Server::builder(address).objects(&api).build().unwrap().start() {
            Ok(server) => Some(server),
            Err(error) if error.to_string().contains("in use") => None,
            Err(error) => panic!("{error}"),
        }
    })
}

/// Runs a controller that writes each widget's status, and restarts its server while the widgets change.
fn a_controller_survives_restarts(history: usize) {
    let objects = MemoryClient::builder().history(history).build();
    let mut server = serve(objects.clone(), kinds(), (Ipv4Addr::LOCALHOST, 0).into());
    let address = server.addresses()[0];
    let api = Api::<DynamicObject>::of_kind(Arc::new(client_of(&server)), WIDGET);
    let backoff = Exponential::new(Duration::from_millis(10), Duration::from_millis(100));
    let watch = ObjectWatch::new(api.clone()).backoff(backoff.clone()).start().unwrap();
    let (gone, deleted) = channel();
    let reconcile = move |_cx: &Context, key: &ObjectKey| -> Result<Action, BoxError> {
        let Some(widget) = api.get(key).ignore_not_found()? else {
            gone.send(key.name().to_owned())?;
            return Ok(Action::await_change());
        };
        let size = widget.pointer("/spec/size").and_then(ValueRef::as_u64);
        let patch = Patch::Merge(json!({"status": {"seen": size}}));
        api.client().patch(&WIDGET, key, &patch, PatchTarget::Status).ignore_not_found()?;
        Ok(Action::await_change())
    };
    let controller = Controller::builder("widgets", reconcile)
        .retry(backoff)
        .watch(watch.watch(), |event| event.key().cloned())
        .build()
        .unwrap();
    let pool = WorkerPool::builder().threads(2).start().unwrap();
    let running = controller.start(&pool).unwrap();
    let store = watch.watch().store();
    let is_equal = || {
        let stored = widgets(&objects);
        let version = |widget: &Value| {
            let meta = &widget["metadata"];
            let shown = store.get(&key(meta["name"].as_str().unwrap()));
            shown.is_some_and(|shown| meta["resourceVersion"] == shown.meta().resource_version.as_str())
        };
        store.len() == stored.len()
            && stored.iter().all(|widget| widget["status"]["seen"] == widget["spec"]["size"] && version(widget))
    };
    for name in ["steady", "busy"] {
        create(&objects, name);
    }
    for round in 1..=5 {
        let name = format!("short-{round}");
        create(&objects, &name);
        until("the statuses are equal", is_equal);
        drop(server);
        objects.delete(&WIDGET, &key(&name), &DeleteOptions::default()).unwrap();
        create(&objects, &format!("new-{round}"));
        for size in 0..20 {
            resize(&objects, "busy", 100 * round + size);
        }
        server = serve_again(&objects, address);
        resize(&objects, "steady", round);
        until("the statuses are equal", is_equal);
        // A run that failed because of the stop is repeated, and then finds that earlier widgets are gone.
        while deleted.recv().unwrap() != name {}
    }
    assert_eq!(widgets(&objects).len(), 7);
    running.shutdown(Duration::from_secs(10)).unwrap();
}

#[test]
fn a_watch_resumes_after_a_restart_of_the_server() {
    a_controller_survives_restarts(HISTORY);
}

#[test]
fn a_watch_lists_again_if_the_history_is_gone() {
    a_controller_survives_restarts(3);
}
