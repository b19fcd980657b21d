//! The settings of a connection to an API server.

use std::ffi::OsString;
use std::fmt;

use http::Uri;
use http::uri::Authority;

use super::error::{ConfigError, FileOrInline};
use super::identity::{ClientCertificate, Credentials, Impersonation};
use super::proxy::{NoProxy, ProxyUrl};
use super::secret::Secret;

/// The settings of a connection to a Kubernetes API server: address, certificate authority and the client's identity.
///
/// Its `Debug` output shows no secrets.
///
/// # Examples
///
/// ```
/// use homeostat_kubernetes::{ClusterConfig, Impersonation};
///
/// let config = ClusterConfig::new("https://10.0.0.1:6443")?.token("secret").default_namespace("apps");
/// let config = config.impersonate(Impersonation::new("auditor"));
/// assert_eq!(config.namespace(), "apps");
/// assert!(!format!("{config:?}").contains("secret\""));
/// # Ok::<_, homeostat_kubernetes::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClusterConfig(ConfigParts);

#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigParts {
    /// The file or other source of the settings, for errors.
    pub(crate) origin: String,
    pub(crate) server: String,
    pub(crate) namespace: String,
    /// The trusted certificate authorities in PEM. `None` means the system's authorities.
    pub(crate) authority: Option<FileOrInline<Vec<u8>>>,
    /// Whether to accept any server certificate.
    pub(crate) insecure: bool,
    pub(crate) tls_server_name: Option<String>,
    /// The proxy's URL. `None` means the environment variables.
    pub(crate) proxy: Option<ProxyUrl>,
    pub(crate) certificate: Option<ClientCertificate>,
    pub(crate) credentials: Credentials,
    /// Whether to send the credentials to a server without TLS.
    pub(crate) plain_credentials: bool,
    pub(crate) acts_as: Option<Impersonation>,
    /// The cluster's settings for a credential plugin.
    pub(crate) plugin_settings: Option<Secret<serde_json::Value>>,
}

impl ClusterConfig {
    /// Creates settings for a server, such as `https://10.0.0.1:6443`, without credentials.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is not a URL with a host and the scheme `http` or `https`.
    pub fn new(server: &str) -> Result<Self, ConfigError> {
        let server = parse_server(server).map_err(|fault| ConfigError::new("server", fault))?;
        let (origin, namespace) = (format!("settings for {server}"), "default".to_owned());
        Ok(Self(ConfigParts { origin, server, namespace, ..ConfigParts::default() }))
    }

    pub(crate) fn of(parts: ConfigParts) -> Self {
        Self(parts)
    }

    /// Returns the server's address without a final slash.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.0.server
    }

    /// Returns the namespace to use when a program names none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// Sets the namespace to use when a program names none. Default: the namespace of the context or the pod, or else
    /// `default`.
    #[must_use]
    pub fn default_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.0.namespace = namespace.into();
        self
    }

    /// Sends this token with each request instead of a password or a plugin's credentials. A client certificate stays.
    ///
    /// A server without TLS receives the token only after
    /// [`send_credentials_without_tls`](Self::send_credentials_without_tls).
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.0.credentials = Credentials::Token(Secret::new(token.into()));
        self
    }

    /// Trusts only these certificate authorities, in PEM. Default: those that the system trusts.
    ///
    /// A server's own certificate in this list is trusted too, with or without `CA:TRUE`, which `openssl req -x509`
    /// sets. Its names and its validity period are still checked. Names count only in the subjectAltName.
    ///
    /// Servers and authorities need RSA keys of 2048 bits or more, EC keys on the curve P-256 or P-384, or Ed25519
    /// keys.
    #[must_use]
    pub fn certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.0.authority = Some(FileOrInline::Inline(pem.into()));
        self.0.insecure = false;
        self
    }

    /// Presents this certificate, in PEM, to the server. A credential plugin does not run then.
    ///
    /// The certificate may be X.509 version 1 or 3. The key must not be encrypted. The key is RSA with 2048 to 4096
    /// bits, EC on the curve P-256 or P-384, or Ed25519. `kubectl` also accepts RSA keys of 1024 bits and the curve
    /// P-521, for which this client's TLS library cannot sign.
    #[must_use]
    pub fn client_certificate(mut self, pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Self {
        if matches!(self.0.credentials, Credentials::Exec(_)) {
            self.0.credentials = Credentials::None;
        }
        let (certificate, key) = (FileOrInline::Inline(pem.into()), FileOrInline::Inline(Secret::new(key_pem.into())));
        self.0.certificate = Some(ClientCertificate { certificate, key });
        self
    }

    /// Expects this name in the server's certificate instead of the host in its address.
    #[must_use]
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.0.tls_server_name = Some(name.into());
        self
    }

    /// Accepts any certificate from any server. Anyone on the network can then read and change everything, so use this
    /// only in tests.
    #[must_use]
    pub fn insecure_skip_tls_verify(mut self) -> Self {
        self.0.insecure = true;
        self.0.authority = None;
        self
    }

    /// Connects through this proxy, such as `http://proxy:3128`. The scheme must be `http` or `https`. SOCKS proxies,
    /// which `kubectl` also supports, are an error when the client is built.
    ///
    /// Default: the `proxy-url` of the kubeconfig, or else the variables `HTTPS_PROXY` (for a server without TLS:
    /// `HTTP_PROXY`) and `NO_PROXY`.
    #[must_use]
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.0.proxy = Some(ProxyUrl::new("proxy", url));
        self
    }

    /// Sends the credentials even to a server without TLS (`http`), where everyone on the network path can read them.
    ///
    /// By default, such a server receives no token and no password, and no credential plugin runs. A warning says so
    /// when the client is built. `kubectl` does the same.
    #[must_use]
    pub fn send_credentials_without_tls(mut self) -> Self {
        self.0.plain_credentials = true;
        self
    }

    /// Acts as another user (impersonation).
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

    /// Returns the proxy to use, according to the settings and the environment variables.
    pub(crate) fn chosen_proxy(&self, var: &impl Fn(&str) -> Option<OsString>) -> Option<ProxyUrl> {
        if let Some(proxy) = &self.0.proxy {
            return Some(proxy.clone());
        }
        // The value and name of the first variable that is not empty.
        let either = |name: &str| {
            let set = |name: String| {
                let value = var(&name)?.into_string().ok().filter(|value| !value.is_empty());
                Some((name, value?))
            };
            [name.to_owned(), name.to_ascii_lowercase()].into_iter().find_map(set)
        };
        let uri: Uri = self.0.server.parse().ok()?;
        let is_tls = uri.scheme_str() == Some("https");
        let (name, proxy) = either(if is_tls { "HTTPS_PROXY" } else { "HTTP_PROXY" })?;
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let direct =
            NoProxy::parse(&either("NO_PROXY").map_or_else(String::new, |(_, list)| list)).contains(uri.host()?, port);
        // Without a scheme, the value is a host and a port.
        let url = if proxy.contains("://") { proxy } else { format!("http://{proxy}") };
        (!direct).then(|| ProxyUrl::new(format!("variable {name}"), url))
    }
}

impl ConfigParts {
    /// Returns the credentials to send. Warns if it omits them because the server has no TLS.
    pub(crate) fn sent_credentials(&self) -> Credentials {
        let has_tls = self.server.parse().is_ok_and(|uri: Uri| uri.scheme_str() == Some("https"));
        if has_tls || self.plain_credentials || self.credentials == Credentials::None {
            return self.credentials.clone();
        }
        let server = &self.server;
        log::warn!(server:%; "sending no credentials to {server}, because it has no TLS; use an address with https, or call \
                              send_credentials_without_tls");
        Credentials::None
    }
}

/// Checks a server address. Returns it without a final slash, or its fault.
pub(crate) fn parse_server(server: &str) -> Result<String, String> {
    let server = server.trim().trim_end_matches('/');
    // The text before an `@` may be a password.
    let shown = server.rsplit_once('@').map_or_else(|| server.to_owned(), |(_, host)| format!("…@{host}"));
    let fault = |fault: &str| format!("is {shown:?}, but must be {fault}");
    // Without a scheme, `kubectl` uses TLS.
    let url = if server.contains("://") || server.is_empty() { server.to_owned() } else { format!("https://{server}") };
    let uri: Uri = url.parse().map_err(|_| fault("a URL such as https://10.0.0.1:6443"))?;
    let authority = uri.authority().filter(|authority| !authority.host().is_empty());
    let Some(authority) = authority.filter(|_| matches!(uri.scheme_str(), Some("http" | "https"))) else {
        return Err(fault("a URL such as https://10.0.0.1:6443"));
    };
    if authority.as_str().contains('@') || uri.query().is_some() {
        let host = authority.host();
        return Err(format!("must have neither a user nor a query, but is a URL of the host {host:?}"));
    }
    if url.contains('#') {
        return Err(fault("a URL without a fragment (#…)"));
    }
    port_of(authority).map_err(|()| fault("a URL with a port from 1 to 65535"))?;
    Ok(url)
}

/// Returns the port of an address, or `None` if it has no port.
///
/// Fails for an impossible port, for which [`Uri::port`] returns `None`. A request to the default port instead could
/// reveal a token to a stranger.
pub(crate) fn port_of(authority: &Authority) -> Result<Option<u16>, ()> {
    let place = authority.as_str();
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    let port = match place.rsplit_once(']') {
        Some((_, port)) => port,
        None => place.find(':').map_or("", |at| &place[at..]),
    };
    if port.is_empty() {
        return Ok(None);
    }
    let digits = port.strip_prefix(':').filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).filter(|port| *port > 0).map(Some).ok_or(())
}

/// Shows the address.
impl fmt::Display for ClusterConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.server)
    }
}
