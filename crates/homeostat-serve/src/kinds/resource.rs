//! One served kind.

use std::sync::Arc;

use serde_json::Value;

use super::column::ServedColumn;
use crate::admission::{AdmissionHooks, AdmissionRequest, Rejection, StructuralSchema};
use homeostat_objects::{DefinitionError, Kind, KindDefinition, PrintColumn};

/// A kind that an [`ObjectApi`](crate::ObjectApi) serves: its definition and its hooks.
///
/// A [`KindDefinition`] or a [`Kind`] alone is a served kind without hooks.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Kind, KindDefinition, PrintColumn};
/// use homeostat_serve::{Rejection, ServedResource};
///
/// let sites = KindDefinition::new(Kind::namespaced("example.com", "v1", "Site"))
///     .short_name("si")
///     .column(PrintColumn::string("Title", ".spec.title"));
/// let sites = ServedResource::new(sites).validate(|request, site| match site["spec"]["title"].as_str() {
///     Some("admin") if request.user.name != "root" => Err(Rejection::forbidden("only root may use this title")),
///     _ => Ok(()),
/// });
/// # let _ = sites;
/// ```
#[derive(Clone, Debug)]
pub struct ServedResource {
    pub(super) definition: KindDefinition,
    /// All columns. The registry fills them in. Predefined kinds have their own.
    pub(super) columns: Vec<ServedColumn>,
    /// The compiled schema of a registered kind.
    pub(super) schema: Option<StructuralSchema>,
    pub(super) hooks: AdmissionHooks,
    pub(super) source: ObjectSource,
}

/// The metadata fields that field selectors can use.
const METADATA: [&str; 9] = [
    "annotations",
    "creationTimestamp",
    "deletionTimestamp",
    "generateName",
    "generation",
    "labels",
    "name",
    "namespace",
    "uid",
];

/// Where the objects of a kind come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ObjectSource {
    /// The client stores them.
    #[default]
    Stored,
    /// They are events in the [core form](ServedResource::core_event_view). The client stores them in the newer form.
    Events,
    /// They are [virtual namespaces](ServedResource::virtual_namespaces), which are not stored.
    Namespaces,
}

impl ServedResource {
    /// Creates a kind without hooks.
    #[must_use]
    pub fn new(definition: impl Into<KindDefinition>) -> Self {
        Self {
            definition: definition.into(),
            columns: Vec::new(),
            schema: None,
            hooks: AdmissionHooks::default(),
            source: ObjectSource::default(),
        }
    }

    /// Adds a hook that changes objects before they are checked and written.
    ///
    /// Hooks run in the order of registration, for each creation and each change of an object or its status, and in
    /// dry runs too. A hook may run several times for one request. It must not change the kind, the namespace or the
    /// name.
    #[must_use]
    pub fn mutate(
        mut self,
        hook: impl Fn(&AdmissionRequest<'_>, &mut Value) -> Result<(), Rejection> + Send + Sync + 'static,
    ) -> Self {
        self.hooks.mutate.push(Arc::new(hook));
        self
    }

    /// Adds a hook that checks objects before they are written, after the schema check. All hooks of a kind run, and
    /// all invalid fields are reported together.
    #[must_use]
    pub fn validate(
        mut self,
        hook: impl Fn(&AdmissionRequest<'_>, &Value) -> Result<(), Rejection> + Send + Sync + 'static,
    ) -> Self {
        self.hooks.validate.push(Arc::new(hook));
        self
    }

    /// Adds a hook that checks each request to delete an object.
    ///
    /// It does not run for deletions by the program itself, or for dependents that are deleted because their owner is
    /// gone.
    #[must_use]
    pub fn validate_deletion(
        mut self,
        hook: impl Fn(&AdmissionRequest<'_>, &Value) -> Result<(), Rejection> + Send + Sync + 'static,
    ) -> Self {
        self.hooks.delete.push(Arc::new(hook));
        self
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        self.definition.kind()
    }

    /// Checks the definition, and compiles its columns and its schema.
    pub(super) fn compile(&mut self) -> Result<(), DefinitionError> {
        self.definition.check()?;
        if self.columns.is_empty() {
            let name = PrintColumn::string("Name", ".metadata.name")
                .format("name")
                .description("The name of the object, unique for its kind and namespace.");
            self.columns = std::iter::once(name).chain(self.definition.columns()).map(ServedColumn::from).collect();
        }
        let schema = StructuralSchema::of(&self.definition);
        self.schema = schema.map_err(|fault| DefinitionError::new(self.kind(), fault))?;
        Ok(())
    }

    pub(crate) fn definition(&self) -> &KindDefinition {
        &self.definition
    }

    pub(crate) fn hooks(&self) -> &AdmissionHooks {
        &self.hooks
    }

    pub(crate) fn compiled_schema(&self) -> Option<&StructuralSchema> {
        self.schema.as_ref()
    }

    pub(crate) fn has_status(&self) -> bool {
        self.definition.has_status()
    }

    pub(crate) fn columns(&self) -> &[ServedColumn] {
        &self.columns
    }

    /// Returns whether field selectors can use the field at this path. If the definition names no fields, they can use
    /// those that the schema knows, or any field if there is no schema.
    pub(crate) fn is_selectable(&self, path: &str) -> bool {
        let selectable = self.definition.selectable_fields();
        match (path.split_once('.'), &self.schema) {
            (Some(("metadata", field)), _) if !selectable.is_empty() => ["name", "namespace"].contains(&field),
            (Some(("metadata", field)), _) => METADATA
                .iter()
                .any(|known| field.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))),
            _ if !selectable.is_empty() => selectable.iter().any(|known| known.trim_start_matches('.') == path),
            (_, Some(schema)) => schema.knows(path),
            (_, None) => true,
        }
    }

    pub(crate) fn source(&self) -> ObjectSource {
        self.source
    }

    /// Returns whether writes need admission, because there are a schema or hooks.
    pub(crate) fn admits_writes(&self) -> bool {
        self.schema.is_some() || !self.hooks.ignore_writes()
    }
}

impl From<KindDefinition> for ServedResource {
    fn from(definition: KindDefinition) -> Self {
        Self::new(definition)
    }
}

impl From<Kind> for ServedResource {
    fn from(kind: Kind) -> Self {
        Self::new(kind)
    }
}
