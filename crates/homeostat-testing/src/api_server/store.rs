//! The answers that a server gives without rules, from its objects.

use std::time::Duration;

use serde_json::{Value, json};

use super::answer::error_status;
use super::discovery::{DEFINITION, discover, kinds_of};
use super::request::{ServerRequest, decode};
use super::shared::ServerShared;
use super::status::status_of;
use super::watching::{StoredWatch, shown};
use homeostat_objects::{
    Client, ClientError, DeleteOptions, Deletion, FieldOwner, Ignore, Kind, ObjectKey, Patch, PatchTarget, Propagation,
    Query, SharedObject,
};

/// The answer to a request.
pub(super) enum StoredAnswer {
    Json(u16, Value),
    Text(u16, &'static str),
    Watch(Box<StoredWatch>),
}

impl From<ClientError> for StoredAnswer {
    fn from(error: ClientError) -> Self {
        let (code, status) = status_of(&error);
        Self::Json(code, status)
    }
}

/// The object or the objects that a path names.
struct Route {
    kind: Kind,
    namespace: String,
    name: String,
    target: PatchTarget,
}

/// Answers a request.
pub(super) fn reply(server: &ServerShared, request: &ServerRequest) -> StoredAnswer {
    let parts: Vec<_> = request.path.trim_matches('/').split('/').map(decode).collect();
    let parts: Vec<_> = parts.iter().map(String::as_str).collect();
    if let ["readyz" | "livez" | "healthz"] = parts[..] {
        return StoredAnswer::Text(200, "ok");
    }
    if request.method == "GET"
        && let Some(found) = server.state.with(|state| discover(&state.kinds, &parts))
    {
        return StoredAnswer::Json(200, found);
    }
    let Some(route) = route(server, &parts) else { return StoredAnswer::Text(404, "404 page not found\n") };
    if request.parameter("dryRun").is_some() {
        return refusal(400, "BadRequest", "this server of tests has no dry runs");
    }
    let result = match (request.method.as_str(), route.name.as_str()) {
        ("GET", "") => read(server, request, &route),
        ("GET", _) => {
            let found = server.client.get(&route.kind, &route.key());
            found
                .map(|object| StoredAnswer::Json(200, shown(&object, is_metadata_only(request))))
                .map_err(StoredAnswer::from)
        }
        ("POST", "") => write(server, request, &route, |object| server.client.create(&route.kind, object)),
        ("PUT", name) if !name.is_empty() => write(server, request, &route, |object| match route.target {
            PatchTarget::Object => server.client.update(&route.kind, object),
            PatchTarget::Status => server.client.update_status(&route.kind, object),
        }),
        ("PATCH", name) if !name.is_empty() => patch(server, request, &route),
        ("DELETE", _) => delete(server, request, &route),
        _ => Err(refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")),
    };
    result.unwrap_or_else(|refusal| refusal)
}

fn refusal(code: u16, reason: &str, message: &str) -> StoredAnswer {
    StoredAnswer::Json(code, error_status(code, reason, message))
}

impl Route {
    fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.namespace, &self.name)
    }
}

/// Finds the kind of a path, if it is served.
fn route(server: &ServerShared, parts: &[&str]) -> Option<Route> {
    let (group, version, rest) = match parts {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let of = |plural: &str, namespaced: bool, namespace: &str, rest: &[&str]| {
        // A list or a watch of a namespaced kind needs no namespace.
        let kind = server.kind(group, version, plural)?;
        if namespaced && !kind.is_namespaced() {
            return None;
        }
        let (name, target) = match rest {
            [] => ("", PatchTarget::Object),
            [name] => (*name, PatchTarget::Object),
            [name, "status"] => (*name, PatchTarget::Status),
            _ => return None,
        };
        Some(Route { kind, namespace: namespace.to_owned(), name: name.to_owned(), target })
    };
    match rest {
        ["namespaces", namespace, plural, rest @ ..] if *plural != "status" => of(plural, true, namespace, rest),
        [plural, rest @ ..] => of(plural, false, "", rest),
        [] => None,
    }
}

/// Lists or watches.
fn read(server: &ServerShared, request: &ServerRequest, route: &Route) -> Result<StoredAnswer, StoredAnswer> {
    let query = query(request, route)?;
    let metadata_only = is_metadata_only(request);
    if request.is_watch() {
        return watch(request, route, query, metadata_only);
    }
    let list = server.client.list(&route.kind, &query)?;
    let items: Vec<_> = list.items.iter().map(|object| shown(object, metadata_only)).collect();
    let (api_version, kind) = if metadata_only {
        ("meta.k8s.io/v1".into(), "PartialObjectMetadataList".to_owned())
    } else {
        (route.kind.api_version(), format!("{}List", route.kind.name()))
    };
    let mut metadata = json!({"resourceVersion": list.version});
    if let Some(token) = list.continue_token {
        metadata["continue"] = json!(token);
    }
    Ok(StoredAnswer::Json(200, json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "items": items})))
}

fn watch(
    request: &ServerRequest,
    route: &Route,
    query: Query,
    metadata_only: bool,
) -> Result<StoredAnswer, StoredAnswer> {
    let is_true = |name| request.parameter(name) == Some("true");
    let marks_initial = is_true("sendInitialEvents");
    if marks_initial && request.parameter("resourceVersionMatch") != Some("NotOlderThan") {
        return Err(refusal(422, "Invalid", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
    }
    let timeout = request.parameter("timeoutSeconds").and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    Ok(StoredAnswer::Watch(Box::new(StoredWatch {
        kind: route.kind.clone(),
        query,
        from: request.parameter("resourceVersion").filter(|_| !marks_initial).map(str::to_owned),
        marks_initial,
        bookmarks: is_true("allowWatchBookmarks"),
        metadata_only,
        timeout: timeout.filter(|timeout| !timeout.is_zero()),
    })))
}

fn query(request: &ServerRequest, route: &Route) -> Result<Query, StoredAnswer> {
    let mut query = Query::all();
    if !route.namespace.is_empty() {
        query = query.namespace(&route.namespace);
    }
    let bad = |error: &dyn std::fmt::Display| refusal(400, "BadRequest", &error.to_string());
    if let Some(labels) = request.parameter("labelSelector") {
        query = query.labels(labels.parse().map_err(|error| bad(&error))?);
    }
    if let Some(fields) = request.parameter("fieldSelector") {
        query.fields = fields.parse().map_err(|error| bad(&error))?;
        let unknown = |path: &&str| !path.starts_with("metadata.name");
        if !["Event", "Pod"].contains(&route.kind.name())
            && let Some(path) = query.fields.paths().find(unknown)
        {
            return Err(bad(&format_args!("field label not supported: {path}")));
        }
    }
    if let Some(limit) = request.parameter("limit") {
        query = query.limit(limit.parse().map_err(|error| bad(&error))?);
    }
    if let Some(token) = request.parameter("continue").filter(|token| !token.is_empty()) {
        query = query.continue_from(token);
    }
    Ok(query)
}

fn is_metadata_only(request: &ServerRequest) -> bool {
    request.header("accept").is_some_and(|accept| accept.contains("as=PartialObjectMetadata"))
}

/// Writes the object in the body of a request.
fn write(
    server: &ServerShared,
    request: &ServerRequest,
    route: &Route,
    write: impl FnOnce(Value) -> Result<SharedObject, ClientError>,
) -> Result<StoredAnswer, StoredAnswer> {
    let bad = |message: &str| refusal(400, "BadRequest", message);
    let mut object = request.json().filter(Value::is_object).ok_or_else(|| bad("the body is not a JSON object"))?;
    if object["apiVersion"] != *route.kind.api_version() || object["kind"] != route.kind.name() {
        let built_in = object.get("apiVersion").is_none() && object.get("kind").is_none();
        if !built_in {
            return Err(bad("the object in the body is of another kind than the path"));
        }
        object["apiVersion"] = json!(route.kind.api_version());
        object["kind"] = json!(route.kind.name());
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    for (field, value) in [("namespace", &route.namespace), ("name", &route.name)] {
        let given = &object["metadata"][field];
        if given.is_null() && !value.is_empty() {
            object["metadata"][field] = json!(value);
        } else if !value.is_empty() && given != value {
            return Err(bad(&format!("metadata.{field} is another than in the path")));
        }
    }
    let written = write(object)?;
    learn(server, route, &written);
    Ok(StoredAnswer::Json(if request.method == "POST" { 201 } else { 200 }, written.to_value()))
}

fn patch(server: &ServerShared, request: &ServerRequest, route: &Route) -> Result<StoredAnswer, StoredAnswer> {
    let body = || request.json().ok_or_else(|| refusal(400, "BadRequest", "the body is not JSON"));
    let content = request.header("content-type").unwrap_or_default();
    let patch = match content.split(';').next().unwrap_or_default() {
        "application/merge-patch+json" => Patch::Merge(body()?),
        "application/json-patch+json" => Patch::Json(body()?),
        "application/apply-patch+yaml" => {
            let Some(manager) = request.parameter("fieldManager").filter(|manager| !manager.is_empty()) else {
                return Err(refusal(
                    400,
                    "BadRequest",
                    "PatchOptions.meta.k8s.io is invalid: fieldManager is required",
                ));
            };
            let mut owner = FieldOwner::new(manager);
            owner.target = route.target;
            let owner = if request.parameter("force") == Some("true") { owner.force() } else { owner };
            return write(server, request, route, |object| server.client.apply(&route.kind, object, &owner));
        }
        _ => return Err(refusal(415, "UnsupportedMediaType", "this server of tests does not know this patch")),
    };
    let written = server.client.patch(&route.kind, &route.key(), &patch, route.target)?;
    learn(server, route, &written);
    Ok(StoredAnswer::Json(200, written.to_value()))
}

fn delete(server: &ServerShared, request: &ServerRequest, route: &Route) -> Result<StoredAnswer, StoredAnswer> {
    let body = request.json().unwrap_or_default();
    let policy = body["propagationPolicy"].as_str().or(request.parameter("propagationPolicy"));
    let mut options = DeleteOptions::default().propagation(match policy {
        Some("Foreground") => Propagation::Foreground,
        Some("Orphan") => Propagation::Orphan,
        _ => Propagation::Background,
    });
    options.uid = body["preconditions"]["uid"].as_str().map(str::to_owned);
    options.resource_version = body["preconditions"]["resourceVersion"].as_str().map(str::to_owned);
    let success =
        || StoredAnswer::Json(200, json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success"}));
    if route.name.is_empty() {
        server.client.delete_collection(&route.kind, &query(request, route)?, &options)?;
        return Ok(success());
    }
    let definition = if route.kind == DEFINITION { server.client.get(&route.kind, &route.key()).ok() } else { None };
    if let Deletion::Deleting(object) = server.client.delete(&route.kind, &route.key(), &options)? {
        return Ok(StoredAnswer::Json(200, object.to_value()));
    }
    let kinds = definition.as_ref().map(kinds_of).unwrap_or_default();
    server.withdraw(|known| kinds.contains(known));
    Ok(success())
}

/// Serves the kinds of a custom resource definition that was written, and reports that in its status.
fn learn(server: &ServerShared, route: &Route, written: &SharedObject) {
    if route.kind != DEFINITION || route.target == PatchTarget::Status {
        return;
    }
    let kinds = kinds_of(written);
    let spec = &written.to_value()["spec"];
    let is_of_definition = |known: &Kind| spec["group"] == known.group() && spec["names"]["plural"] == *known.plural();
    server.withdraw(|known| is_of_definition(known) && !kinds.contains(known));
    for kind in kinds {
        server.serve(kind);
    }
    let status = json!({
        "acceptedNames": spec["names"],
        "conditions": [
            {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts"},
            {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"},
        ],
    });
    let patch = Patch::Merge(json!({"status": status}));
    // It may have been deleted since.
    let _ = server.client.patch(&DEFINITION, &written.key(), &patch, PatchTarget::Status).ignore_not_found();
}
