//! A version of a kind in its definition.

use std::any::TypeId;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::error::SchemaError;
use super::structural::structural;
use crate::objects::{Kind, Object};

/// A version of a kind in a [`CustomResourceDefinition`](super::CustomResourceDefinition), made from its Rust type.
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
}

impl CrdVersion {
    /// Returns the version that this type describes. It is served.
    pub fn of<T: Object + JsonSchema>() -> Self {
        const { T::KIND.assert_known() };
        let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
        Self {
            kind: T::KIND,
            schema: structural(schema.as_value()),
            served: true,
            deprecated: None,
            has_status: TypeId::of::<T::Status>() != TypeId::of::<()>(),
            scale: None,
            columns: Vec::new(),
        }
    }

    /// Adds a column to the tables of `kubectl get`: its name, the type of its values (`string`, `integer`, `number`, `boolean`
    /// or `date`), and the path of the value, such as `.status.pages`.
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

    /// Adds the subresource `scale`, with the paths of the desired and of the current number, such as `.spec.replicas` and
    /// `.status.replicas`.
    pub fn scale(self, desired: &str, current: &str) -> Self {
        Self { scale: Some(json!({"specReplicasPath": desired, "statusReplicasPath": current})), ..self }
    }

    /// Marks the version as deprecated. Servers send the warning to clients that use the version.
    pub fn deprecated(self, warning: &str) -> Self {
        Self { deprecated: Some(warning.to_owned()), ..self }
    }

    /// Makes the server refuse requests for the version.
    pub fn not_served(self) -> Self {
        Self { served: false, ..self }
    }

    pub(super) fn is_served(&self) -> bool {
        self.served
    }

    /// Returns the entry of the version in the definition.
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
        Ok(json)
    }
}
