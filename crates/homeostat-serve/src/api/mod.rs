//! The Kubernetes-compatible API of objects.
//!
//! `route` finds the target of a path, `accept` chooses the form of the answer, and `params` and `body` parse the
//! request. `reads`, `write`, `remove`, `watch` and this file answer it. `events` are the core events. `dry_run`
//! computes a write without storing it. `namespaces` and `namespace_writes` are the virtual namespaces. `discovery`,
//! `openapi` and `reviews` answer requests that do not concern stored objects. `counts` is for the status page.
//! `status` has the errors, and `store` records failures of the store.

mod accept;
mod age;
mod body;
mod builder;
mod counts;
mod deadlines;
mod discovery;
mod dry_run;
mod duplicates;
mod events;
mod merge;
mod namespace_writes;
mod namespaces;
mod openapi;
mod params;
mod protobuf;
mod reads;
mod remove;
mod reviews;
mod route;
mod serving;
mod shared;
mod status;
mod store;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;
mod watch;
mod write;

use std::fmt;
use std::sync::Arc;

use http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH, VARY, WARNING};
use http::{HeaderValue, Method, StatusCode};
use serde_json::Value;

use self::accept::{DiscoveryForm, discovery_form, object_form};
pub use self::builder::ObjectApiBuilder;
pub(crate) use self::counts::{KindCount, ObjectCount, full_name, ready_condition};
use self::openapi::OpenApiDocuments;
use self::params::VersionMatch;
use self::remove::DeleteCall;
use self::route::{ApiTarget, ObjectsTarget, target};
use self::shared::{ApiShared, WriteOutcome};
use self::status::StatusError;
pub(crate) use self::store::StoreHealth;
use self::store::StoreUse;
use self::table::{ObjectView, RowContent, list_reply};
use self::watch::{ServedWatch, now};
use self::write::WriteCall;
use crate::access::{Access, AccessTarget, Authorizer};
use crate::http::{Handler, IncomingRequest, Reply, ReplyBody, canonical_path};
use crate::kinds::{ObjectSource, ServedResource};
use crate::sync::Mutex;
use homeostat_objects::{Client, DefinitionError, Kind, ObjectList, Query, SharedObject};

/// Serves a client's objects like a Kubernetes API server, to `kubectl` and other clients.
///
/// It serves only the registered kinds, which may [change](Self::serve). Clones share all state. It is tested with
/// `kubectl`, the Python client `kubernetes`, kube-rs and `KubernetesClient`.
///
/// # Differences from Kubernetes
///
/// - Objects follow the rules of the client, see [`homeostat_objects`].
/// - Unless the kind `Namespace` is served, a namespace exists while it contains an object. Creating or applying a
///   namespace succeeds but stores nothing, so the namespace appears with its first object. It cannot be deleted. If
///   the client is [local](homeostat_objects::Capabilities::local), a watch of namespaces checks for new ones every
///   five seconds, otherwise only at its start.
/// - A strategic merge patch must not contain arrays or directives.
/// - Bodies are JSON, not YAML. Protocol buffers are read and written for `Lease`, `ConfigMap`, `Secret`, `Namespace`
///   and both kinds of `Event`. For other kinds they are refused, as Kubernetes does for custom resources. See which
///   [clients](crate::guide::clients) work, and with which settings.
/// - If a definition names no selectable fields, field selectors can use any field that its schema knows. Without a
///   schema, they can use any field.
/// - Clients cannot add kinds with custom resource definitions. `CustomResourceDefinition::install` of the crate
///   `homeostat-kubernetes` succeeds if all versions of the definition are served already.
/// - The subresource `scale` is not served.
/// - A dry run does not check owners, and does not delete dependents.
/// - Two versions of a kind are two separate kinds. Objects are not converted between them.
/// - A watch without a version lists the objects, and then sends the changes since. If the watch's client reads so
///   slowly that the store has discarded some of these changes, the watch ends with status 410, and the client lists
///   again.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Kind, KindDefinition, MemoryClient, PrintColumn};
/// use homeostat_serve::ObjectApi;
/// use std::sync::Arc;
///
/// let sites = KindDefinition::new(Kind::namespaced("example.com", "v1", "Site"))
///     .short_name("si")
///     .column(PrintColumn::string("Title", ".spec.title"));
/// let api = ObjectApi::builder(Arc::new(MemoryClient::new())).serve(sites).serve_events().build()?;
/// # let _ = api;
/// # Ok::<_, homeostat_objects::DefinitionError>(())
/// ```
#[derive(Clone)]
pub struct ObjectApi {
    /// The state for the next request.
    shared: Arc<Mutex<ApiShared>>,
    authorizer: Option<Authorizer>,
}

impl ObjectApi {
    /// Creates a builder for an API for this client's objects, without any kinds.
    pub fn builder(client: Arc<dyn Client>) -> ObjectApiBuilder {
        ObjectApiBuilder::new(client)
    }

    /// Returns the health of the store.
    pub(crate) fn store(&self) -> Arc<StoreHealth> {
        Arc::clone(&self.shared.lock().store)
    }

    /// Returns the served kinds, without virtual namespaces.
    #[must_use]
    pub fn kinds(&self) -> Vec<Kind> {
        let shared = self.shared.lock();
        let served = shared.kinds.iter().filter(|resource| resource.source() != ObjectSource::Namespaces);
        served.map(ServedResource::kind).cloned().collect()
    }

    /// Starts to serve a kind, as Kubernetes does once a custom resource definition is installed. A kind that is
    /// already served is replaced.
    ///
    /// The next request sees the kind. Replies and watches that have begun continue.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`build`](ObjectApiBuilder::build). Then the served kinds do not change.
    pub fn serve(&self, resource: impl Into<ServedResource>) -> Result<(), DefinitionError> {
        let mut shared = self.shared.lock();
        *shared = shared.serving(shared.kinds.with(resource.into())?.with_namespaces()?);
        Ok(())
    }

    /// Stops serving a kind, if it is served.
    ///
    /// Later requests for the kind get status 404. Its objects stay stored, and its open watches continue.
    pub fn withdraw(&self, kind: &Kind) {
        let mut shared = self.shared.lock();
        // The virtual namespaces cannot be refused, because the old kinds had namespaces.
        if let Ok(kinds) = shared.kinds.without(kind).with_namespaces() {
            *shared = shared.serving(kinds);
        }
    }

    /// Returns the state for one request.
    fn current(&self) -> ApiShared {
        ApiShared { authorizer: self.authorizer.clone(), ..self.shared.lock().clone() }
    }
}

impl Handler for ObjectApi {
    fn handle(&self, request: &IncomingRequest) -> Reply {
        self.current().answer(request).unwrap_or_else(|error| error.reply())
    }
}

impl ApiShared {
    fn answer(&self, request: &IncomingRequest) -> Result<Reply, StatusError> {
        let unknown = || Reply::text(StatusCode::NOT_FOUND, "404 page not found\n");
        let is_read = [Method::GET, Method::HEAD].contains(&request.method);
        let only = |allowed: bool| if allowed { Ok(()) } else { Err(not_allowed(request)) };
        match target(&self.kinds, &request.segments) {
            None => Ok(unknown()),
            Some(ApiTarget::Discovery(segments)) => {
                only(is_read)?;
                self.check_path(request)?;
                let form = discovery_form(request)?;
                Ok(discovery::discover(&self.kinds, segments, form)
                    .map_or_else(unknown, |json| tagged(request, discovered(form, &json))))
            }
            Some(ApiTarget::OpenApi(segments)) => {
                only(is_read)?;
                self.check_path(request)?;
                let documents = self.documents.get_or_init(|| OpenApiDocuments::new(&self.kinds));
                let document = documents.reply(request, segments);
                Ok(document.map_or_else(unknown, |document| tagged(request, document)))
            }
            Some(ApiTarget::AccessReview(plural)) => {
                only(request.method == Method::POST)?;
                Ok(Reply::json(StatusCode::CREATED, &reviews::review(self, request, plural)?))
            }
            Some(ApiTarget::Objects(target)) => {
                let answer = self.objects(request, target);
                self.note(request, answer.as_ref().err());
                answer
            }
        }
    }

    /// Records whether the store worked for a request.
    fn note(&self, request: &IncomingRequest, error: Option<&StatusError>) {
        let is_read = request.method == Method::GET;
        let used = if is_read { StoreUse::Read } else { StoreUse::Write };
        match error.map(StatusError::store_failure) {
            Some(Some(cause)) => self.store.failed(used, cause),
            // A dry run does not show whether writes work.
            None if is_read || request.parameter("dryRun").is_none() => self.store.worked(used),
            _ => {}
        }
    }

    fn objects(&self, request: &IncomingRequest, target: ObjectsTarget<'_>) -> Result<Reply, StatusError> {
        let is_one = !target.name.is_empty();
        let is_watch = params::flag(request, "watch")?;
        let is_everywhere = target.kind().is_namespaced() && target.namespace.is_empty();
        let source = target.resource.source();
        let verb = match (request.method.as_str(), is_one) {
            ("GET" | "HEAD", _) if is_watch && target.status => return Err(not_allowed(request)),
            ("GET" | "HEAD", _) if is_watch => "watch",
            ("GET" | "HEAD", true) => "get",
            ("GET" | "HEAD", false) => "list",
            ("DELETE", false) if source == ObjectSource::Namespaces => return Err(not_allowed(request)),
            ("POST", false) if !is_everywhere => "create",
            ("PUT", true) => "update",
            ("PATCH", true) => "patch",
            ("DELETE", true) if !target.status => "delete",
            // As in Kubernetes, no request can delete the objects of all namespaces.
            ("DELETE", false) if !is_everywhere => "deletecollection",
            _ => return Err(not_allowed(request)),
        };
        self.check(request, &target, verb)?;
        match verb {
            "watch" => self.watch(request, target),
            "get" => {
                let view = self.view(request, target.resource)?;
                let object = self.reader(target.resource).get(&target.key())?;
                Ok(Reply::new(StatusCode::OK, view.media(), view.object(&object)))
            }
            "list" => {
                let view = self.view(request, target.resource)?;
                Ok(list_reply(&view, self.list(request, &target)?))
            }
            "delete" if source == ObjectSource::Namespaces => Err(self.refuse_namespace_deletion(target.name)?),
            "delete" => {
                let view = self.view(request, target.resource)?.whole();
                let deleted = DeleteCall::new(self, target, request)?.delete()?;
                Ok(Reply::new(StatusCode::OK, view.media(), view.other(&deleted)))
            }
            "deletecollection" => {
                let deleted = DeleteCall::new(self, target, request)?.delete_collection()?;
                let view = self.view(request, target.resource)?.whole();
                Ok(list_reply(&view, deleted))
            }
            _ => {
                let view = self.view(request, target.resource)?;
                let call = || WriteCall::new(self, target, request);
                let WriteOutcome { code, object, warnings } = match verb {
                    _ if source == ObjectSource::Namespaces => self.write_namespace(request, &target, verb)?,
                    "create" => call()?.create(request)?,
                    "update" => call()?.update(request)?,
                    _ => call()?.patch(request)?,
                };
                let mut reply = Reply::new(code, view.media(), view.object(&object));
                for warning in &warnings {
                    if let Ok(value) = HeaderValue::from_bytes(format!("299 - {warning:?}").as_bytes()) {
                        reply.headers.append(WARNING, value);
                    }
                }
                Ok(reply)
            }
        }
    }

    /// Returns an error if the user may not make this request.
    fn check(
        &self,
        request: &IncomingRequest,
        target: &ObjectsTarget<'_>,
        verb: &'static str,
    ) -> Result<(), StatusError> {
        let (kind, resource) = (target.kind(), target.resource_name());
        let place = if target.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", target.namespace)
        };
        let asked = AccessTarget::objects(kind.group(), resource.as_str(), target.namespace, target.name);
        let Access::Deny(reason) = self.access(&request.user, verb, asked) else { return Ok(()) };
        let (user, group) = (&request.user.name, kind.group());
        let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let denied = format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {place}{why}");
        Err(StatusError::forbidden(kind, target.name, &denied))
    }

    fn check_path(&self, request: &IncomingRequest) -> Result<(), StatusError> {
        let path = canonical_path(&request.segments);
        match self.access(&request.user, "get", AccessTarget::Path(path.clone())) {
            Access::Allow => Ok(()),
            Access::Deny(reason) => {
                let user = &request.user.name;
                let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                let message = format!("forbidden: User {user:?} cannot get path {path:?}{why}");
                Err(StatusError::new(StatusCode::FORBIDDEN, "Forbidden", message))
            }
        }
    }

    fn view<'a>(&self, request: &IncomingRequest, resource: &'a ServedResource) -> Result<ObjectView<'a>, StatusError> {
        let rows = match request.parameter("includeObject").unwrap_or_default() {
            "" | "Metadata" => RowContent::Metadata,
            "Object" => RowContent::Object,
            "None" => RowContent::None,
            other => {
                let message = format!("the parameter includeObject is {other:?}, not Metadata, Object or None");
                return Err(StatusError::bad_request(message));
            }
        };
        Ok(ObjectView { resource, form: object_form(request, resource.kind())?, rows, now: now(&self.clock) })
    }

    fn list(
        &self,
        request: &IncomingRequest,
        target: &ObjectsTarget<'_>,
    ) -> Result<ObjectList<SharedObject>, StatusError> {
        let (reader, mut query) = (self.reader(target.resource), params::query(request, target)?);
        if query.continue_token.is_some() {
            return Ok(reader.list(&query)?);
        }
        let asked = params::version_match(request)?;
        if let VersionMatch::NotOlderThan(version) = asked {
            query = query.not_older_than(version);
        }
        let list = reader.list(&query)?;
        match asked {
            VersionMatch::NotOlderThan(version) if is_later(version, &list.version) => {
                Err(StatusError::version_too_large(version, &list.version))
            }
            VersionMatch::Exact(version) if version != list.version => {
                let message =
                    format!("the version {version} of the list is not kept: only the newest is, {}", list.version);
                Err(StatusError::expired(message))
            }
            _ => Ok(list),
        }
    }

    fn watch(&self, request: &IncomingRequest, target: ObjectsTarget<'_>) -> Result<Reply, StatusError> {
        let view = self.view(request, target.resource)?;
        let query = params::query(request, &target)?;
        let from =
            request.parameter("resourceVersion").filter(|version| !["", "0"].contains(version)).map(str::to_owned);
        let marks_initial = params::flag(request, "sendInitialEvents")?;
        let wants_none = request.parameter("sendInitialEvents").is_some() && !marks_initial;
        if marks_initial && request.parameter("resourceVersionMatch") != Some("NotOlderThan") {
            let message = "sendInitialEvents needs the parameter resourceVersionMatch=NotOlderThan";
            return Err(StatusError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message));
        }
        let reader = self.reader(target.resource);
        // List the initial objects before the reply begins. Only then does the server know how much memory they need.
        let (initial, from) = match from {
            None if wants_none => (Vec::new(), reader.list(&Query::all().limit(1))?.version),
            Some(from) if !marks_initial => (Vec::new(), from),
            _ => {
                let list = reader.list(&query.unpaged())?;
                (list.items, list.version)
            }
        };
        let watch = ServedWatch {
            reader,
            clock: self.clock.clone(),
            deadlines: Arc::clone(&self.deadlines),
            store: Arc::clone(&self.store),
            resource: target.resource.clone(),
            form: view.form,
            rows: view.rows,
            query,
            initial,
            from,
            marks_initial,
            bookmarks: params::flag(request, "allowWatchBookmarks")?,
            timeout: params::timeout(request)?,
        };
        Ok(watch.reply())
    }
}

fn not_allowed(request: &IncomingRequest) -> StatusError {
    StatusError::method_not_allowed(format!(
        "the server does not allow the method {} on {}",
        request.method, request.path
    ))
}

/// Returns whether a version is later than another one. Both must be decimal numbers.
fn is_later(version: &str, than: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    number(version).zip(number(than)).is_some_and(|(version, than)| version > than)
}

/// Returns a discovery answer. Its content type names the form, and caches must distinguish the forms.
fn discovered(form: DiscoveryForm, json: &Value) -> Reply {
    let is_list = json["kind"] == "APIGroupDiscoveryList";
    let content = match form {
        DiscoveryForm::Aggregated("v2") if is_list => {
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        }
        DiscoveryForm::Aggregated(_) if is_list => {
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
        }
        _ => "application/json",
    };
    let mut reply = Reply::new(StatusCode::OK, content, json.to_string());
    reply.headers.insert(VARY, HeaderValue::from_static("accept"));
    reply
}

/// Adds an `ETag` to an answer. If the client already has this answer, the body is empty.
fn tagged(request: &IncomingRequest, mut reply: Reply) -> Reply {
    let ReplyBody::Full(body) = &mut reply.body else { return reply };
    let tag = format!("\"{:016X}\"", openapi::hash(body));
    let is_known = request.header(IF_NONE_MATCH).is_some_and(|known| {
        known.split(',').map(str::trim).any(|known| known == "*" || known.trim_start_matches("W/") == tag)
    });
    if is_known {
        body.clear();
        reply.status = StatusCode::NOT_MODIFIED;
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        reply.headers.insert(ETAG, tag);
    }
    reply.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    reply
}

impl fmt::Debug for ObjectApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectApi").field("kinds", &self.kinds()).finish_non_exhaustive()
    }
}
