//! The paths and operations of a kind.

use serde_json::{Map, Value, json};

use super::{group_version_kind, reference, schema_name};
use crate::kinds::{ObjectSource, ServedResource};

/// The parameters of writes.
const WRITE: [(&str, &str); 3] = [
    ("dryRun", "`All` stores nothing."),
    ("fieldManager", "The name of the writer."),
    ("fieldValidation", "How to treat unknown fields: `Ignore`, `Warn` or `Strict`."),
];

/// The parameters of lists.
const LIST: [(&str, &str); 5] = [
    ("labelSelector", "Selects objects by labels."),
    ("fieldSelector", "Selects objects by fields."),
    ("limit", "The most objects of a page."),
    ("continue", "The token of the page."),
    ("watch", "Whether to stream changes."),
];

/// Returns the paths of a kind with their operations.
pub(super) fn of_resource(resource: &ServedResource) -> Map<String, Value> {
    let kind = resource.kind();
    let root = if kind.group().is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group()) };
    let namespace = if kind.is_namespaced() { "/namespaces/{namespace}" } else { "" };
    let many = format!("{root}/{}{namespace}/{}", kind.version(), kind.plural());
    let one = format!("{many}/{{name}}");
    let with_delete = resource.source() != ObjectSource::Namespaces;
    let mut operations =
        json!({"get": operation(resource, "list", &LIST), "post": operation(resource, "post", &WRITE)});
    if with_delete {
        operations["delete"] = operation(resource, "deletecollection", &LIST);
    }
    let mut paths = Map::from_iter([(many, operations), (one.clone(), object_operations(resource, with_delete))]);
    if resource.has_status() {
        paths.insert(format!("{one}/status"), object_operations(resource, false));
    }
    paths
}

fn object_operations(resource: &ServedResource, with_delete: bool) -> Value {
    let mut operations = json!({
        "get": operation(resource, "get", &[]),
        "put": operation(resource, "put", &WRITE),
        "patch": operation(resource, "patch", &WRITE),
    });
    if with_delete {
        operations["delete"] = operation(resource, "delete", &WRITE[..1]);
    }
    operations
}

fn operation(resource: &ServedResource, action: &str, parameters: &[(&str, &str)]) -> Value {
    let kind = resource.kind();
    let parameter = |name: &str, description: &str, of: &str| json!({"name": name, "in": "query", "description": description, "schema": {"type": of, "uniqueItems": true}});
    let mut parameters: Vec<_> =
        parameters.iter().map(|(name, description)| parameter(name, description, "string")).collect();
    if action == "patch" {
        parameters.push(parameter("force", "Whether an apply takes fields over from other owners.", "boolean"));
    }
    let name = schema_name(kind);
    let object = json!({"schema": reference(&name)});
    let answer = if action == "list" { json!({"schema": reference(&format!("{name}List"))}) } else { object.clone() };
    let mut operation = json!({
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": group_version_kind(kind, kind.name()),
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": answer}}},
    });
    let any = json!({"schema": {"type": "object"}});
    match action {
        "post" | "put" => operation["requestBody"] = json!({"required": true, "content": {"application/json": object}}),
        "patch" => {
            operation["requestBody"] = json!({"required": true, "content": {
                "application/apply-patch+yaml": any, "application/json-patch+json": any, "application/merge-patch+json": any,
            }});
        }
        _ => {}
    }
    operation
}
