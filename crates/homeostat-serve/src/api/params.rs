//! Parses the parameters of requests.

use std::str::FromStr;
use std::time::Duration;

use super::duplicates::duplicate_fields;
use super::route::ObjectsTarget;
use super::status::StatusError;
use super::{body, protobuf};
use crate::admission::UnknownFields;
use crate::http::{IncomingRequest, is_false};
use homeostat_objects::{FieldOwner, Kind, Query};

/// Returns whether a parameter is true.
pub(super) fn flag(request: &IncomingRequest, name: &str) -> Result<bool, StatusError> {
    match request.parameter(name) {
        None => Ok(false),
        Some(text) if is_false(text) => Ok(false),
        Some("1" | "t" | "T" | "true" | "True" | "TRUE") => Ok(true),
        Some(other) => Err(StatusError::bad_request(format!("the parameter {name} is {other:?}, not true or false"))),
    }
}

/// Returns a parameter that must be `what`, if it is present.
fn parsed<T: FromStr>(request: &IncomingRequest, name: &str, what: &str) -> Result<Option<T>, StatusError> {
    let Some(text) = request.parameter(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let bad = |_| StatusError::bad_request(format!("the parameter {name} is {text:?}, not {what}"));
    text.parse().map(Some).map_err(bad)
}

fn number(request: &IncomingRequest, name: &str) -> Result<Option<u64>, StatusError> {
    parsed(request, name, "a number")
}

/// Returns a parameter that must be an integer, if it is present.
pub(super) fn whole_number(request: &IncomingRequest, name: &str) -> Result<Option<i64>, StatusError> {
    parsed(request, name, "a whole number")
}

/// Returns the query for the requested objects.
pub(super) fn query(request: &IncomingRequest, target: &ObjectsTarget<'_>) -> Result<Query, StatusError> {
    let mut query = Query::all();
    if !target.namespace.is_empty() {
        query = query.namespace(target.namespace);
    }
    let text = |name: &str| request.parameter(name).filter(|text| !text.is_empty());
    let bad = |name: &str, error: &dyn std::fmt::Display| {
        StatusError::bad_request(format!("the parameter {name} cannot be read: {error}"))
    };
    if let Some(labels) = text("labelSelector") {
        query = query.labels(labels.parse().map_err(|error| bad("labelSelector", &error))?);
    }
    if let Some(fields) = text("fieldSelector") {
        query.fields = fields.parse().map_err(|error| bad("fieldSelector", &error))?;
        // A misspelled field would select nothing, or everything.
        if let Some(unknown) = query.fields.paths().find(|path| !target.resource.is_selectable(path)) {
            return Err(StatusError::bad_request(format!("field label not supported: {unknown}")));
        }
    }
    if !target.name.is_empty() {
        query = query.field("metadata.name", target.name);
    }
    if let Some(limit) = number(request, "limit")? {
        query = query.limit(usize::try_from(limit).unwrap_or(usize::MAX));
    }
    if let Some(token) = text("continue") {
        query = query.continue_from(token);
    }
    Ok(query)
}

/// Which version a list must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionMatch<'a> {
    Any,
    NotOlderThan(&'a str),
    Exact(&'a str),
}

/// Returns which version a list must have.
pub(super) fn version_match(request: &IncomingRequest) -> Result<VersionMatch<'_>, StatusError> {
    let version = request.parameter("resourceVersion").unwrap_or_default();
    match (request.parameter("resourceVersionMatch").unwrap_or_default(), version) {
        ("", "" | "0") | ("NotOlderThan", "0") => Ok(VersionMatch::Any),
        ("" | "NotOlderThan", version) if !version.is_empty() => Ok(VersionMatch::NotOlderThan(version)),
        ("Exact", version) if !["", "0"].contains(&version) => Ok(VersionMatch::Exact(version)),
        (rule, version) => {
            let message = format!("resourceVersionMatch {rule:?} cannot be used with resourceVersion {version:?}");
            Err(StatusError::bad_request(message))
        }
    }
}

/// Returns the timeout of a watch, if the client has set one.
pub(super) fn timeout(request: &IncomingRequest) -> Result<Option<Duration>, StatusError> {
    Ok(number(request, "timeoutSeconds")?.filter(|seconds| *seconds > 0).map(Duration::from_secs))
}

/// The options of a write.
#[derive(Clone, Debug)]
pub(super) struct WriteOptions {
    pub(super) dry_run: bool,
    pub(super) unknown: UnknownFields,
    /// Warnings about the body.
    pub(super) warnings: Vec<String>,
}

/// Returns the options for a write of this kind. Checks the body for duplicate fields.
pub(super) fn write_options(request: &IncomingRequest, kind: &Kind) -> Result<WriteOptions, StatusError> {
    let unknown = match request.parameter("fieldValidation").unwrap_or_default() {
        "" | "Warn" => UnknownFields::Warn,
        "Ignore" => UnknownFields::Ignore,
        "Strict" => UnknownFields::Refuse,
        other => {
            let message = format!("the parameter fieldValidation is {other:?}, not Strict, Warn or Ignore");
            return Err(StatusError::bad_request(message));
        }
    };
    let is_read = unknown != UnknownFields::Ignore && body::media_type(request) != protobuf::MEDIA;
    let repeated = if is_read { duplicate_fields(&request.body) } else { Vec::new() };
    let warnings: Vec<_> = repeated.iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    if unknown == UnknownFields::Refuse && !warnings.is_empty() {
        return Err(StatusError::strict(kind, &warnings));
    }
    Ok(WriteOptions { dry_run: dry_run(request, &[])?, unknown, warnings })
}

/// Returns whether a request is a dry run, by its query or by these values of its body.
pub(super) fn dry_run(request: &IncomingRequest, in_body: &[String]) -> Result<bool, StatusError> {
    let in_query = request.query.iter().filter(|(name, _)| name == "dryRun").map(|(_, value)| value);
    in_query.chain(in_body).try_fold(false, |dry, value| match value.as_str() {
        "" => Ok(dry),
        "All" => Ok(true),
        other => Err(StatusError::bad_request(format!("the parameter dryRun is {other:?}, not All"))),
    })
}

/// Returns the owner for applied fields.
pub(super) fn field_owner(request: &IncomingRequest) -> Result<FieldOwner, StatusError> {
    let manager = request.parameter("fieldManager").filter(|manager| !manager.is_empty());
    let manager = manager.ok_or_else(|| StatusError::bad_request("an apply needs the parameter fieldManager"))?;
    let owner = FieldOwner::new(manager);
    Ok(if flag(request, "force")? { owner.force() } else { owner })
}
