//! Converts errors of the embedded client to statuses of an API server.

use serde_json::{Value, json};

use super::answer::error_status;
use homeostat_objects::ClientError;

/// Returns the code of an error, and its `Status`.
pub(super) fn status_of(error: &ClientError) -> (u16, Value) {
    let (code, reason) = match error {
        ClientError::NotFound { .. } | ClientError::KindNotServed { .. } => (404, "NotFound"),
        ClientError::AlreadyExists { .. } => (409, "AlreadyExists"),
        ClientError::Conflict { .. } => (409, "Conflict"),
        ClientError::Invalid { .. } => (422, "Invalid"),
        ClientError::Gone { .. } => (410, "Expired"),
        ClientError::Forbidden { .. } => (403, "Forbidden"),
        ClientError::Unauthorized { .. } => (401, "Unauthorized"),
        ClientError::TooManyRequests { .. } => (429, "TooManyRequests"),
        _ => (500, "InternalError"),
    };
    let mut status = error_status(code, reason, &error.to_string());
    let object = error.object();
    let mut details = json!({
        "group": object.kind().group(), "kind": object.kind().plural(), "name": object.key().name(),
    });
    let causes: Vec<_> = match error {
        ClientError::Invalid { causes, .. } => causes
            .iter()
            .map(|cause| {
                let message = format!("Invalid value: {:?}: {}", cause.value, cause.rule);
                json!({"reason": "FieldValueInvalid", "field": cause.field, "message": message})
            })
            .collect(),
        ClientError::Conflict { fields, .. } => fields
            .iter()
            .map(|conflict| {
                let message = format!("conflict with {:?}", conflict.owner);
                json!({"reason": "FieldManagerConflict", "field": format!(".{}", conflict.field), "message": message})
            })
            .collect(),
        _ => Vec::new(),
    };
    if !causes.is_empty() {
        details["causes"] = json!(causes);
    }
    status["details"] = details;
    (code, status)
}
