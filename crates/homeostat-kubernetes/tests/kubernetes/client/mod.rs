//! The client, against scripted servers and against a real one.

mod kinds;
mod notices;
mod requests;
mod server;
mod watching;

use std::time::Duration;

use homeostat_kubernetes::{Kubeconfig, KubernetesClient, KubernetesClientBuilder};
use homeostat_objects::{Kind, ObjectKey};
use homeostat_testing::ApiServer;
use serde_json::{Value, json};

pub(super) const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");

/// Returns a client builder for a scripted server.
fn builder(server: &ApiServer) -> KubernetesClientBuilder {
    KubernetesClient::builder(Kubeconfig::parse(&server.kubeconfig(), "/").unwrap().config().unwrap())
}

/// Returns a client for a scripted server.
fn client(server: &ApiServer) -> KubernetesClient {
    builder(server).connect_timeout(Duration::from_secs(30)).build().unwrap()
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name}, "data": {"a": "1"}})
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}
