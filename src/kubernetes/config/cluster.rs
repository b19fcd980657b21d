//! The settings of a connection to an API server.

use std::ffi::OsString;
use std::fmt;

use http::Uri;

use super::error::{ConfigError, FileOrInline};
use super::identity::{ClientCertificate, Credentials, Impersonation};
use super::proxy::{NoProxy, ProxyUrl};
use super::secret::Secret;

/// The settings of a connection to a Kubernetes API server: its address, its certificate authority, and the client's identity.
///
/// `Debug` shows no secret.
///
/// # Examples
///
/// ```
/// use homeostat::kubernetes::{ClusterConfig, Impersonation};
///
/// let config = ClusterConfig::new("https://10.0.0.1:6443")?.token("secret").default_namespace("apps");
/// let config = config.impersonate(Impersonation::new("auditor"));
/// assert_eq!(config.namespace(), "apps");
/// assert!(!format!("{config:?}").contains("secret\""));
/// # Ok::<_, homeostat::kubernetes::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClusterConfig(ConfigParts);

#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigParts {
    /// The file or the place of the settings, for errors.
    pub(crate) origin: String,
    pub(crate) server: String,
    pub(crate) namespace: String,
    /// The trusted certificate authorities, in PEM; `None` for the authorities that the system trusts.
    pub(crate) authority: Option<FileOrInline<Vec<u8>>>,
    /// Whether to trust any server.
    pub(crate) insecure: bool,
    pub(crate) tls_server_name: Option<String>,
    /// The URL of the proxy; `None` for the variables of the environment.
    pub(crate) proxy: Option<ProxyUrl>,
    pub(crate) certificate: Option<ClientCertificate>,
    pub(crate) credentials: Credentials,
    pub(crate) acts_as: Option<Impersonation>,
    /// The settings of the cluster for a credential plugin.
    pub(crate) plugin_settings: Option<Secret<serde_json::Value>>,
}

impl ClusterConfig {
    /// Returns settings for a server, such as `https://10.0.0.1:6443`, without credentials.
    ///
    /// # Errors
    ///
    /// If the address is not a URL with `http` or `https` and a host.
    pub fn new(server: &str) -> Result<Self, ConfigError> {
        let server = parse_server(server).map_err(|fault| ConfigError::new("server", fault))?;
        Ok(Self(ConfigParts { server, namespace: "default".to_owned(), ..ConfigParts::default() }))
    }

    pub(crate) fn of(parts: ConfigParts) -> Self {
        Self(parts)
    }

    /// Returns the address of the server, without a slash at the end.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.0.server
    }

    /// Returns the namespace to use where a program names none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// Sets the namespace to use where a program names none. Default: the namespace of the context or of the pod, else `default`.
    #[must_use]
    pub fn default_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.0.namespace = namespace.into();
        self
    }

    /// Sends this token with each request, in place of other credentials.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.0.credentials = Credentials::Token(Secret::new(token.into()));
        self
    }

    /// Trusts only these certificate authorities, in PEM. Default: the authorities that the system trusts.
    #[must_use]
    pub fn certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.0.authority = Some(FileOrInline::Inline(pem.into()));
        self.0.insecure = false;
        self
    }

    /// Shows the server this certificate, in PEM.
    #[must_use]
    pub fn client_certificate(mut self, pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Self {
        let (certificate, key) = (FileOrInline::Inline(pem.into()), FileOrInline::Inline(Secret::new(key_pem.into())));
        self.0.certificate = Some(ClientCertificate { certificate, key });
        self
    }

    /// Expects this name in the server's certificate, in place of the host of its address.
    #[must_use]
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.0.tls_server_name = Some(name.into());
        self
    }

    /// Trusts any server, so that anyone on the network can read and change everything. Only for tests.
    #[must_use]
    pub fn insecure_skip_tls_verify(mut self) -> Self {
        self.0.insecure = true;
        self.0.authority = None;
        self
    }

    /// Uses this proxy, such as `http://proxy:3128`.
    ///
    /// Default: the `proxy-url` of the kubeconfig. Without one, the variables `HTTPS_PROXY` (for a server without TLS `HTTP_PROXY`)
    /// and `NO_PROXY`.
    #[must_use]
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.0.proxy = Some(ProxyUrl::new(url));
        self
    }

    /// Acts as another user.
    #[must_use]
    pub fn impersonate(mut self, acts_as: Impersonation) -> Self {
        self.0.acts_as = Some(acts_as);
        self
    }

    pub(crate) fn parts(&self) -> &ConfigParts {
        &self.0
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn credentials(&self) -> &Credentials {
        &self.0.credentials
    }

    /// Returns the proxy to use, by the settings and these variables of the environment.
    pub(crate) fn chosen_proxy(&self, var: &impl Fn(&str) -> Option<OsString>) -> Option<String> {
        if let Some(proxy) = &self.0.proxy {
            return Some(proxy.reveal().to_owned());
        }
        // The first of the two that is not empty.
        let either = |name: &str| {
            let set = |name: String| var(&name)?.into_string().ok().filter(|value| !value.is_empty());
            [name.to_owned(), name.to_ascii_lowercase()].into_iter().find_map(set)
        };
        let uri: Uri = self.0.server.parse().ok()?;
        let is_tls = uri.scheme_str() == Some("https");
        let proxy = either(if is_tls { "HTTPS_PROXY" } else { "HTTP_PROXY" })?;
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let direct = NoProxy::parse(&either("NO_PROXY").unwrap_or_default()).contains(uri.host()?, port);
        // Without a scheme it is a host and a port.
        (!direct).then(|| if proxy.contains("://") { proxy } else { format!("http://{proxy}") })
    }
}

/// Checks the address of a server. Returns it without a slash at the end, or its fault.
pub(crate) fn parse_server(server: &str) -> Result<String, String> {
    let server = server.trim().trim_end_matches('/');
    let fault = |fault: &str| format!("is {server:?}, but must be {fault}");
    // Without a scheme `kubectl` uses TLS.
    let url = if server.contains("://") || server.is_empty() { server.to_owned() } else { format!("https://{server}") };
    let uri: Uri = url.parse().map_err(|_| fault("a URL such as https://10.0.0.1:6443"))?;
    let known_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if !known_scheme || uri.host().is_none_or(str::is_empty) {
        return Err(fault("a URL such as https://10.0.0.1:6443"));
    }
    if has_user || uri.query().is_some() {
        return Err(format!(
            "must have neither a user nor a query, but is a URL of the host {:?}",
            uri.host().unwrap_or("")
        ));
    }
    Ok(url)
}

/// Shows the address.
impl fmt::Display for ClusterConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.server)
    }
}
