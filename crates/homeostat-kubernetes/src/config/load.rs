//! Finds the connection settings in the environment.

use std::env;

use super::cluster::ClusterConfig;
use super::error::ConfigError;
use super::in_cluster;
use super::kubeconfig::Kubeconfig;

impl ClusterConfig {
    /// Finds the connection settings of this program.
    ///
    /// If the variable `KUBECONFIG` is set, reads the files that it lists. Otherwise, in a pod, uses the pod's service
    /// account. Otherwise reads `~/.kube/config`.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no settings, or if a setting is invalid.
    pub fn load() -> Result<Self, ConfigError> {
        if env::var_os("KUBECONFIG").is_none_or(|list| list.is_empty())
            && let Some(config) = in_cluster::config(&|name: &str| env::var_os(name), in_cluster::DIRECTORY)
        {
            return config;
        }
        let kubeconfig = Kubeconfig::load()?;
        if kubeconfig.is_empty() && kubeconfig.current_context().is_none() {
            let fault = "no settings found: KUBECONFIG names no kubeconfig, ~/.kube/config does not exist or has no contexts, and \
                         this program does not run in a pod";
            return Err(ConfigError::new("kubernetes", fault));
        }
        kubeconfig.config()
    }

    /// Returns the settings of a pod in a cluster: its service account and the cluster's server.
    ///
    /// # Errors
    ///
    /// Returns an error if this program does not run in a pod with a service account.
    pub fn in_cluster() -> Result<Self, ConfigError> {
        in_cluster::config(&|name: &str| env::var_os(name), in_cluster::DIRECTORY).unwrap_or_else(|| {
            let fault =
                "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, so this is no pod in a cluster";
            Err(ConfigError::new("in-cluster settings", fault))
        })
    }
}
