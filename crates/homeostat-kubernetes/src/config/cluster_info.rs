//! The server's description for credential plugins.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::cluster::ConfigParts;
use super::error::{ConfigError, FileOrInline};
use super::proxy::ProxyUrl;
use super::secret::Secret;

/// The connection settings that a plugin receives as `spec.cluster`, if it sets `provideClusterInfo`.
#[derive(Clone, Debug)]
pub(crate) struct ClusterInfo {
    /// The file or other source of the settings, for errors.
    origin: String,
    server: String,
    authority: Option<FileOrInline<Vec<u8>>>,
    insecure: bool,
    tls_server_name: Option<String>,
    proxy: Option<ProxyUrl>,
    plugin_settings: Option<Secret<Value>>,
}

impl ClusterInfo {
    pub(crate) fn of(parts: &ConfigParts) -> Self {
        let ConfigParts { origin, server, authority, insecure, tls_server_name, proxy, plugin_settings, .. } =
            parts.clone();
        Self { origin, server, authority, insecure, tls_server_name, proxy, plugin_settings }
    }

    /// Returns the settings in the protocol's form. Reads the certificate authority's file, because it may have been
    /// replaced.
    pub(crate) fn to_json(&self) -> Result<Value, ConfigError> {
        let mut info = json!({"server": self.server});
        if let Some(authority) = &self.authority {
            let pem = authority.read(&self.origin, "the certificate authority", |pem| pem)?;
            info["certificate-authority-data"] = STANDARD.encode(pem).into();
        }
        if self.insecure {
            info["insecure-skip-tls-verify"] = true.into();
        }
        if let Some(name) = &self.tls_server_name {
            info["tls-server-name"] = name.as_str().into();
        }
        if let Some(proxy) = &self.proxy {
            info["proxy-url"] = proxy.reveal().into();
        }
        if let Some(settings) = &self.plugin_settings {
            info["config"] = settings.reveal().clone();
        }
        Ok(info)
    }
}
