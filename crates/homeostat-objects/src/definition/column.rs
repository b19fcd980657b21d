//! The columns in the output of `kubectl get`.

use serde_json::{Value, json};

use super::json_path::JsonPath;
use crate::shared::SharedObject;
use crate::value_ref::ValueRef;

/// A column in the output of `kubectl get`.
///
/// A path has the form that Kubernetes uses: `.spec.title`, `.spec.ports[0]`, `.metadata.labels['app']`, or a condition
/// as in the example. If it selects several values, the first one is shown. A faulty path is an error when the
/// [definition](super::KindDefinition::check) is used.
///
/// # Examples
///
/// ```
/// use homeostat_objects::PrintColumn;
///
/// let pages = PrintColumn::integer("Pages", ".status.pages").description("The number of pages.");
/// let ready = PrintColumn::string("Ready", r#".status.conditions[?(@.type=="Ready")].status"#);
/// let node = PrintColumn::string("Node", ".spec.nodeName").wide();
/// # let _ = (pages, ready, node);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a column does nothing until it is part of a definition"]
pub struct PrintColumn {
    name: String,
    value_type: &'static str,
    path: String,
    parsed: Result<JsonPath, String>,
    format: String,
    description: String,
    priority: i32,
}

impl PrintColumn {
    /// Creates a column of texts.
    pub fn string(name: impl Into<String>, path: impl Into<String>) -> Self {
        Self::new(name, "string", path)
    }

    /// Creates a column of integers.
    pub fn integer(name: impl Into<String>, path: impl Into<String>) -> Self {
        Self::new(name, "integer", path)
    }

    /// Creates a column of numbers, which may have a fraction.
    pub fn number(name: impl Into<String>, path: impl Into<String>) -> Self {
        Self::new(name, "number", path)
    }

    /// Creates a column of boolean values.
    pub fn boolean(name: impl Into<String>, path: impl Into<String>) -> Self {
        Self::new(name, "boolean", path)
    }

    /// Creates a column of times. `kubectl` shows the time since then.
    pub fn date(name: impl Into<String>, path: impl Into<String>) -> Self {
        Self::new(name, "date", path)
    }

    fn new(name: impl Into<String>, value_type: &'static str, path: impl Into<String>) -> Self {
        let (name, path) = (name.into(), path.into());
        let (format, description) = (String::new(), String::new());
        Self { parsed: path.parse(), name, value_type, path, format, description, priority: 0 }
    }

    /// Sets the description.
    pub fn description(self, description: impl Into<String>) -> Self {
        Self { description: description.into(), ..self }
    }

    /// Sets the format of the type, such as `int32` or `name`.
    pub fn format(self, format: impl Into<String>) -> Self {
        Self { format: format.into(), ..self }
    }

    /// Sets the priority. A column with a priority above 0 is shown only with `-o wide`.
    pub fn priority(self, priority: i32) -> Self {
        Self { priority, ..self }
    }

    /// Shows the column only with `-o wide`.
    pub fn wide(self) -> Self {
        self.priority(1)
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads a column of a definition of Kubernetes.
    pub(super) fn from_json(json: &Value) -> Self {
        let text = |field: &str| json[field].as_str().unwrap_or_default();
        let types = ["boolean", "date", "integer", "number"];
        let value_type = types.into_iter().find(|name| *name == text("type")).unwrap_or("string");
        let priority = json["priority"].as_i64().and_then(|priority| priority.try_into().ok()).unwrap_or_default();
        Self::new(text("name"), value_type, text("jsonPath"))
            .format(text("format"))
            .description(text("description"))
            .priority(priority)
    }

    /// Returns the column as it appears in a definition of Kubernetes.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Self { name, value_type, path, format, description, priority, .. } = self;
        let mut json = json!({"name": name, "type": value_type, "jsonPath": path});
        for (field, text) in [("format", format), ("description", description)] {
            if !text.is_empty() {
                json[field] = text.as_str().into();
            }
        }
        if *priority != 0 {
            json["priority"] = (*priority).into();
        }
        json
    }

    /// Returns an object's value in this column, or null if it has none.
    #[must_use]
    pub fn value(&self, object: &SharedObject) -> Value {
        let path = self.parsed.as_ref().ok();
        path.and_then(|path| path.first(object.as_value())).map_or(Value::Null, ValueRef::to_value)
    }

    /// Returns the fault in the path.
    pub(super) fn fault(&self) -> Option<String> {
        let fault = self.parsed.as_ref().err()?;
        Some(format!("the path {:?} of column {:?}: {fault}", self.path, self.name))
    }
}
