//! The JSON schemas of metadata and conditions, for types that contain them. Feature `schema`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::condition::{Condition, ConditionStatus};
use super::meta::ObjectMeta;

/// An object with any fields. For the metadata of an object, the API server knows the fields; for a template inside an
/// object, it keeps all.
impl JsonSchema for ObjectMeta {
    fn schema_name() -> Cow<'static, str> {
        "ObjectMeta".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "additionalProperties": true})
    }
}

impl JsonSchema for ConditionStatus {
    fn schema_name() -> Cow<'static, str> {
        "ConditionStatus".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": ["True", "False", "Unknown"]})
    }
}

impl JsonSchema for Condition {
    fn schema_name() -> Cow<'static, str> {
        "Condition".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "An observation about the object.",
            "required": ["type", "status"],
            // A list of conditions is a map by their types.
            "x-list-map-keys": ["type"],
            "properties": {
                "type": {"type": "string"},
                "status": generator.subschema_for::<ConditionStatus>(),
                "reason": {"type": "string"},
                "message": {"type": "string"},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "observedGeneration": {"type": "integer", "format": "int64"},
            },
        })
    }
}
