//! One version of a kind in its definition.

use std::any::TypeId;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::error::SchemaError;
use super::structural::structural;
use super::written::widen;
use homeostat_objects::{Kind, Object};

/// A version of a kind in a [`CustomResourceDefinition`](super::CustomResourceDefinition), generated from its Rust
/// type.
///
/// The type has the subresource `status` if its [`Object::Status`] is not `()`.
#[derive(Clone, Debug)]
#[must_use = "a version does nothing until it is part of a definition"]
pub struct CrdVersion {
    pub(super) kind: Kind,
    pub(super) schema: Result<Value, SchemaError>,
    served: bool,
    deprecated: Option<String>,
    has_status: bool,
    scale: Option<Value>,
    columns: Vec<Value>,
    selectable_fields: Vec<Value>,
}

impl CrdVersion {
    /// Creates the version that this type describes. Servers serve it.
    pub fn of<T: Object + JsonSchema>() -> Self {
        const { T::KIND.assert_known() };
        let settings = SchemaSettings::draft2020_12();
        let read = settings.clone().for_deserialize().into_generator().into_root_schema_for::<T>();
        let written = settings.for_serialize().into_generator().into_root_schema_for::<T>();
        let has_status = TypeId::of::<T::Status>() != TypeId::of::<()>();
        Self {
            kind: T::KIND,
            schema: object_schema(read.as_value(), written.as_value(), has_status),
            served: true,
            deprecated: None,
            has_status,
            scale: None,
            columns: Vec::new(),
            selectable_fields: Vec::new(),
        }
    }

    /// Adds a column to the output of `kubectl get`. `of` is the type of its values (`string`, `integer`, `number`,
    /// `boolean` or `date`), and `path` the path of the value, such as `.status.pages`.
    ///
    /// With such columns, the column AGE disappears. Add it with `.column("Age", "date",
    /// ".metadata.creationTimestamp")`.
    pub fn column(self, name: &str, of: &str, path: &str) -> Self {
        self.with_column(json!({"name": name, "type": of, "jsonPath": path}))
    }

    /// Adds a column that `kubectl get` shows with `-o wide`.
    pub fn wide_column(self, name: &str, of: &str, path: &str) -> Self {
        self.with_column(json!({"name": name, "type": of, "jsonPath": path, "priority": 1}))
    }

    fn with_column(mut self, column: Value) -> Self {
        self.columns.push(column);
        self
    }

    /// Adds the subresource `scale` for `kubectl scale`, with the paths of the desired and the current number, such as
    /// `.spec.replicas` and `.status.replicas`. A `HorizontalPodAutoscaler` also needs [a
    /// selector](Self::scale_with_selector).
    pub fn scale(self, desired: &str, current: &str) -> Self {
        Self { scale: Some(json!({"specReplicasPath": desired, "statusReplicasPath": current})), ..self }
    }

    /// Adds the subresource `scale` with the path of a label selector for the pods, such as `.status.selector`.
    ///
    /// The selector in the object is a text, such as `app=web`, by which a `HorizontalPodAutoscaler` finds the pods.
    pub fn scale_with_selector(self, desired: &str, current: &str, selector: &str) -> Self {
        let paths = json!({"specReplicasPath": desired, "statusReplicasPath": current, "labelSelectorPath": selector});
        Self { scale: Some(paths), ..self }
    }

    /// Allows clients to select objects by a field, such as `.spec.colour`, with `kubectl get --field-selector
    /// spec.colour=blue`.
    ///
    /// The field must be a text, an integer or a boolean, and must not be in `metadata`. A version has at most eight
    /// such fields. Servers before Kubernetes 1.30 refuse the definition.
    pub fn selectable_field(mut self, path: &str) -> Self {
        self.selectable_fields.push(json!({"jsonPath": path}));
        self
    }

    /// Marks the version as deprecated. Servers send the warning to its clients.
    pub fn deprecated(self, warning: &str) -> Self {
        Self { deprecated: Some(warning.to_owned()), ..self }
    }

    /// Makes servers refuse requests for the version.
    pub fn not_served(self) -> Self {
        Self { served: false, ..self }
    }

    pub(super) fn is_served(&self) -> bool {
        self.served
    }

    /// Returns the version's entry in the definition.
    pub(super) fn to_json(&self, is_stored: bool) -> Result<Value, SchemaError> {
        let mut json = json!({
            "name": self.kind.version(),
            "served": self.served,
            "storage": is_stored,
            "schema": {"openAPIV3Schema": self.schema.clone()?},
        });
        let mut subresources = json!({});
        if self.has_status {
            subresources["status"] = json!({});
        }
        if let Some(scale) = &self.scale {
            subresources["scale"] = scale.clone();
        }
        if subresources != json!({}) {
            json["subresources"] = subresources;
        }
        if let Some(warning) = &self.deprecated {
            json["deprecated"] = true.into();
            json["deprecationWarning"] = warning.as_str().into();
        }
        if !self.columns.is_empty() {
            json["additionalPrinterColumns"] = self.columns.clone().into();
        }
        if !self.selectable_fields.is_empty() {
            json["selectableFields"] = self.selectable_fields.clone().into();
        }
        Ok(json)
    }
}

/// Returns the structural schema of a kind, given its JSON schemas for reading and for writing.
fn object_schema(read: &Value, written: &Value, has_status: bool) -> Result<Value, SchemaError> {
    let mut schema = structural(read)?;
    widen(&mut schema, &structural(written)?);
    if has_status {
        // At the root of a kind with a status, a server allows no other keywords.
        schema.retain(|keyword, _| {
            let allowed = ["description", "properties", "required", "type"];
            allowed.contains(&keyword.as_str()) || keyword.starts_with("x-kubernetes-")
        });
    }
    Ok(Value::Object(schema))
}
