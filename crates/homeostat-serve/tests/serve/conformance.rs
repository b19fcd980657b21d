//! The conformance suite through the server: a Kubernetes client calls the API of an in-memory client.

mod restarts;

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use homeostat::Running;
use homeostat_kubernetes::{ClusterConfig, KubernetesClient};
use homeostat_objects::{Client, KindDefinition, MemoryClient};
use homeostat_serve::{ObjectApi, ServedResource, Server, ServerControl};
use homeostat_testing::conformance::{Backend, WIDGET, ZONE};
use serde_json::json;

/// How many changes back a watch can start.
const HISTORY: usize = 170;

thread_local! {
    /// The server of the case that this thread runs.
    static SERVER: RefCell<Option<Running<ServerControl>>> = const { RefCell::new(None) };
}

/// Kinds without a schema and hooks. Each write is one call of the in-memory client.
struct Plain;

/// Kinds with a schema and a hook. Each write is computed, admitted and then stored.
struct Admitted;

fn serve(objects: MemoryClient, resources: [ServedResource; 2], address: SocketAddr) -> Running<ServerControl> {
    let [widgets, zones] = resources;
    let api = ObjectApi::builder(Arc::new(objects)).serve(widgets).serve(zones).build().unwrap();
    Server::builder(address).objects(&api).build().unwrap().start().unwrap()
}

fn client_of(server: &ServerControl) -> KubernetesClient {
    KubernetesClient::new(ClusterConfig::new(&server.url()).unwrap()).unwrap()
}

/// Starts a server for the case that this thread runs.
fn door(resources: [ServedResource; 2]) -> Arc<dyn Client> {
    let objects = MemoryClient::builder().history(HISTORY).build();
    let server = serve(objects, resources, (Ipv4Addr::LOCALHOST, 0).into());
    let client = client_of(&server);
    SERVER.set(Some(server));
    Arc::new(client)
}

fn kinds() -> [ServedResource; 2] {
    [WIDGET.into(), ZONE.into()]
}

fn admitted_kinds() -> [ServedResource; 2] {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    [WIDGET, ZONE].map(|kind| {
        let definition = KindDefinition::new(kind).schema(schema.clone());
        ServedResource::new(definition).mutate(|_, _| Ok(())).validate(|_, _| Ok(()))
    })
}

impl Backend for Plain {
    fn client(&self) -> Arc<dyn Client> {
        door(kinds())
    }

    fn history(&self) -> Option<usize> {
        Some(HISTORY)
    }
}

impl Backend for Admitted {
    fn client(&self) -> Arc<dyn Client> {
        door(admitted_kinds())
    }

    fn history(&self) -> Option<usize> {
        Some(HISTORY)
    }
}

mod plain {
    // The Kubernetes API has no request that removes an object despite its finalizers.
    homeostat_testing::conformance_tests!(super::Plain, skipped: [
        "purge_removes_at_once", "what_belongs_to_a_purged_object_is_deleted",
    ]);
}

mod admitted {
    homeostat_testing::conformance_tests!(super::Admitted, skipped: [
        "purge_removes_at_once", "what_belongs_to_a_purged_object_is_deleted",
    ]);
}
