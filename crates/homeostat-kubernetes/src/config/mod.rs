//! Connection settings: kubeconfigs, pods, credentials, plugins and proxies.

pub(super) mod authenticator;
pub(super) mod cluster;
pub(super) mod cluster_info;
pub(super) mod error;
mod exec;
mod field;
mod format;
pub(super) mod identity;
pub(super) mod in_cluster;
mod kubeconfig;
mod load;
mod process;
pub(super) mod proxy;
pub(super) mod secret;
#[cfg(all(test, not(loom)))]
mod tests;

pub use self::cluster::ClusterConfig;
pub use self::error::ConfigError;
pub use self::identity::Impersonation;
pub use self::kubeconfig::Kubeconfig;
