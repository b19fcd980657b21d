//! Proxies and addresses: case 16.

use std::process::Command;
use std::time::Duration;

use homeostat_kubernetes::{Kubeconfig, KubernetesClient};
use homeostat_objects::{Client, ClientError, Query};
use serde_json::{Value, json};

use super::CONFIG_MAP;
use crate::cluster;
use crate::forwarder::Forwarder;

/// This environment variable makes a test read with the proxies of its environment.
const READER: &str = "HOMEOSTAT_TEST_READER";

/// Returns a client of the shared cluster with changed cluster settings.
fn client_with(change: impl FnOnce(&mut Value)) -> KubernetesClient {
    let directory = cluster::own();
    let text = std::fs::read_to_string(directory.join("kubeconfig")).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
    change(&mut kubeconfig["clusters"][0]["cluster"]);
    let config = Kubeconfig::parse(&kubeconfig.to_string(), directory).unwrap().config().unwrap();
    let patience = Duration::from_secs(5);
    KubernetesClient::builder(config).connect_timeout(patience).call_timeout(patience).build().unwrap()
}

/// Returns a client for an address that is reachable only through a proxy.
fn remote_client(change: impl FnOnce(&mut Value)) -> KubernetesClient {
    client_with(|cluster| {
        cluster["server"] = json!("https://10.96.0.1:6443");
        cluster["tls-server-name"] = json!("kubernetes.default.svc");
        change(cluster);
    })
}

/// Returns the host and port of the shared cluster.
fn target() -> String {
    client_with(|_| ()).server().strip_prefix("https://").unwrap().to_owned()
}

fn read(client: &KubernetesClient) -> Result<(), ClientError> {
    client.list(&CONFIG_MAP, &Query::all().namespace("default")).map(drop)
}

#[test]
fn case_16_connections_go_through_a_proxy() {
    let proxy = Forwarder::proxy_to(&target());
    read(&remote_client(|cluster| cluster["proxy-url"] = json!(format!("http://{}", proxy.address)))).unwrap();
    assert_eq!(proxy.accepted(), 1);
}

#[test]
fn case_16_the_environment_names_a_proxy_and_its_exceptions() {
    if std::env::var_os(READER).is_some() {
        read(&remote_client(|_| ())).unwrap();
        return;
    }
    let proxy = Forwarder::proxy_to(&target());
    let reads = |exceptions: &str| {
        let before = proxy.accepted();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "cases::connections::case_16_the_environment_names_a_proxy_and_its_exceptions"]);
        command.env(READER, "1").env("HTTPS_PROXY", format!("http://{}", proxy.address)).env("NO_PROXY", exceptions);
        command.env_remove("https_proxy").env_remove("no_proxy");
        let success = command.output().unwrap().status.success();
        (success, proxy.accepted() - before)
    };
    assert_eq!(reads(""), (true, 1));
    // Exceptions apply to the server's address, not to the proxy's.
    assert_eq!(reads("127.0.0.0/8,192.168.0.0/16,example.com"), (true, 1));
    for exceptions in ["127.0.0.0/8,10.0.0.0/8", "10.96.0.1"] {
        assert_eq!(reads(exceptions), (false, 0), "nothing answers without the proxy");
    }
}

#[test]
fn case_16_a_server_has_an_address_of_version_6() {
    let server = Forwarder::at("[::1]:0", &target());
    let client = client_with(|cluster| cluster["server"] = json!(format!("https://{}", server.address)));
    read(&client).unwrap();
    assert_eq!(server.accepted(), 1);
}
