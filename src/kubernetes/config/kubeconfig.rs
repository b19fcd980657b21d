//! Kubeconfig files: reading, merging, and the settings of one context.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::cluster::{ClusterConfig, ConfigParts, parse_server};
use super::error::{ConfigError, FileOrInline, read_file};
use super::exec::{ExecPlugin, ExecSettings};
use super::identity::{ClientCertificate, Credentials, Impersonation};
use super::proxy::ProxyUrl;
use super::secret::Secret;

/// One or several kubeconfig files, merged.
///
/// If several files have a cluster, user or context of one name, the first file wins. The first `current-context` wins too. Paths
/// are relative to the folder of their file. These are the rules of `kubectl`.
///
/// # Examples
///
/// ```
/// use homeostat::kubernetes::Kubeconfig;
///
/// let text = "
/// current-context: dev
/// contexts: [{name: dev, context: {cluster: local, user: me, namespace: apps}}]
/// clusters: [{name: local, cluster: {server: 'https://127.0.0.1:6443'}}]
/// users: [{name: me, user: {token: secret}}]
/// ";
/// let config = Kubeconfig::parse(text, "/etc/app")?.config()?;
/// assert_eq!((config.server(), config.namespace()), ("https://127.0.0.1:6443", "apps"));
/// # Ok::<_, homeostat::kubernetes::ConfigError>(())
/// ```
#[derive(Clone, Default)]
pub struct Kubeconfig {
    /// The files, for errors.
    origin: String,
    current: Option<String>,
    contexts: BTreeMap<String, KubeconfigContext>,
    clusters: BTreeMap<String, Located<Cluster>>,
    users: BTreeMap<String, Located<User>>,
}

/// An entry and the place that it comes from.
#[derive(Clone)]
struct Located<T> {
    origin: String,
    directory: PathBuf,
    entry: T,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct KubeconfigFile {
    #[serde(default)]
    current_context: Option<String>,
    #[serde(default)]
    contexts: Option<Vec<NamedContext>>,
    #[serde(default)]
    clusters: Option<Vec<NamedCluster>>,
    #[serde(default)]
    users: Option<Vec<NamedUser>>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Option<KubeconfigContext>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Option<Cluster>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: Option<User>,
}

#[derive(Clone, Default, Deserialize)]
struct KubeconfigContext {
    #[serde(default)]
    cluster: String,
    #[serde(default)]
    user: String,
    #[serde(default)]
    namespace: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: String,
    tls_server_name: Option<String>,
    insecure_skip_tls_verify: bool,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    proxy_url: Option<String>,
    extensions: Option<Vec<NamedExtension>>,
}

/// Settings for another program.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct NamedExtension {
    name: String,
    extension: Option<Secret<serde_json::Value>>,
}

/// The name of the extension for credential plugins.
const PLUGIN_EXTENSION: &str = "client.authentication.k8s.io/exec";

#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<Secret<String>>,
    token: Option<Secret<String>>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    username: Option<String>,
    password: Option<Secret<String>>,
    #[serde(rename = "as")]
    acts_as: Option<String>,
    as_uid: Option<String>,
    as_groups: Option<Vec<String>>,
    as_user_extra: Option<BTreeMap<String, Vec<String>>>,
    auth_provider: Option<AuthProvider>,
    exec: Option<ExecSettings>,
}

/// A way of authentication that Kubernetes removed in 1.26.
#[derive(Clone, Default, Deserialize)]
struct AuthProvider {
    #[serde(default)]
    name: String,
}

impl Kubeconfig {
    /// Reads the files in the variable `KUBECONFIG`, or else `~/.kube/config`. Leaves out files that do not exist; if none exists,
    /// returns a kubeconfig without contexts.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or is not a kubeconfig.
    pub fn load() -> Result<Self, ConfigError> {
        let listed = env::var_os("KUBECONFIG").filter(|list| !list.is_empty());
        let home = || env::home_dir().map(|home| home.join(".kube").join("config"));
        Self::read_existing(&listed.map_or_else(|| home().into_iter().collect(), |list| split(&list)))
    }

    /// Reads one file.
    ///
    /// # Errors
    ///
    /// If the file does not exist, cannot be read or is not a kubeconfig.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::default().merged_with(path.as_ref())
    }

    /// Reads several files. The first ones have priority.
    ///
    /// # Errors
    ///
    /// If a file does not exist, cannot be read or is not a kubeconfig.
    pub fn read_all<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, ConfigError> {
        paths.into_iter().try_fold(Self::default(), |merged, path| merged.merged_with(path.as_ref()))
    }

    /// Reads the text of a kubeconfig. Relative paths in it are relative to `directory`.
    ///
    /// # Errors
    ///
    /// If the text is not a kubeconfig.
    pub fn parse(text: &str, directory: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::default().merged("kubeconfig", text, directory.as_ref())
    }

    pub(crate) fn read_existing(paths: &[PathBuf]) -> Result<Self, ConfigError> {
        Self::read_all(paths.iter().filter(|path| !matches!(path.try_exists(), Ok(false))))
    }

    fn merged_with(self, path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::of_file(path, "the kubeconfig cannot be read").caused_by(error))?;
        self.merged(&path.display().to_string(), &text, path.parent().unwrap_or(Path::new("")))
    }

    fn merged(mut self, origin: &str, text: &str, directory: &Path) -> Result<Self, ConfigError> {
        // A snippet could show a secret.
        let options = serde_saphyr::options! { with_snippet: false };
        let file: Option<KubeconfigFile> = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| ConfigError::new(origin, "is not a kubeconfig").caused_by(error.to_string()))?;
        self.origin = if self.origin.is_empty() { origin.to_owned() } else { format!("{}, {origin}", self.origin) };
        let Some(file) = file else { return Ok(self) };
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        self.current = self.current.or(file.current_context.filter(|name| !name.is_empty()));
        for NamedContext { name, context } in file.contexts.into_iter().flatten() {
            self.contexts.entry(name).or_insert_with(|| context.unwrap_or_default());
        }
        let (origin, directory) = (origin.to_owned(), &directory);
        for NamedCluster { name, cluster } in file.clusters.into_iter().flatten() {
            let entry = cluster.unwrap_or_default();
            let located = || Located { origin: origin.clone(), directory: directory.clone(), entry };
            self.clusters.entry(name).or_insert_with(located);
        }
        for NamedUser { name, user } in file.users.into_iter().flatten() {
            let entry = user.unwrap_or_default();
            let located = || Located { origin: origin.clone(), directory: directory.clone(), entry };
            self.users.entry(name).or_insert_with(located);
        }
        Ok(self)
    }

    /// Returns whether there are no contexts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    /// Returns the names of the contexts, in their order.
    pub fn contexts(&self) -> impl Iterator<Item = &str> {
        self.contexts.keys().map(String::as_str)
    }

    /// Returns the name of the current context; `None` if it is not set.
    #[must_use]
    pub fn current_context(&self) -> Option<&str> {
        self.current.as_deref()
    }

    /// Returns the settings of the current context.
    ///
    /// # Errors
    ///
    /// If no context is current, or for the reasons of [`config_of`](Self::config_of).
    pub fn config(&self) -> Result<ClusterConfig, ConfigError> {
        let Some(current) = &self.current else {
            let fault = format!("current-context is not set; name one of the contexts: {}", names(&self.contexts));
            return Err(ConfigError::new(&self.origin, fault));
        };
        self.config_of(current)
    }

    /// Returns the settings of a context.
    ///
    /// # Errors
    ///
    /// If the context, its cluster or its user does not exist, if a setting is invalid, or if a file that it names cannot be read.
    pub fn config_of(&self, context: &str) -> Result<ClusterConfig, ConfigError> {
        let origin = || self.origin.clone();
        let found = self.contexts.get(context).ok_or_else(|| {
            let known = names(&self.contexts);
            ConfigError::new(origin(), format!("there is no context {context:?}; the contexts are: {known}"))
        })?;
        let cluster = self.clusters.get(&found.cluster).ok_or_else(|| {
            let (missing, known) = (&found.cluster, names(&self.clusters));
            let fault = format!("context {context:?} names the cluster {missing:?}; the clusters are: {known}");
            ConfigError::new(origin(), fault)
        })?;
        let user = match found.user.as_str() {
            "" => None,
            name => Some(self.users.get(name).ok_or_else(|| {
                let known = names(&self.users);
                ConfigError::new(
                    origin(),
                    format!("context {context:?} names the user {name:?}; the users are: {known}"),
                )
            })?),
        };
        let mut parts = cluster.connection(&found.cluster)?;
        if let Some(user) = user {
            user.add_identity(&found.user, &mut parts)?;
        }
        let namespace = found.namespace.clone().filter(|namespace| !namespace.is_empty());
        parts.namespace = namespace.unwrap_or_else(|| "default".to_owned());
        Ok(ClusterConfig::of(parts))
    }
}

/// Splits the value of `KUBECONFIG`, as the system separates paths.
fn split(list: &OsStr) -> Vec<PathBuf> {
    env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// Lists the names of some entries.
fn names<T>(entries: &BTreeMap<String, T>) -> String {
    if entries.is_empty() { "(none)".to_owned() } else { entries.keys().cloned().collect::<Vec<_>>().join(", ") }
}

impl<T> Located<T> {
    fn error(&self, fault: impl Into<String>) -> ConfigError {
        ConfigError::new(&self.origin, fault)
    }

    /// Returns the content of a field that has the data itself or names a file. The data have priority.
    fn source<U>(
        &self,
        field: &str,
        data: Option<&str>,
        file: Option<&PathBuf>,
        wrap: impl Fn(Vec<u8>) -> U,
    ) -> Result<Option<FileOrInline<U>>, ConfigError> {
        if let Some(data) = data.filter(|data| !data.is_empty()) {
            let text: String = data.split_ascii_whitespace().collect();
            let decoded = STANDARD.decode(text);
            let decoded = decoded
                .map_err(|error| self.error(format!("{field}-data is not base64")).caused_by(error.to_string()))?;
            return Ok(Some(FileOrInline::Inline(wrap(decoded))));
        }
        let Some(path) = file.filter(|path| !path.as_os_str().is_empty()) else { return Ok(None) };
        let path = self.directory.join(path);
        // Read now, so that a wrong path is an error at once.
        read_file(&path, &self.origin, field)?;
        Ok(Some(FileOrInline::File(path)))
    }
}

impl Located<Cluster> {
    fn connection(&self, name: &str) -> Result<ConfigParts, ConfigError> {
        let cluster = &self.entry;
        let server = parse_server(&cluster.server)
            .map_err(|fault| self.error(format!("the server of the cluster {name:?} {fault}")))?;
        let field = format!("cluster {name:?}: certificate-authority");
        let data = cluster.certificate_authority_data.as_deref();
        let authority = self.source(&field, data, cluster.certificate_authority.as_ref(), |pem| pem)?;
        if cluster.insecure_skip_tls_verify && authority.is_some() {
            let fault = "sets both a certificate authority and insecure-skip-tls-verify; remove one of them";
            return Err(self.error(format!("cluster {name:?} {fault}")));
        }
        let mut extensions = cluster.extensions.iter().flatten();
        let for_plugin = extensions.find(|extension| extension.name == PLUGIN_EXTENSION);
        Ok(ConfigParts {
            origin: self.origin.clone(),
            server,
            plugin_settings: for_plugin.and_then(|found| found.extension.clone()),
            authority,
            insecure: cluster.insecure_skip_tls_verify,
            tls_server_name: cluster.tls_server_name.clone().filter(|name| !name.is_empty()),
            proxy: cluster.proxy_url.clone().filter(|url| !url.is_empty()).map(ProxyUrl::new),
            ..ConfigParts::default()
        })
    }
}

impl Located<User> {
    fn add_identity(&self, name: &str, parts: &mut ConfigParts) -> Result<(), ConfigError> {
        let user = &self.entry;
        parts.certificate = self.certificate(name)?;
        parts.credentials = self.credentials(name)?;
        let acts_as = Impersonation {
            user: user.acts_as.clone().unwrap_or_default(),
            uid: user.as_uid.clone(),
            groups: user.as_groups.clone().unwrap_or_default(),
            extra: user.as_user_extra.clone().unwrap_or_default(),
        };
        if acts_as.user.is_empty() && acts_as != Impersonation::default() {
            return Err(self.error(format!("user {name:?} sets as-uid, as-groups or as-user-extra without as")));
        }
        parts.acts_as = Some(acts_as).filter(|acts_as| !acts_as.user.is_empty());
        Ok(())
    }

    fn certificate(&self, name: &str) -> Result<Option<ClientCertificate>, ConfigError> {
        let user = &self.entry;
        let field = |field: &str| format!("user {name:?}: {field}");
        let data = user.client_certificate_data.as_deref();
        let certificate =
            self.source(&field("client-certificate"), data, user.client_certificate.as_ref(), |pem| pem)?;
        let data = user.client_key_data.as_ref().map(|data| data.reveal().as_str());
        let key = self.source(&field("client-key"), data, user.client_key.as_ref(), Secret::new)?;
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some(ClientCertificate { certificate, key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(self.error(format!("user {name:?} has a client certificate without a client key"))),
            (None, Some(_)) => Err(self.error(format!("user {name:?} has a client key without a client certificate"))),
        }
    }

    fn credentials(&self, name: &str) -> Result<Credentials, ConfigError> {
        let user = &self.entry;
        if let Some(provider) = &user.auth_provider {
            let provider = &provider.name;
            return Err(self.error(format!(
                "user {name:?} uses the auth-provider {provider:?}, which Kubernetes has removed; use an exec plugin"
            )));
        }
        let token = user.token.clone().filter(|token| !token.reveal().is_empty());
        let file = user.token_file.as_ref().filter(|path| !path.as_os_str().is_empty());
        Ok(match (&user.exec, file, token, &user.username) {
            (Some(exec), ..) => {
                let plugin = ExecPlugin::new(exec.clone(), &self.directory);
                Credentials::Exec(plugin.map_err(|fault| self.error(format!("user {name:?}: exec: {fault}")))?)
            }
            (None, Some(path), first, _) => {
                let path = self.directory.join(path);
                if first.is_none() {
                    read_file(&path, &self.origin, &format!("user {name:?}: tokenFile"))?;
                }
                Credentials::TokenFile { path, first }
            }
            (None, None, Some(token), _) => Credentials::Token(token),
            (None, None, None, Some(user_name)) if !user_name.is_empty() => Credentials::Password {
                user: user_name.clone(),
                password: user.password.clone().unwrap_or_else(|| Secret::new(String::new())),
            },
            _ => Credentials::None,
        })
    }
}

impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubeconfig")
            .field("origin", &self.origin)
            .field("current_context", &self.current)
            .field("contexts", &self.contexts.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
