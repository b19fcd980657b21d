//! Keys divided among processes by leases on a real API server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use homeostat_kubernetes::KubernetesClient;
use homeostat_objects::Client;

use crate::cluster::{self, Options, config_through};
use crate::fleet::{Ground, JOB, drive, works};
use crate::kinds;

fn connect(address: &str) -> Arc<dyn Client> {
    let (network, kubeconfig) = address.split_once(' ').unwrap();
    let builder = KubernetesClient::builder(config_through(network, Path::new(kubeconfig)));
    // Give up silent connections soon.
    let silence = Duration::from_secs(2);
    Arc::new(builder.connect_timeout(silence).read_timeout(silence).watch_read_timeout(silence).build().unwrap())
}

#[test]
fn processes_that_are_killed_paused_and_cut_off_run_each_key_in_one_place() {
    if works(connect) {
        return;
    }
    let servers = cluster::private(&Options::default());
    let client = servers.client();
    kinds::define(&client, &kinds::definition(&JOB));
    let kubeconfig = servers.directory.path().join("kubeconfig");
    let server = client.server().strip_prefix("https://").unwrap();
    let test = "cases::private::divided::processes_that_are_killed_paused_and_cut_off_run_each_key_in_one_place";
    drive(test, |seed| {
        // Objects of earlier runs stay in their own namespaces.
        let namespace = format!("fleet-{seed}");
        kinds::create_namespace(&client, &namespace);
        let (client, kubeconfig) = (Arc::new(client.clone()), kubeconfig.display().to_string());
        let address = Box::new(move |network: &str| format!("{network} {kubeconfig}"));
        Ground { client, server: server.to_owned(), address, namespace, servers: Box::new(()) }
    });
}
