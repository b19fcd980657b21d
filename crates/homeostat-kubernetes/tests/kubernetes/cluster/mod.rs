//! Clusters of real servers: etcd, kube-apiserver and kube-controller-manager, or etcd and apiextensions-apiserver.

pub(crate) mod certificates;
pub(crate) mod http;
mod keeper;
pub(crate) mod process;
mod programs;
pub(crate) mod servers;

use std::env;
use std::path::{Path, PathBuf};

use homeostat_kubernetes::{ClusterConfig, Kubeconfig, KubernetesClient};
use serde_json::{Value, json};

pub(crate) use self::programs::Programs;
pub(crate) use self::servers::{Options, Servers};

/// The environment variable with the kubeconfig of a cluster to use instead of the shared one.
const KUBECONFIG: &str = "HOMEOSTAT_TEST_KUBECONFIG";

/// Returns the kubeconfig of the cluster that all tests share. It starts with the first test.
///
/// It has the kinds and namespaces of the conformance suite. A test must leave everything else unchanged.
pub(crate) fn shared() -> PathBuf {
    env::var_os(KUBECONFIG).map_or_else(|| own().join("kubeconfig"), PathBuf::from)
}

/// Returns the directory of the shared cluster with its tokens and certificates, even if the variable names another
/// cluster.
pub(crate) fn own() -> PathBuf {
    let directory = keeper::shared();
    minor(&directory);
    directory
}

/// Starts a cluster for one test, which may kill its servers. The cluster ends with the calling thread.
pub(crate) fn private(options: &Options) -> Servers {
    Servers::start(&PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kubernetes"), options)
}

/// Returns the settings of a kubeconfig, with connections redirected to this host and port.
pub(crate) fn config_through(address: &str, kubeconfig: &Path) -> ClusterConfig {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let mut settings: Value = serde_json::from_str(&text).unwrap();
    settings["clusters"][0]["cluster"]["server"] = json!(format!("https://{address}"));
    Kubeconfig::parse(&settings.to_string(), kubeconfig.parent().unwrap()).unwrap().config().unwrap()
}

/// Returns the minor version of the server in a cluster's directory: 36 of Kubernetes 1.36. Prints the whole version.
#[expect(clippy::print_stdout, reason = "a failed test shows on which server it ran")]
pub(crate) fn minor(directory: &Path) -> u32 {
    let version = std::fs::read_to_string(directory.join("version")).unwrap();
    println!("runs on Kubernetes {version}");
    version.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap()
}

/// Returns a client with the settings of a kubeconfig.
pub(crate) fn client(kubeconfig: &Path) -> KubernetesClient {
    KubernetesClient::new(Kubeconfig::read(kubeconfig).unwrap().config().unwrap()).unwrap()
}
