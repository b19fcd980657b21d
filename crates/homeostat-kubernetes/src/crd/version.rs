//! One version of a kind in its definition.

use serde_json::{Value, json};

use super::structural::structural;
use super::written::widen;
use homeostat_objects::{DefinitionError, KindDefinition, PrintColumn, SchemaError};

/// Returns a version's entry in the definition.
pub(super) fn version(definition: &KindDefinition, is_stored: bool) -> Result<Value, DefinitionError> {
    definition.check()?;
    let schema = object_schema(definition).map_err(|error| DefinitionError::new(definition.kind(), error))?;
    let columns: Vec<_> = definition.columns().map(|column| PrintColumn::to_json(&column)).collect();
    let mut json = json!({
        "name": definition.kind().version(),
        "served": definition.is_served(),
        "storage": is_stored,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns,
    });
    if definition.has_status() {
        json["subresources"]["status"] = json!({});
    }
    if let Some(scale) = definition.scale_paths() {
        json["subresources"]["scale"] = scale.clone();
    }
    if let Some(warning) = definition.deprecation() {
        json["deprecated"] = true.into();
        json["deprecationWarning"] = warning.into();
    }
    let selectable: Vec<_> = definition.selectable_fields().iter().map(|path| json!({"jsonPath": path})).collect();
    if !selectable.is_empty() {
        json["selectableFields"] = selectable.into();
    }
    Ok(json)
}

/// Returns the structural schema of a kind.
pub(super) fn object_schema(definition: &KindDefinition) -> Result<Value, SchemaError> {
    let (Some(read), Some(written)) = (definition.read_schema(), definition.written_schema()) else {
        return Ok(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    };
    let mut schema = structural(read)?;
    widen(&mut schema, &structural(written)?);
    if definition.has_status() {
        // At the root of a kind with a status, a server allows no other keywords.
        schema.retain(|keyword, _| {
            let allowed = ["description", "properties", "required", "type"];
            allowed.contains(&keyword.as_str()) || keyword.starts_with("x-kubernetes-")
        });
    }
    Ok(Value::Object(schema))
}
