//! Keys divided among processes that reach the objects through a server.

mod rules;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use homeostat_kubernetes::{ClusterConfig, KubernetesClient};
use homeostat_objects::{Client, Kind, MemoryClient};
use homeostat_serve::{ObjectApi, ServedResource, Server};

use crate::fleet::{Ground, JOB, drive, works};

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease");

fn connect(address: &str) -> Arc<dyn Client> {
    // Give up silent connections soon.
    let (builder, silence) = (KubernetesClient::builder(ClusterConfig::new(address).unwrap()), Duration::from_secs(2));
    Arc::new(builder.connect_timeout(silence).read_timeout(silence).watch_read_timeout(silence).build().unwrap())
}

/// Starts a server with its objects in memory.
fn ground() -> Ground {
    let client: Arc<dyn Client> = Arc::new(MemoryClient::new());
    let (jobs, leases) = (ServedResource::new(JOB), ServedResource::new(LEASE));
    let api = ObjectApi::builder(client.clone()).serve(jobs).serve(leases).build().unwrap();
    let server = Server::builder((Ipv4Addr::LOCALHOST, 0)).objects(&api).build().unwrap().start().unwrap();
    let at = server.url().strip_prefix("http://").unwrap().to_owned();
    let (address, namespace) = (Box::new(|at: &str| format!("http://{at}")), "default".to_owned());
    Ground { client, server: at, address, namespace, servers: Box::new(server) }
}

#[test]
fn processes_that_are_killed_paused_and_cut_off_run_each_key_in_one_place() {
    if !works(connect) {
        drive("divided::processes_that_are_killed_paused_and_cut_off_run_each_key_in_one_place", |_seed| ground());
    }
}
