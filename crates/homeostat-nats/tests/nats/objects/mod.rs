//! Objects in a bucket of a real server.

mod cascades;
mod cluster;
mod conformance;
mod controllers;
#[cfg(target_os = "linux")]
mod divided;
mod faults;
mod full;
mod layout;
mod scripted;
mod watch;
mod writers;

use homeostat_nats::{NatsClient, NatsConnection};
use homeostat_objects::{Client, Kind, ObjectKey, Query};
use serde_json::{Value, json};

use crate::support::options;
use crate::support::server::TestServer;

pub(crate) const WIDGET: Kind = Kind::namespaced("example.com", "v1", "Widget");

/// Returns a new connection.
pub(crate) fn connect(server: &TestServer) -> NatsConnection {
    connect_to(&server.url())
}

fn connect_to(url: &str) -> NatsConnection {
    options(url).connect().unwrap()
}

/// Returns a client with a new connection. The bucket keeps the longest history.
pub(crate) fn client(server: &TestServer) -> NatsClient {
    client_of(&connect(server))
}

pub(crate) fn client_of(connection: &NatsConnection) -> NatsClient {
    NatsClient::create(connection, &NatsClient::bucket("TEST").history(64)).unwrap()
}

pub(crate) fn names(client: &NatsClient) -> Vec<String> {
    let list = client.list(&WIDGET, &Query::all()).unwrap().items;
    list.iter().map(|object| object.name().to_owned()).collect()
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

pub(crate) fn widget(name: &str, size: u64) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"namespace": "default", "name": name}, "spec": {"size": size},
    })
}

/// Returns a widget that blocks the deletion of `owner`.
pub(crate) fn owned(name: &str, owner: &Value) -> Value {
    let mut object = widget(name, 0);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
    }]);
    object
}

/// Returns the key of a widget in the bucket.
pub(crate) fn entry(name: &str) -> String {
    format!("example=2Ecom.Widget.default.{name}")
}
