//! One served kind.

use std::any::TypeId;
use std::sync::Arc;

use serde_json::Value;

use super::column::PrintColumn;
use crate::objects::{Kind, Object};
use crate::serve::admission::{AdmissionHooks, AdmissionRequest, Rejection, StructuralSchema};

/// A kind that an [`ObjectApi`](crate::serve::ObjectApi) serves: its names, columns, schema and hooks.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{Kind, ObjectMeta};
/// use homeostat::serve::{PrintColumn, Rejection, ServedResource};
/// use serde::{Deserialize, Serialize};
/// use serde_json::json;
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Site {
///     metadata: ObjectMeta,
///     spec: SiteSpec,
/// }
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct SiteSpec {
///     title: String,
/// }
///
/// homeostat::object!(Site, namespaced, "example.com", "v1");
///
/// let sites = ServedResource::of::<Site>()
///     .short_name("si")
///     .category("all")
///     .column(PrintColumn::new("Title", "string", ".spec.title"))
///     // With the crate `schemars`: `.schema(schemars::schema_for!(Site).to_value())`
///     .schema(json!({"type": "object", "required": ["spec"], "properties": {
///         "spec": {"type": "object", "required": ["title"], "properties": {"title": {"type": "string", "minLength": 1}}},
///     }}))
///     .validate(|request, site| match site["spec"]["title"].as_str() {
///         Some("admin") if request.user.name != "root" => Err(Rejection::forbidden("only root may use this title")),
///         _ => Ok(()),
///     });
/// # let _ = sites;
/// ```
#[derive(Clone, Debug)]
pub struct ServedResource {
    pub(super) kind: Kind,
    pub(super) singular: String,
    pub(super) short_names: Vec<String>,
    pub(super) categories: Vec<String>,
    pub(super) has_status: bool,
    pub(super) columns: Vec<PrintColumn>,
    /// Whether the columns of the name and the age are among the columns, if they are shown at all.
    pub(super) has_all_columns: bool,
    /// The fields beside the name and namespace by which objects can be selected. `None`: those that the schema knows.
    pub(super) selectable: Option<&'static [&'static str]>,
    /// The schema as given, until the kind is registered.
    pub(super) given_schema: Option<Value>,
    pub(super) schema: Option<StructuralSchema>,
    pub(super) hooks: AdmissionHooks,
    pub(super) source: ObjectSource,
}

/// The fields of the metadata by which objects can be selected.
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

/// The source of the objects of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ObjectSource {
    /// The client stores them.
    #[default]
    Stored,
    /// They are the [core form](ServedResource::core_event_view) of events that the client stores in their newer form.
    Events,
    /// They are [virtual namespaces](ServedResource::virtual_namespaces). Nothing is stored for them.
    Namespaces,
}

impl ServedResource {
    /// Returns a kind with a status, without a schema. Its plural is the plural of the kind.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self {
            singular: kind.name().to_lowercase(),
            kind,
            short_names: Vec::new(),
            categories: Vec::new(),
            has_status: true,
            columns: Vec::new(),
            has_all_columns: false,
            selectable: None,
            given_schema: None,
            schema: None,
            hooks: AdmissionHooks::default(),
            source: ObjectSource::default(),
        }
    }

    /// Returns the kind of a type. It has a status if the type has one.
    #[must_use]
    pub fn of<T: Object>() -> Self {
        const { T::KIND.assert_known() };
        Self::new(T::KIND).with_status(TypeId::of::<T::Status>() != TypeId::of::<()>())
    }

    /// Sets the singular. Default: the name of the kind in lower case.
    #[must_use]
    pub fn singular(self, singular: impl Into<String>) -> Self {
        Self { singular: singular.into(), ..self }
    }

    /// Adds a short name, such as `si`, for `kubectl get si`.
    #[must_use]
    pub fn short_name(mut self, name: impl Into<String>) -> Self {
        self.short_names.push(name.into());
        self
    }

    /// Adds a category, such as `all`, for `kubectl get all`.
    #[must_use]
    pub fn category(mut self, category: impl Into<String>) -> Self {
        self.categories.push(category.into());
        self
    }

    /// Sets whether the kind has the subresource `status`.
    #[must_use]
    pub fn with_status(self, has_status: bool) -> Self {
        Self { has_status, ..self }
    }

    /// Adds a column after the name. The last column is the age, unless a column has the name `Age`.
    #[must_use]
    pub fn column(mut self, column: PrintColumn) -> Self {
        self.columns.push(column);
        self
    }

    /// Sets the schema of the objects: a structural schema of Kubernetes, or the schema that the crate `schemars` makes of a type.
    ///
    /// Fields that the schema does not know are not stored. Missing fields get the defaults of the schema. Objects that do not match
    /// are refused. The schema cannot describe `apiVersion`, `kind` and `metadata`.
    ///
    /// A keyword that would not be checked makes [`build`](crate::serve::ObjectApiBuilder::build) fail with its name:
    /// rules in CEL, `if`, `dependentSchemas`, `unevaluatedItems`, and all unknown ones. Write a [hook](Self::validate)
    /// instead. A `format` that is unknown, and extensions that begin with `x-` but not with `x-kubernetes-`, have no
    /// effect.
    ///
    /// Clients can select objects by the fields that the schema knows:
    /// `kubectl get sites --field-selector spec.title=Home`.
    ///
    /// Without a schema, all fields are stored as they are.
    #[must_use]
    pub fn schema(self, schema: Value) -> Self {
        Self { given_schema: Some(schema), ..self }
    }

    /// Adds a hook that changes objects before they are checked and written.
    ///
    /// Hooks run in the order of their registration, for each creation and change of an object or its status, also for dry runs. A
    /// hook can run several times for one request. It must not change the kind, the namespace or the name.
    #[must_use]
    pub fn mutate(
        mut self,
        hook: impl Fn(&AdmissionRequest<'_>, &mut Value) -> Result<(), Rejection> + Send + Sync + 'static,
    ) -> Self {
        self.hooks.mutate.push(Arc::new(hook));
        self
    }

    /// Adds a hook that checks objects before they are written, after the schema was checked. All hooks of a kind run, and all
    /// invalid fields are reported together.
    #[must_use]
    pub fn validate(
        mut self,
        hook: impl Fn(&AdmissionRequest<'_>, &Value) -> Result<(), Rejection> + Send + Sync + 'static,
    ) -> Self {
        self.hooks.validate.push(Arc::new(hook));
        self
    }

    /// Adds a hook that is asked before a request deletes an object.
    ///
    /// It is not asked about deletions by the program itself, nor about dependents that are deleted because their owner is gone.
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
        &self.kind
    }

    pub(crate) fn hooks(&self) -> &AdmissionHooks {
        &self.hooks
    }

    pub(crate) fn compiled_schema(&self) -> Option<&StructuralSchema> {
        self.schema.as_ref()
    }

    pub(crate) fn has_status(&self) -> bool {
        self.has_status
    }

    pub(crate) fn singular_name(&self) -> &str {
        &self.singular
    }

    pub(crate) fn short_names(&self) -> &[String] {
        &self.short_names
    }

    pub(crate) fn categories(&self) -> &[String] {
        &self.categories
    }

    pub(crate) fn columns(&self) -> &[PrintColumn] {
        &self.columns
    }

    /// Returns whether objects can be selected by the field at this path. Without a schema, by any field.
    pub(crate) fn is_selectable(&self, path: &str) -> bool {
        match (path.split_once('.'), self.selectable, &self.schema) {
            (Some(("metadata", field)), Some(_), _) => ["name", "namespace"].contains(&field),
            (Some(("metadata", field)), None, _) => METADATA
                .iter()
                .any(|known| field.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))),
            (_, Some(selectable), _) => selectable.contains(&path),
            (_, None, Some(schema)) => schema.knows(path),
            (_, None, None) => true,
        }
    }

    pub(crate) fn source(&self) -> ObjectSource {
        self.source
    }

    /// Returns whether a write must be admitted: it has a schema or hooks.
    pub(crate) fn admits_writes(&self) -> bool {
        self.schema.is_some() || !self.hooks.ignore_writes()
    }
}
