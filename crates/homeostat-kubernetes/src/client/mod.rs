//! The client, its settings, and the requests that all verbs use.

mod decode;
mod discovery;
mod reads;
mod selection;
mod split;
mod verbs;
mod watch;

use std::collections::{HashMap, HashSet};
use std::env;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use self::discovery::Discovery;
pub use self::discovery::ServedKind;
pub use self::reads::{ObjectTable, Scale, TableColumn, TableRow};
use super::config::cluster::ClusterConfig;
use super::config::error::ConfigError;
use super::http::agent::{PageConnections, StoppableCall};
use super::http::answer::{ApiStatus, RequestLine};
use super::http::path::RequestPath;
use super::http::request_error::RequestFault;
use super::http::request_metrics::RequestMetrics;
use super::http::transport::{Answer, HttpRequest, HttpTransport, TransportLimits};
use crate::sync::Mutex;
use homeostat::base::{CancellationToken, Clock};
use homeostat_objects::{Cause, ClientError, Kind, ObjectKey, ObjectRef, SharedObject};

pub(super) const JSON: &str = "application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// A client of a Kubernetes API server. Clones share connections.
///
/// It needs no async runtime. Ordinary requests share a pool of connections, and each watch opens its own.
///
/// # Requests
///
/// - Reads are repeated after connection failures and after the statuses 429, 503 and 504. Writes are repeated only if
///   the server certainly did not execute them: it was not reached, or answered 429, or 503 with a delay. Delays
///   follow the header `Retry-After`, with jitter.
/// - All repetitions end within the [call timeout](KubernetesClientBuilder::call_timeout). Connection failures, and
///   answers 503 and 504 without a delay, are repeated at most three times. A request for a version that the server
///   has not reached is repeated at most ten times.
/// - A call that is repeated for more than five seconds is logged at *warn*. If a watch makes the call, the watch's
///   status shows it instead.
/// - Warnings from the server, such as unknown fields and deprecated kinds, are logged at *warn*, each text once.
/// - Tokens, plugins and certificates are renewed before they expire, and after the server has refused them once.
/// - A credential plugin runs once for all threads that wait for it. It is killed after two minutes, and when the
///   client's last clone drops. After a failure, all requests within the next two seconds fail with it, or use the
///   last token while that is valid.
/// - Token and certificate files are read again each minute. New connections use the new certificates. A watch keeps
///   its connection until the server ends it, after at most ten minutes.
/// - `metadata.managedFields` is omitted from all objects.
/// - If the server does not support a field selector, the client selects. A page of a list may then have fewer objects
///   than its limit. A client of [metadata only](Self::metadata_only) can do this only for metadata fields.
/// - The plural of a kind is guessed by the rules of English. If the server does not know it, the client asks the
///   server, and asks again once the answer is outdated.
/// - After a `fork` without `exec`, the child's copy of the client makes its own connections. The child must not read
///   a watch that the parent has opened, because the parent would lose the events.
///
/// # Examples
///
/// ```no_run
/// use homeostat_kubernetes::{ClusterConfig, KubernetesClient};
/// use homeostat_objects::{Client, Kind, Query};
///
/// const POD: Kind = Kind::namespaced("", "v1", "Pod");
/// let client = KubernetesClient::new(ClusterConfig::load()?)?;
/// for pod in client.list(&POD, &Query::all().namespace("default"))?.items {
///     println!("{}", pod.name());
/// }
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[derive(Clone)]
pub struct KubernetesClient {
    pub(super) shared: Arc<Shared>,
    pub(super) mode: Mode,
}

/// The state that clones share.
pub(super) struct Shared {
    pub(super) transport: HttpTransport,
    discovery: Discovery,
    /// The fields by which the server cannot select.
    pub(super) unknown_fields: Mutex<HashMap<Kind, HashSet<String>>>,
    /// The kinds for which the server does not stream lists.
    pub(super) unstreamed: Mutex<HashSet<Kind>>,
    pub(super) pages: PageConnections,
}

/// The settings that may differ between clones.
#[derive(Clone, Debug, Default)]
pub(super) struct Mode {
    pub(super) dry_run: bool,
    pub(super) metadata_only: bool,
    pub(super) field_manager: Option<Arc<str>>,
    pub(super) field_validation: Option<FieldValidation>,
}

/// How the server treats unknown and duplicate fields in writes. Servers before version 1.25 ignore this setting.
///
/// # Examples
///
/// ```
/// use homeostat_kubernetes::{ClusterConfig, FieldValidation, KubernetesClient};
///
/// let config = ClusterConfig::new("https://10.0.0.1:6443")?.token("secret");
/// let client = KubernetesClient::builder(config).field_validation(FieldValidation::Strict).build()?;
/// # Ok::<_, homeostat_kubernetes::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldValidation {
    /// Drop unknown fields, and keep the last of several duplicates.
    Ignore,
    /// Like [`Ignore`](Self::Ignore), with a warning for each such field.
    Warn,
    /// Refuse the write as [invalid](homeostat_objects::ClientErrorKind::Invalid).
    Strict,
}

impl FieldValidation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "Ignore",
            Self::Warn => "Warn",
            Self::Strict => "Strict",
        }
    }
}

/// Builds a [`KubernetesClient`].
///
/// # Examples
///
/// ```
/// use homeostat_kubernetes::{ClusterConfig, KubernetesClient};
/// use std::time::Duration;
///
/// let config = ClusterConfig::new("https://10.0.0.1:6443")?.token("secret");
/// let client = KubernetesClient::builder(config).call_timeout(Duration::from_secs(20)).user_agent("backup/1.2").build()?;
/// assert_eq!(client.server(), "https://10.0.0.1:6443");
/// # Ok::<_, homeostat_kubernetes::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until `build` is called"]
pub struct KubernetesClientBuilder {
    config: ClusterConfig,
    limits: TransportLimits,
    user_agent: Option<String>,
    field_manager: Option<Arc<str>>,
    field_validation: Option<FieldValidation>,
    clock: Clock,
}

impl KubernetesClientBuilder {
    /// Sets the timeout for establishing a connection, including the TLS handshake. Default: 10 seconds.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.limits.connect = timeout;
        self
    }

    /// Sets how long the server may be silent during a call. Default: 60 seconds.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.limits.read = timeout;
        self
    }

    /// Sets how long the server may be silent in a watch. Default: 330 seconds.
    ///
    /// Do not choose less than five minutes, or than two minutes with bookmarks: after that silence an
    /// [`ObjectWatch`](homeostat_objects::ObjectWatch) replaces the stream itself. With a shorter time, an idle watch
    /// counts as failed.
    pub fn watch_read_timeout(mut self, timeout: Duration) -> Self {
        self.limits.watch_read = timeout;
        self
    }

    /// Sets the timeout of a call with all its repetitions. Default: 90 seconds. Watches have no such limit.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.limits.retry.time = timeout;
        self
    }

    /// Sets the largest answer that is read, in bytes. Default: 1 GiB.
    pub fn max_answer_bytes(mut self, bytes: u64) -> Self {
        self.limits.answer = bytes;
        self
    }

    /// Sets the program's name in the server's logs, such as `backup/1.2`. Default: this library's name and version.
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = Some(user_agent.into());
        self
    }

    /// Sets the field manager for writes other than [`apply`](homeostat_objects::Client::apply). Default: the part of
    /// the user agent before the slash.
    pub fn field_manager(mut self, name: impl Into<Arc<str>>) -> Self {
        self.field_manager = Some(name.into());
        self
    }

    /// Sets how the server treats unknown and duplicate fields in writes. By default the server decides; since version
    /// 1.25 it sends warnings.
    pub fn field_validation(mut self, validation: FieldValidation) -> Self {
        self.field_validation = Some(validation);
        self
    }

    /// Sets the clock for delays and expiries. Default: the system clock. Socket timeouts always use the system clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Builds the client. Reads certificates but does not connect.
    ///
    /// # Errors
    ///
    /// Returns an error if a certificate, the proxy or the user agent is invalid.
    pub fn build(self) -> Result<KubernetesClient, ConfigError> {
        let Self { config, limits, user_agent, field_manager, field_validation, clock } = self;
        let default_agent = || {
            let version = env!("CARGO_PKG_VERSION");
            format!("homeostat/{version} ({}/{})", env::consts::OS, env::consts::ARCH)
        };
        let user_agent = user_agent.unwrap_or_else(default_agent);
        let proxy = config.chosen_proxy(&|name| env::var_os(name));
        let transport = HttpTransport::new(config.parts(), proxy.as_ref(), user_agent, limits, clock)?;
        let shared = Shared {
            transport,
            discovery: Discovery::default(),
            unknown_fields: Mutex::default(),
            unstreamed: Mutex::default(),
            pages: PageConnections::default(),
        };
        Ok(KubernetesClient {
            shared: Arc::new(shared),
            mode: Mode { field_manager, field_validation, ..Mode::default() },
        })
    }
}

impl KubernetesClient {
    /// Returns a client with default settings. Reads certificates but does not connect.
    ///
    /// # Errors
    ///
    /// Returns an error if a certificate or the proxy is invalid.
    pub fn new(config: ClusterConfig) -> Result<Self, ConfigError> {
        Self::builder(config).build()
    }

    /// Returns a builder for a client.
    pub fn builder(config: ClusterConfig) -> KubernetesClientBuilder {
        let (limits, clock) = (TransportLimits::default(), Clock::system());
        KubernetesClientBuilder { config, limits, user_agent: None, field_manager: None, field_validation: None, clock }
    }

    /// Returns a client with its own connections and this call timeout.
    pub(super) fn sibling(&self, call_timeout: Duration) -> Self {
        let shared = Shared {
            transport: self.shared.transport.sibling(call_timeout),
            discovery: Discovery::default(),
            unknown_fields: Mutex::default(),
            unstreamed: Mutex::default(),
            pages: PageConnections::default(),
        };
        Self { shared: Arc::new(shared), mode: self.mode.clone() }
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn server(&self) -> &str {
        self.shared.transport.server()
    }

    /// Returns the metrics of this client and its clones.
    #[must_use]
    pub fn metrics(&self) -> RequestMetrics {
        self.shared.transport.counters.read()
    }

    /// Returns a client for dry runs. The server checks its writes and answers them, but stores nothing.
    #[must_use]
    pub fn dry_run(&self) -> Self {
        Self { mode: Mode { dry_run: true, ..self.mode.clone() }, ..self.clone() }
    }

    /// Returns a client that reads only the metadata of objects. Its objects have no spec and no status, so a watch of
    /// many objects needs less memory.
    #[must_use]
    pub fn metadata_only(&self) -> Self {
        Self { mode: Mode { metadata_only: true, ..self.mode.clone() }, ..self.clone() }
    }

    /// Asks the server how it serves a kind now.
    ///
    /// # Errors
    ///
    /// Returns [`KindNotServed`](homeostat_objects::ClientErrorKind::KindNotServed) if the server does not serve the
    /// kind, or the errors of a request.
    pub fn served_kind(&self, kind: &Kind) -> Result<ServedKind, ClientError> {
        let object = ObjectRef::new(kind, &ObjectKey::cluster(""));
        self.shared.discovery.read(&self.shared.transport, &object, None)
    }

    /// Sends a request for one or more objects. `path_of` returns the path for a plural, and `send` sends the request.
    /// If the server does not know the path, looks the plural up and tries again. Cancelling `stop` ends the look-up.
    pub(super) fn exchange<T>(
        &self,
        object: &ObjectRef,
        (verb, version): (&'static str, &str),
        stop: Option<&CancellationToken>,
        path_of: impl Fn(&str) -> Result<RequestPath, Cause>,
        send: impl Fn(&RequestPath) -> Result<Result<T, Answer>, RequestFault>,
    ) -> Result<(T, RequestLine), ClientError> {
        let Shared { transport, discovery, .. } = &*self.shared;
        let mut plural = discovery.plural(object.kind());
        let mut found = false;
        loop {
            let invalid = |cause| ClientError::with_causes(object.clone(), vec![cause]);
            let path = path_of(&plural).map_err(invalid)?;
            let line = transport.line(verb, &path, object, version);
            let (head, body) = match send(&path).map_err(|cause| line.error(cause))? {
                Ok(answer) => return Ok((answer, line)),
                Err(answer) => answer,
            };
            let status = ApiStatus::read(&body);
            if !status.is_unknown_path(&head) || found {
                return Err(status.error(&line, &head));
            }
            let served = discovery.find(transport, object, stop)?;
            if let Some(cause) = misplaced(&served, object.key()).or_else(|| missing_part(&served, &path)) {
                return Err(invalid(cause));
            }
            if served.plural == plural {
                return Err(status.error(&line, &head));
            }
            (plural, found) = (served.plural, true);
        }
    }

    /// Sends a request and reads the answer.
    pub(super) fn request(
        &self,
        object: &ObjectRef,
        method: &Method,
        line: (&'static str, &str),
        content: (Option<(&'static str, &Value)>, &'static str),
        path_of: impl Fn(&str) -> Result<RequestPath, Cause>,
    ) -> Result<ApiReply, ClientError> {
        self.request_until(None, object, method, line, content, path_of)
    }

    /// Sends a request and reads the answer. Fails when the call is stopped.
    pub(super) fn request_until(
        &self,
        stoppable: Option<&StoppableCall<'_>>,
        object: &ObjectRef,
        method: &Method,
        line: (&'static str, &str),
        (body, accept): (Option<(&'static str, &Value)>, &'static str),
        path_of: impl Fn(&str) -> Result<RequestPath, Cause>,
    ) -> Result<ApiReply, ClientError> {
        let stop = stoppable.map(StoppableCall::stop);
        let (body, line) = self.exchange(object, line, stop, path_of, |path| {
            let body = body.map(|(content_type, body)| (content_type, body.to_string().into_bytes()));
            let request = HttpRequest { method: method.clone(), path, body, accept };
            let (head, body) = self.shared.transport.call(&request, stoppable)?;
            Ok(if head.is_success() { Ok(body) } else { Err((head, body)) })
        })?;
        Ok(ApiReply { line, body })
    }

    /// Adds the write settings to a path.
    pub(super) fn write(&self, path: RequestPath) -> RequestPath {
        self.write_as(path, self.mode.field_manager.as_deref())
    }

    /// Adds the write settings and this field owner to a path.
    pub(super) fn write_as(&self, path: RequestPath, owner: Option<&str>) -> RequestPath {
        let path = if self.mode.dry_run { path.query("dryRun", "All") } else { path };
        let path = path.optional_query("fieldValidation", self.mode.field_validation.map(FieldValidation::as_str));
        path.optional_query("fieldManager", owner)
    }

    /// Returns the value of the header `Accept`.
    pub(super) fn accept(&self, list: bool) -> &'static str {
        match (self.mode.metadata_only, list) {
            (false, _) => JSON,
            (true, false) => METADATA,
            (true, true) => METADATA_LIST,
        }
    }
}

/// The answer to a successful request.
#[derive(Debug)]
pub(super) struct ApiReply {
    line: RequestLine,
    pub(super) body: Vec<u8>,
}

impl ApiReply {
    /// Reads an object.
    pub(super) fn object(&self) -> Result<SharedObject, ClientError> {
        self.parse(|body| decode::object(body, Some(self.line.object.kind())))
    }

    /// Reads the body.
    pub(super) fn parse<T>(&self, parse: impl FnOnce(&[u8]) -> serde_json::Result<T>) -> Result<T, ClientError> {
        parse(&self.body).map_err(|error| self.line.unusable(format!("the answer cannot be read: {error}")))
    }
}

/// Returns the fault of a missing or forbidden namespace.
fn misplaced(served: &ServedKind, key: &ObjectKey) -> Option<Cause> {
    let namespace = key.namespace();
    let rule = match (served.namespaced, namespace.is_empty()) {
        (true, true) if !key.name().is_empty() => "must be set: the kind lives in namespaces",
        (false, false) => "must be empty: the kind is in no namespace",
        _ => return None,
    };
    Some(Cause::new("metadata.namespace", namespace, rule))
}

/// Returns the fault of a subresource that the kind lacks.
fn missing_part(served: &ServedKind, path: &RequestPath) -> Option<Cause> {
    let name = path.subresource_name()?;
    let is_missing = !served.subresources.iter().any(|known| known == name);
    is_missing.then(|| Cause::new("", "", format!("the kind has no subresource {name}")))
}

impl fmt::Debug for KubernetesClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesClient")
            .field("server", &self.server())
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
