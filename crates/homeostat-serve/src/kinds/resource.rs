//! One served kind.

use std::any::TypeId;
use std::sync::Arc;

use serde_json::Value;

use super::column::PrintColumn;
use crate::admission::{AdmissionHooks, AdmissionRequest, Rejection, StructuralSchema};
use homeostat_objects::{Kind, Object};

/// A kind that an [`ObjectApi`](crate::ObjectApi) serves: its names, columns, schema and hooks.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Kind, ObjectMeta};
/// use homeostat_serve::{PrintColumn, Rejection, ServedResource};
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
/// homeostat_objects::object!(Site, namespaced, "example.com", "v1");
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
    /// Whether the columns already include the name and the age, if these are shown at all.
    pub(super) has_all_columns: bool,
    /// The fields besides name and namespace that field selectors can use. `None` means those that the schema knows.
    pub(super) selectable: Option<&'static [&'static str]>,
    /// The schema as given. It is compiled when the kind is registered.
    pub(super) given_schema: Option<Value>,
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
    /// Creates a kind with a status and without a schema. Its plural is the plural of `kind`.
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

    /// Creates the kind of a type. It has a status if the type has one.
    #[must_use]
    pub fn of<T: Object>() -> Self {
        const { T::KIND.assert_known() };
        Self::new(T::KIND).with_status(TypeId::of::<T::Status>() != TypeId::of::<()>())
    }

    /// Sets the singular name. Default: the kind's name in lower case.
    #[must_use]
    pub fn singular(self, singular: impl Into<String>) -> Self {
        Self { singular: singular.into(), ..self }
    }

    /// Adds a short name. With `si`, `kubectl get si` works.
    #[must_use]
    pub fn short_name(mut self, name: impl Into<String>) -> Self {
        self.short_names.push(name.into());
        self
    }

    /// Adds a category. With `all`, `kubectl get all` includes this kind.
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

    /// Adds a column after the name. The last column is the age, unless one of the columns is named `Age`.
    #[must_use]
    pub fn column(mut self, column: PrintColumn) -> Self {
        self.columns.push(column);
        self
    }

    /// Sets the schema of the objects: a structural Kubernetes schema, or the schema that the crate `schemars`
    /// generates for a type.
    ///
    /// Fields that the schema does not know are not stored. Missing fields get their defaults. Objects that violate
    /// the schema are refused. The schema cannot describe `apiVersion`, `kind` and `metadata`.
    ///
    /// If a keyword would not be checked, [`build`](crate::ObjectApiBuilder::build) returns an error that names
    /// it. This applies to CEL rules, `if`, `dependentSchemas`, `unevaluatedItems` and all unknown keywords. Write a
    /// [hook](Self::validate) instead. An unknown `format`, and extensions that begin with `x-` but not with
    /// `x-kubernetes-`, have no effect.
    ///
    /// Field selectors can use the fields that the schema knows: `kubectl get sites --field-selector spec.title=Home`.
    ///
    /// Without a schema, all fields are stored unchanged.
    #[must_use]
    pub fn schema(self, schema: Value) -> Self {
        Self { given_schema: Some(schema), ..self }
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

    /// Returns whether field selectors can use the field at this path. Without a schema, they can use any field.
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

    /// Returns whether writes need admission, because there are a schema or hooks.
    pub(crate) fn admits_writes(&self) -> bool {
        self.schema.is_some() || !self.hooks.ignore_writes()
    }
}
