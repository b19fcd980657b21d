//! The errors of definitions and schemas.

use std::error::Error;
use std::fmt;

use homeostat::rt::debug_with_causes;

/// The error for a definition that cannot be used. It names the kind and the fault.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Kind, KindDefinition, PrintColumn};
///
/// let pages = PrintColumn::integer("Pages", "status");
/// let error = KindDefinition::new(Kind::namespaced("example.com", "v1", "Site")).column(pages).check().unwrap_err();
/// let expected = r#"Site.example.com/v1: the path "status" of column "Pages": "status" must begin with a dot or a bracket"#;
/// assert_eq!(error.to_string(), expected);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct DefinitionError {
    /// The name of the kind.
    subject: String,
    fault: String,
}

impl DefinitionError {
    /// Creates the error of the kind `subject`.
    pub fn new(subject: impl fmt::Display, fault: impl fmt::Display) -> Self {
        Self { subject: subject.to_string(), fault: fault.to_string() }
    }
}

impl fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.fault)
    }
}

debug_with_causes!(DefinitionError);

impl Error for DefinitionError {}

/// The error for a schema that cannot be used. It names the field and the fault.
#[derive(Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// Empty for the whole object.
    path: String,
    fault: String,
}

impl SchemaError {
    /// Creates the error of the field at a path, such as `["spec", "title"]`.
    pub fn new(path: &[String], fault: impl Into<String>) -> Self {
        Self { path: path.join("."), fault: fault.into() }
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, fault } = self;
        if path.is_empty() {
            write!(f, "the schema is unusable: {fault}")
        } else {
            write!(f, "the schema of {path} is unusable: {fault}")
        }
    }
}

debug_with_causes!(SchemaError);

impl Error for SchemaError {}
