//! The settings of a pod in a cluster.

use std::ffi::OsString;
use std::net::Ipv6Addr;
use std::path::Path;

use super::cluster::{ClusterConfig, ConfigParts, parse_server};
use super::error::{ConfigError, FileOrInline, read_file};
use super::identity::Credentials;

/// The folder with a pod's service account.
pub(crate) const DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

const ORIGIN: &str = "in-cluster settings";

/// Returns the settings of a pod, or `None` if the variables of a pod are not set.
pub(crate) fn config(
    var: &impl Fn(&str) -> Option<OsString>,
    directory: impl AsRef<Path>,
) -> Option<Result<ClusterConfig, ConfigError>> {
    let text = |name: &str| var(name).and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty());
    let (host, port) = (text("KUBERNETES_SERVICE_HOST")?, text("KUBERNETES_SERVICE_PORT")?);
    Some(read(&host, &port, directory.as_ref()))
}

fn read(host: &str, port: &str, directory: &Path) -> Result<ClusterConfig, ConfigError> {
    let host = if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host.to_owned() };
    let server = parse_server(&format!("https://{host}:{port}"));
    let server = server.map_err(|fault| ConfigError::new(ORIGIN, format!("the server {fault}")))?;
    let token = directory.join("token");
    let authority = directory.join("ca.crt");
    read_file(&token, ORIGIN, "the service account")?;
    read_file(&authority, ORIGIN, "the service account")?;
    // A pod may lack this file.
    let namespace = std::fs::read_to_string(directory.join("namespace")).unwrap_or_default();
    let namespace = Some(namespace.trim()).filter(|namespace| !namespace.is_empty()).unwrap_or("default");
    Ok(ClusterConfig::of(ConfigParts {
        origin: ORIGIN.to_owned(),
        server,
        namespace: namespace.to_owned(),
        authority: Some(FileOrInline::File(authority)),
        credentials: Credentials::TokenFile { path: token, first: None },
        ..ConfigParts::default()
    }))
}
