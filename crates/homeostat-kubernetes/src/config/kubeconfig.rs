//! Kubeconfig files: reading, merging, and the settings of one context.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::cluster::{ClusterConfig, ConfigParts, parse_server};
use super::error::{ConfigError, FileOrInline, read_file};
use super::exec::ExecPlugin;
use super::field::FieldList;
use super::format::{self, Cluster, KubeconfigContext, KubeconfigFile, User};
use super::identity::{ClientCertificate, Credentials, Impersonation};
use super::proxy::ProxyUrl;
use super::secret::Secret;

/// One or more kubeconfig files, merged.
///
/// If several files have a cluster, user or context with the same name, the first file wins. The first
/// `current-context` also wins. Relative paths start at the folder of their file.
///
/// Within a file, null is the same as a missing field. If a field occurs twice, the last one counts. If a file has
/// several YAML documents, the first one counts. Two clusters, users or contexts with the same name in one file are an
/// error. Entries without a name are ignored. These are the rules of `kubectl`.
///
/// If a user has a token, password or client certificate, its `exec` plugin does not run.
///
/// These settings of `kubectl` are errors if the selected context has them:
///
/// - a `proxy-url` with `socks5`: use an `http` or `https` proxy, see [`ClusterConfig::proxy`];
/// - the `auth-provider` `oidc`: use an `exec` plugin;
/// - an `exec` plugin with `interactiveMode: Always`;
/// - client keys on the curve P-521 and RSA keys of fewer than 2048 bits, see [`ClusterConfig::client_certificate`].
///
/// # Examples
///
/// ```
/// use homeostat_kubernetes::Kubeconfig;
///
/// let text = "
/// current-context: dev
/// contexts: [{name: dev, context: {cluster: local, user: me, namespace: apps}}]
/// clusters: [{name: local, cluster: {server: 'https://127.0.0.1:6443'}}]
/// users: [{name: me, user: {token: secret}}]
/// ";
/// let config = Kubeconfig::parse(text, "/etc/app")?.config()?;
/// assert_eq!((config.server(), config.namespace()), ("https://127.0.0.1:6443", "apps"));
/// # Ok::<_, homeostat_kubernetes::ConfigError>(())
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

/// An entry and the file that it comes from.
#[derive(Clone)]
struct Located<T> {
    origin: String,
    directory: PathBuf,
    entry: T,
}

/// The name of the extension with settings for credential plugins.
const PLUGIN_EXTENSION: &str = "client.authentication.k8s.io/exec";

impl Kubeconfig {
    /// Reads the files in the variable `KUBECONFIG`, or else `~/.kube/config`. Skips files that do not exist. If none
    /// exists, returns a kubeconfig without contexts.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or is not a kubeconfig.
    pub fn load() -> Result<Self, ConfigError> {
        let listed = env::var_os("KUBECONFIG").filter(|list| !list.is_empty());
        let home = || env::home_dir().map(|home| home.join(".kube").join("config"));
        Self::read_existing(&listed.map_or_else(|| home().into_iter().collect(), |list| split(&list)))
    }

    /// Reads one file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file does not exist, cannot be read or is not a kubeconfig.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::default().merged_with(path.as_ref())
    }

    /// Reads several files. Earlier files have priority.
    ///
    /// # Errors
    ///
    /// Returns an error if a file does not exist, cannot be read or is not a kubeconfig.
    pub fn read_all<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, ConfigError> {
        paths.into_iter().try_fold(Self::default(), |merged, path| merged.merged_with(path.as_ref()))
    }

    /// Parses the text of a kubeconfig. Relative paths in it start at `directory`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a kubeconfig.
    pub fn parse(text: &str, directory: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::default().merged("kubeconfig", text.as_bytes(), directory.as_ref())
    }

    pub(crate) fn read_existing(paths: &[PathBuf]) -> Result<Self, ConfigError> {
        Self::read_all(paths.iter().filter(|path| !matches!(path.try_exists(), Ok(false))))
    }

    fn merged_with(self, path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read(path)
            .map_err(|error| ConfigError::of_file(path, "the kubeconfig cannot be read").caused_by(error))?;
        self.merged(&path.display().to_string(), &text, path.parent().unwrap_or(Path::new("")))
    }

    fn merged(mut self, origin: &str, text: &[u8], directory: &Path) -> Result<Self, ConfigError> {
        let fault = |fault: String| ConfigError::new(origin, "is not a kubeconfig").caused_by(fault);
        let KubeconfigFile { current_context, contexts, clusters, users } = format::read(text).map_err(fault)?;
        self.origin = if self.origin.is_empty() { origin.to_owned() } else { format!("{}, {origin}", self.origin) };
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        self.current = self.current.or(Some(current_context.0).filter(|name| !name.is_empty()));
        let contexts = named("contexts", contexts, |entry| (entry.name.0, entry.context.0)).map_err(fault)?;
        let clusters = named("clusters", clusters, |entry| (entry.name.0, entry.cluster.0)).map_err(fault)?;
        let users = named("users", users, |entry| (entry.name.0, entry.user.0)).map_err(fault)?;
        for (name, context) in contexts {
            self.contexts.entry(name).or_insert(context);
        }
        for (name, entry) in clusters {
            let located = || Located { origin: origin.to_owned(), directory: directory.clone(), entry };
            self.clusters.entry(name).or_insert_with(located);
        }
        for (name, entry) in users {
            let located = || Located { origin: origin.to_owned(), directory: directory.clone(), entry };
            self.users.entry(name).or_insert_with(located);
        }
        Ok(self)
    }

    /// Returns whether there are no contexts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    /// Returns the names of the contexts in order.
    pub fn contexts(&self) -> impl Iterator<Item = &str> {
        self.contexts.keys().map(String::as_str)
    }

    /// Returns the name of the current context, or `None` if it is not set.
    #[must_use]
    pub fn current_context(&self) -> Option<&str> {
        self.current.as_deref()
    }

    /// Returns the settings of the current context.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no current context, and the errors of [`config_of`](Self::config_of).
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
    /// Returns an error if the context, its cluster or its user does not exist, a setting is invalid, or a file that
    /// it names cannot be read.
    pub fn config_of(&self, context: &str) -> Result<ClusterConfig, ConfigError> {
        let origin = || self.origin.clone();
        let found = self.contexts.get(context).ok_or_else(|| {
            let known = names(&self.contexts);
            ConfigError::new(origin(), format!("there is no context {context:?}; the contexts are: {known}"))
        })?;
        let cluster = self.clusters.get(&*found.cluster).ok_or_else(|| {
            let (missing, known) = (&*found.cluster, names(&self.clusters));
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
        let namespace = text(&found.namespace).unwrap_or("default").to_owned();
        Ok(ClusterConfig::of(ConfigParts { namespace, ..parts }))
    }
}

/// Splits the value of `KUBECONFIG` at the system's path separator.
fn split(list: &OsStr) -> Vec<PathBuf> {
    env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// Returns the entries of a list by name. Skips entries without a name, because no context can refer to them.
///
/// # Errors
///
/// Returns a fault if two entries have the same name, as `kubectl` does. Programs would disagree about which one
/// counts.
fn named<E, T>(
    list: &str,
    entries: FieldList<E>,
    split: impl Fn(E) -> (String, T),
) -> Result<BTreeMap<String, T>, String> {
    let mut named = BTreeMap::new();
    for entry in entries.0 {
        let (name, entry) = split(entry.0);
        if named.contains_key(&name) {
            return Err(format!("{list} has two entries with the name {name:?}: remove one of them"));
        }
        if !name.is_empty() {
            named.insert(name, entry);
        }
    }
    Ok(named)
}

/// Lists the names of some entries.
fn names<T>(entries: &BTreeMap<String, T>) -> String {
    if entries.is_empty() { "(none)".to_owned() } else { entries.keys().cloned().collect::<Vec<_>>().join(", ") }
}

/// Returns the text, or `None` if it is empty.
fn text(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

impl<T> Located<T> {
    fn error(&self, fault: impl Into<String>) -> ConfigError {
        ConfigError::new(&self.origin, fault)
    }

    /// Returns the content of a field pair, which has data or names a file. Data have priority.
    fn source<U>(
        &self,
        field: &str,
        data: &str,
        file: &Path,
        wrap: impl Fn(Vec<u8>) -> U,
    ) -> Result<Option<FileOrInline<U>>, ConfigError> {
        if !data.is_empty() {
            let text: String = data.split_ascii_whitespace().collect();
            let decoded = STANDARD.decode(text);
            let decoded = decoded
                .map_err(|error| self.error(format!("{field}-data is not base64")).caused_by(error.to_string()))?;
            return Ok(Some(FileOrInline::Inline(wrap(decoded))));
        }
        if file.as_os_str().is_empty() {
            return Ok(None);
        }
        let path = self.directory.join(file);
        // Read the file now, so that a wrong path is an error at once.
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
        let (data, file) = (&cluster.certificate_authority_data, &cluster.certificate_authority);
        let authority = self.source(&field, data, file, |pem| pem)?;
        let insecure = *cluster.insecure_skip_tls_verify;
        if insecure && authority.is_some() {
            let fault = "sets both a certificate authority and insecure-skip-tls-verify; remove one of them";
            return Err(self.error(format!("cluster {name:?} {fault}")));
        }
        let for_plugin = cluster.extensions.iter().find(|extension| *extension.name == PLUGIN_EXTENSION);
        let proxy = cluster.proxy_url.reveal();
        let proxy_origin = || format!("{}: proxy-url of the cluster {name:?}", self.origin);
        Ok(ConfigParts {
            origin: self.origin.clone(),
            server,
            plugin_settings: for_plugin.and_then(|found| found.extension.clone()),
            authority,
            insecure,
            tls_server_name: text(&cluster.tls_server_name).map(str::to_owned),
            proxy: text(proxy).map(|url| ProxyUrl::new(proxy_origin(), url)),
            ..ConfigParts::default()
        })
    }
}

impl Located<User> {
    fn add_identity(&self, name: &str, parts: &mut ConfigParts) -> Result<(), ConfigError> {
        let user = &self.entry;
        parts.certificate = self.certificate(name)?;
        parts.credentials = self.credentials(name, parts.certificate.is_some())?;
        let texts = |list: &FieldList<String>| list.iter().map(|text| text.0.clone()).collect();
        let acts_as = Impersonation {
            user: user.acts_as.0.clone(),
            uid: text(&user.as_uid).map(str::to_owned),
            groups: texts(&user.as_groups),
            extra: user.as_user_extra.iter().map(|(name, values)| (name.clone(), texts(values))).collect(),
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
        let (data, file) = (&user.client_certificate_data, &user.client_certificate);
        let certificate = self.source(&field("client-certificate"), data, file, |pem| pem)?;
        let (data, file) = (user.client_key_data.reveal(), &user.client_key);
        let key = self.source(&field("client-key"), data, file, Secret::new)?;
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some(ClientCertificate { certificate, key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(self.error(format!("user {name:?} has a client certificate without a client key"))),
            (None, Some(_)) => Err(self.error(format!("user {name:?} has a client key without a client certificate"))),
        }
    }

    /// Returns the credentials. As in client-go, a plugin does not run if there is a token, a password or a client
    /// certificate.
    fn credentials(&self, name: &str, has_certificate: bool) -> Result<Credentials, ConfigError> {
        let user = &self.entry;
        let token = Some(&user.token.0).filter(|token| !token.reveal().is_empty());
        if !user.token_file.as_os_str().is_empty() {
            let path = self.directory.join(&*user.token_file);
            if token.is_none() {
                read_file(&path, &self.origin, &format!("user {name:?}: tokenFile"))?;
            }
            return Ok(Credentials::TokenFile { path, first: token.cloned() });
        }
        if let Some(token) = token {
            return Ok(Credentials::Token(token.clone()));
        }
        if let Some(user_name) = text(&user.username) {
            return Ok(Credentials::Password { user: user_name.to_owned(), password: user.password.0.clone() });
        }
        if has_certificate {
            return Ok(Credentials::None);
        }
        if let Some(provider) = &user.auth_provider {
            let advice = match provider.name.as_str() {
                "gcp" | "azure" => "which Kubernetes has removed; use an exec plugin",
                "oidc" => "which is built into kubectl, but not into this client; use an exec plugin or a token",
                _ => "which this client does not know; use an exec plugin or a token",
            };
            let provider = &*provider.name;
            return Err(self.error(format!("user {name:?} uses the auth-provider {provider:?}, {advice}")));
        }
        let Some(exec) = &user.exec else { return Ok(Credentials::None) };
        let plugin = ExecPlugin::new(exec.clone(), &self.directory);
        Ok(Credentials::Exec(plugin.map_err(|fault| self.error(format!("user {name:?}: exec: {fault}")))?))
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
