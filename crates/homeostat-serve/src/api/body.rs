//! Parses the bodies of requests.

use http::header::CONTENT_TYPE;
use serde_json::{Map, Value, json};

use super::protobuf::{self, ReadFault};
use super::route::ObjectsTarget;
use super::status::StatusError;
use crate::http::IncomingRequest;
use homeostat_objects::Patch;
use homeostat_objects::json::{altered_integer, meta_string};

/// The change in a patch body.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PatchBody {
    Patch(Patch),
    Apply(Value),
}

/// Returns the media type of the body, in lower case and without parameters.
pub(super) fn media_type(request: &IncomingRequest) -> String {
    let header = request.header(CONTENT_TYPE).unwrap_or_default();
    header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Parses a body as JSON, or as protocol buffers if the kind supports it.
pub(super) fn json(request: &IncomingRequest) -> Result<Value, StatusError> {
    match media_type(request).as_str() {
        // Python clients send bodies without a type. By default, `curl` sends the type of a form.
        "" | "application/json" | "application/x-www-form-urlencoded" => parsed(&request.body),
        protobuf::MEDIA => protobuf::object(&request.body).map_err(unread),
        other => Err(unsupported(other)),
    }
}

/// Returns the error for an unreadable protocol buffer message. As in Kubernetes, its status tells clients whether to
/// send JSON instead.
fn unread(fault: ReadFault) -> StatusError {
    let instead = "send JSON (kubectl create KIND NAME … --dry-run=client -o yaml | kubectl apply -f -; client-go: set ContentType of \
                   the configuration to application/json)";
    match fault {
        ReadFault::Malformed => StatusError::bad_request("the body is not an object in protocol buffers"),
        ReadFault::UnknownKind(kind) => StatusError::unsupported_media_type(format!(
            "the body is a {kind} in protocol buffers, but this server reads that kind only as application/json: {instead}"
        )),
        ReadFault::UnknownField(field) => StatusError::unsupported_media_type(format!(
            "the body has a field in protocol buffers that this server does not know, {field}: {instead}"
        )),
    }
}

fn unsupported(media: &str) -> StatusError {
    StatusError::unsupported_media_type(format!("the body is {media:?}, but the server reads only JSON here"))
}

fn parsed(body: &[u8]) -> Result<Value, StatusError> {
    let bad = |error: &dyn std::fmt::Display| StatusError::bad_request(format!("the body is not JSON: {error}"));
    let value = serde_json::from_slice(body).map_err(|error| bad(&error))?;
    match altered_integer(body) {
        Some(integer) => Err(bad(&format_args!("the integer {integer} does not fit into 64 bits"))),
        None => Ok(value),
    }
}

/// Parses the body of a patch.
pub(super) fn patch(request: &IncomingRequest) -> Result<PatchBody, StatusError> {
    match media_type(request).as_str() {
        "application/merge-patch+json" => Ok(PatchBody::Patch(Patch::Merge(object(parsed(&request.body)?)?))),
        "application/json-patch+json" => Ok(PatchBody::Patch(Patch::Json(parsed(&request.body)?))),
        "application/apply-patch+yaml" => {
            let hint = "; this server reads only the part of YAML that is JSON";
            let applied = parsed(&request.body).map_err(|error| error.with_hint(hint))?;
            Ok(PatchBody::Apply(object(applied)?))
        }
        "application/strategic-merge-patch+json" => {
            let patch = object(parsed(&request.body)?)?;
            if is_flat(&patch) {
                return Ok(PatchBody::Patch(Patch::Merge(patch)));
            }
            let message = "a strategic merge patch with arrays or directives needs the schemas of Kubernetes, which this server \
                 lacks: use a merge patch, a JSON patch or apply (kubectl patch --type=merge, kubectl apply --server-side)";
            Err(StatusError::unsupported_media_type(message))
        }
        other => {
            let message = format!(
                "the patch is {other:?}, but must be application/merge-patch+json, application/json-patch+json or \
                 application/apply-patch+yaml"
            );
            Err(StatusError::unsupported_media_type(message))
        }
    }
}

/// Returns whether a strategic merge patch has the same meaning as a merge patch.
fn is_flat(patch: &Value) -> bool {
    match patch {
        Value::Array(_) => false,
        Value::Object(fields) => fields.iter().all(|(name, value)| !name.starts_with('$') && is_flat(value)),
        _ => true,
    }
}

fn object(value: Value) -> Result<Value, StatusError> {
    if value.is_object() { Ok(value) } else { Err(StatusError::bad_request("the body must be a JSON object")) }
}

/// Reads an object, and checks that it matches the path. Sets `apiVersion`, `kind`, namespace and name if they are
/// missing.
pub(super) fn placed(target: &ObjectsTarget<'_>, body: Value) -> Result<Value, StatusError> {
    let mut object = object(body)?;
    let kind = target.kind();
    let Some(fields) = object.as_object_mut() else { return Ok(object) };
    for (field, expected) in [("apiVersion", &*kind.api_version()), ("kind", kind.name())] {
        match fields.get(field) {
            None | Some(Value::Null) => drop(fields.insert(field.to_owned(), expected.into())),
            Some(Value::String(given)) if given.is_empty() => drop(fields.insert(field.to_owned(), expected.into())),
            Some(given) if *given != expected => {
                let message = format!("the {field} of the object is {given}, but the path is of {expected:?}");
                return Err(StatusError::bad_request(message));
            }
            Some(_) => {}
        }
    }
    let meta = fields.entry("metadata").or_insert_with(|| json!({}));
    if meta.is_null() {
        *meta = Value::Object(Map::new());
    }
    for (field, expected) in [("namespace", target.namespace), ("name", target.name)] {
        if expected.is_empty() {
            continue;
        }
        let given = meta_string(&object, field);
        if given.is_empty() {
            if let Some(meta) = object["metadata"].as_object_mut() {
                meta.insert(field.to_owned(), expected.into());
            }
        } else if given != expected {
            let message = format!("the {field} of the object is {given:?}, but the path has {expected:?}");
            return Err(StatusError::bad_request(message));
        }
    }
    Ok(object)
}
