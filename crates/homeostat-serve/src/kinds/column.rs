//! The columns of tables.

use std::fmt;

use serde_json::{Value, json};

use homeostat_objects::{PrintColumn, SharedObject};

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct ServedColumn {
    head: Value,
    is_date: bool,
    source: CellSource,
}

/// Computes an object's value in a column.
pub(super) type ComputedValue = fn(&SharedObject) -> Value;

/// Where the values of a column come from.
#[derive(Clone)]
enum CellSource {
    Path(PrintColumn),
    Computed(ComputedValue),
}

impl ServedColumn {
    /// Creates a column with computed values. Takes the name, type, format, description and priority from `like`.
    pub(super) fn computed(like: &PrintColumn, value: ComputedValue) -> Self {
        Self::new(like, CellSource::Computed(value))
    }

    fn new(column: &PrintColumn, source: CellSource) -> Self {
        let mut head = json!({"format": "", "description": "", "priority": 0});
        if let (Value::Object(head), Value::Object(mut column)) = (&mut head, column.to_json()) {
            column.remove("jsonPath");
            head.append(&mut column);
        }
        let is_date = head["type"] == "date";
        if is_date {
            // A table has no dates, because the server formats them.
            head["type"] = "string".into();
        }
        Self { head, is_date, source }
    }

    pub(crate) fn is_date(&self) -> bool {
        self.is_date
    }

    /// Returns the head of the column.
    pub(crate) fn head(&self) -> &Value {
        &self.head
    }

    /// Returns an object's value in this column, or null if it is missing.
    pub(crate) fn value(&self, object: &SharedObject) -> Value {
        match &self.source {
            CellSource::Path(column) => column.value(object),
            CellSource::Computed(value) => value(object),
        }
    }
}

impl From<PrintColumn> for ServedColumn {
    fn from(column: PrintColumn) -> Self {
        Self::new(&column.clone(), CellSource::Path(column))
    }
}

impl fmt::Debug for CellSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(column) => column.fmt(f),
            Self::Computed(_) => f.write_str("computed"),
        }
    }
}
