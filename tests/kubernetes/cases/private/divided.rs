//! Keys divided among processes by leases of a real API server.

use std::path::Path;
use std::sync::Arc;

use homeostat::objects::Client;

use crate::cluster::{self, Options};
use crate::fleet::{Ground, JOB, drive, works};
use crate::kinds;

fn connect(address: &str) -> Arc<dyn Client> {
    Arc::new(cluster::client(Path::new(address)))
}

#[test]
fn processes_that_are_killed_and_paused_run_each_key_in_one_place() {
    if works(connect) {
        return;
    }
    let servers = cluster::private(&Options::default());
    let client = servers.client();
    kinds::define(&client, &kinds::definition(&JOB));
    let kubeconfig = servers.directory.path().join("kubeconfig");
    let test = "cases::private::divided::processes_that_are_killed_and_paused_run_each_key_in_one_place";
    drive(test, |seed| {
        // The objects of earlier runs stay in their namespaces.
        let namespace = format!("fleet-{seed}");
        kinds::create_namespace(&client, &namespace);
        let address = kubeconfig.to_str().unwrap().to_owned();
        Ground { client: Arc::new(client.clone()), address, namespace, _servers: Box::new(()) }
    });
}
