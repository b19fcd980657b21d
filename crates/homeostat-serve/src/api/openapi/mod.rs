//! `OpenAPI` documents. `kubectl explain` reads the schemas, and `kubectl apply` the parameters of a patch.

mod meta;
mod paths;
mod second;

use std::collections::BTreeMap;

use http::header::VARY;
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use super::accept::{JSON, accepts};
use crate::http::{IncomingRequest, Reply};
use crate::kinds::{KindRegistry, ServedResource};
use homeostat_objects::Kind;

/// The media types by which clients request the second version in protocol buffers. The second one is also the type of
/// the answer: a media type with `@` is malformed, so clients that parse the answer's type would refuse it.
const V2_ACCEPTED: [&str; 2] = ["application/com.github.proto-openapi.spec.v2@v1.0+protobuf", V2_MEDIA];
const V2_MEDIA: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The documents of all groups and versions.
#[derive(Debug)]
pub(super) struct OpenApiDocuments {
    index: String,
    /// The documents by their location, such as `api/v1` or `apis/example.com/v1`.
    documents: BTreeMap<String, String>,
    /// The second version with all schemas and paths, as JSON and in protocol buffers.
    second: (String, Vec<u8>),
}

impl OpenApiDocuments {
    pub(super) fn new(kinds: &KindRegistry) -> Self {
        let mut values = BTreeMap::new();
        for (group, versions) in kinds.groups() {
            for version in versions {
                let place = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
                values.insert(place, document(kinds, group, version));
            }
        }
        let second = second::document(values.values());
        let documents: BTreeMap<_, _> =
            values.iter().map(|(place, value)| (place.clone(), value.to_string())).collect();
        let entry = |(place, text): (&String, &String)| {
            let url = format!("/openapi/v3/{place}?hash={:016X}", hash(text.as_bytes()));
            (place.clone(), json!({"serverRelativeURL": url}))
        };
        let paths: Map<_, _> = documents.iter().map(entry).collect();
        let second = (second.to_string(), second::encoded(&second));
        Self { index: json!({"paths": paths}).to_string(), documents, second }
    }

    /// Returns the answer for the segments after `/openapi`, or `None` for an unknown path.
    pub(super) fn reply(&self, request: &IncomingRequest, segments: &[String]) -> Option<Reply> {
        let text = match segments.split_first() {
            Some((first, [])) if first == "v2" => return Some(self.second_version(request)),
            Some((first, [])) if first == "v3" => &self.index,
            Some((first, rest)) if first == "v3" => self.documents.get(&rest.join("/"))?,
            _ => return None,
        };
        Some(Reply::new(StatusCode::OK, JSON, text.as_str()))
    }

    fn second_version(&self, request: &IncomingRequest) -> Reply {
        let (json, message) = &self.second;
        let is_message = V2_ACCEPTED.iter().any(|media| accepts(request, media));
        let mut reply = if is_message {
            Reply::new(StatusCode::OK, V2_MEDIA, message.clone())
        } else {
            Reply::new(StatusCode::OK, JSON, json.as_str())
        };
        reply.headers.insert(VARY, HeaderValue::from_static("accept"));
        reply
    }
}

/// Returns the 64-bit FNV-1a hash of a text.
pub(super) fn hash(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn document(kinds: &KindRegistry, group: &str, version: &str) -> Value {
    let mut schemas = meta::schemas();
    let mut all = Map::new();
    for resource in kinds.of_version(group, version) {
        let kind = resource.kind();
        let name = schema_name(kind);
        schemas.insert(format!("{name}List"), list_schema(kind, &name));
        schemas.insert(name, object_schema(resource));
        all.extend(paths::of_resource(resource));
    }
    json!({
        "openapi": "3.0.0", "info": {"title": "homeostat", "version": env!("CARGO_PKG_VERSION")},
        "paths": all, "components": {"schemas": schemas},
    })
}

/// Returns the name of a kind's schema, such as `com.example.v1.Site`.
fn schema_name(kind: &Kind) -> String {
    if kind.group().is_empty() {
        return format!("core.{}.{}", kind.version(), kind.name());
    }
    let domain: Vec<_> = kind.group().rsplit('.').collect();
    format!("{}.{}.{}", domain.join("."), kind.version(), kind.name())
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn group_version_kind(kind: &Kind, name: &str) -> Value {
    json!({"group": kind.group(), "version": kind.version(), "kind": name})
}

fn described(name: &str, description: &str) -> Value {
    json!({"allOf": [reference(name)], "default": {}, "description": description})
}

fn object_schema(resource: &ServedResource) -> Value {
    let kind = resource.kind();
    let mut schema = if let Some(schema) = resource.compiled_schema() {
        schema.json().clone()
    } else {
        let description = format!("An object of the kind {}. It may have any fields.", kind.name());
        json!({"type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": true})
    };
    if !schema.is_object() {
        schema = json!({"type": "object"});
    }
    for (name, value) in [
        ("apiVersion", json!({"type": "string", "description": "The group and version of the kind."})),
        ("kind", json!({"type": "string", "description": "The name of the kind."})),
        ("metadata", described(meta::OBJECT_META, "The name, labels and other metadata of the object.")),
    ] {
        schema["properties"][name] = value;
    }
    schema["type"] = json!("object");
    schema["x-kubernetes-group-version-kind"] = json!([group_version_kind(kind, kind.name())]);
    schema
}

fn list_schema(kind: &Kind, name: &str) -> Value {
    json!({
        "type": "object", "required": ["items"], "description": format!("A list of objects of the kind {}.", kind.name()),
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": described(meta::LIST_META, "The version of the list, and the token of the next page."),
            "items": {"type": "array", "items": {"allOf": [reference(name)], "default": {}}},
        },
        "x-kubernetes-group-version-kind": [group_version_kind(kind, &format!("{}List", kind.name()))],
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

    use super::*;
    use homeostat_objects::KindDefinition;

    fn documents(schema: Value) -> OpenApiDocuments {
        let site = KindDefinition::new(Kind::namespaced("example.com", "v1", "Site")).schema(schema);
        OpenApiDocuments::new(&KindRegistry::new([site.into()]).unwrap())
    }

    #[test]
    fn the_hash_of_a_document_follows_its_content() {
        let url = |schema| {
            let index: Value = serde_json::from_str(&documents(schema).index).unwrap();
            index["paths"]["apis/example.com/v1"]["serverRelativeURL"].as_str().unwrap().to_owned()
        };
        let (one, other) = (json!({"type": "object"}), json!({"type": "object", "description": "A site."}));
        assert_eq!(url(one.clone()), url(one.clone()));
        assert_ne!(url(one), url(other));
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn a_document_has_schemas_and_the_parameters_of_a_patch() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "description": "The wish."}}});
        let document: Value = serde_json::from_str(&documents(schema).documents["apis/example.com/v1"]).unwrap();
        let site = &document["components"]["schemas"]["com.example.v1.Site"];
        assert_eq!(site["properties"]["spec"]["description"], "The wish.");
        assert_eq!(site["x-kubernetes-group-version-kind"][0]["kind"], "Site");
        let patch = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/sites/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["group"], "example.com");
        let names: Vec<_> = patch["parameters"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
        for name in ["dryRun", "fieldManager", "fieldValidation", "force"] {
            assert!(names.contains(&json!(name)), "{name}");
        }
        // A client that finds strategic merge patches here would send them.
        assert_eq!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json"), None);
    }

    #[test]
    fn every_reference_has_its_schema() {
        let documents = documents(json!({"type": "object"}));
        for text in documents.documents.values() {
            let document: Value = serde_json::from_str(text).unwrap();
            for part in text.split("\"#/components/schemas/").skip(1) {
                let name = part.split('"').next().unwrap();
                assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
            }
        }
    }
}
