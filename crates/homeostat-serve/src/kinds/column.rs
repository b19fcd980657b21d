//! The columns of tables.

use std::fmt;

use serde_json::Value;

use super::json_path::JsonPath;
use homeostat_objects::{SharedObject, ValueRef};

/// A column in the output of `kubectl get`.
///
/// # Examples
///
/// ```
/// use homeostat_serve::PrintColumn;
///
/// let pages = PrintColumn::new("Pages", "integer", ".status.pages").description("The number of pages.");
/// let ready = PrintColumn::new("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#);
/// let node = PrintColumn::new("Node", "string", ".spec.nodeName").wide();
/// # let _ = (pages, ready, node);
/// ```
#[derive(Clone, Debug)]
pub struct PrintColumn {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i32,
    source: CellSource,
}

/// Where the values of a column come from.
#[derive(Clone)]
enum CellSource {
    /// A path, which is parsed when the kind is registered.
    Unread(String),
    Path(JsonPath),
    Computed(fn(&SharedObject) -> Value),
}

impl PrintColumn {
    /// Creates a column with this name, type and JSON path.
    ///
    /// The type is `string`, `integer`, `number`, `boolean` or `date`. A date is shown as an age. The path has the
    /// same form as in the print columns of a Kubernetes definition: `.spec.title`, `.spec.ports[0]`,
    /// `.metadata.labels['app']`, or a condition as in the example above. If it selects several values, the first one
    /// is shown.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: impl Into<String>, path: impl Into<String>) -> Self {
        Self::of(name, kind, CellSource::Unread(path.into()))
    }

    /// Creates a column with computed values.
    pub(super) fn computed(name: &str, kind: &str, value: fn(&SharedObject) -> Value) -> Self {
        Self::of(name, kind, CellSource::Computed(value))
    }

    fn of(name: impl Into<String>, kind: impl Into<String>, source: CellSource) -> Self {
        let (format, description) = (String::new(), String::new());
        Self { name: name.into(), kind: kind.into(), format, description, priority: 0, source }
    }

    /// Sets the description.
    #[must_use]
    pub fn description(self, description: impl Into<String>) -> Self {
        Self { description: description.into(), ..self }
    }

    /// Sets the format of the type, such as `int32` or `name`.
    #[must_use]
    pub fn format(self, format: impl Into<String>) -> Self {
        Self { format: format.into(), ..self }
    }

    /// Sets the priority. A column with a priority above 0 is shown only with `-o wide`.
    #[must_use]
    pub fn priority(self, priority: i32) -> Self {
        Self { priority, ..self }
    }

    /// Shows the column only with `-o wide`.
    #[must_use]
    pub fn wide(self) -> Self {
        self.priority(1)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_date(&self) -> bool {
        self.kind == "date"
    }

    /// Returns the head of the column in a table.
    pub(crate) fn head(&self) -> Value {
        let Self { name, kind, format, description, priority, .. } = self;
        // A table has no dates, because the server formats them.
        let kind = if self.is_date() { "string" } else { kind };
        serde_json::json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
    }

    /// Returns an object's value in this column, or null if it is missing.
    pub(crate) fn value(&self, object: &SharedObject) -> Value {
        match &self.source {
            CellSource::Path(path) => path.first(object.as_value()).map_or(Value::Null, ValueRef::to_value),
            CellSource::Computed(value) => value(object),
            CellSource::Unread(_) => Value::Null,
        }
    }

    /// Parses the path.
    pub(super) fn read(mut self) -> Result<Self, String> {
        if let CellSource::Unread(path) = &self.source {
            let path = path.parse().map_err(|fault| format!("the path {path:?} of column {:?}: {fault}", self.name))?;
            self.source = CellSource::Path(path);
        }
        match self.kind.as_str() {
            "string" | "integer" | "number" | "boolean" | "date" => Ok(self),
            other => Err(format!("the type {other:?} of column {:?} is unknown", self.name)),
        }
    }
}

impl fmt::Debug for CellSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unread(path) => path.fmt(f),
            Self::Path(path) => path.fmt(f),
            Self::Computed(_) => f.write_str("computed"),
        }
    }
}
