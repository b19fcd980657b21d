//! The definition of a kind, from which servers and clients get its names, columns and schema.

mod column;
mod custom_resource;
mod error;
mod json_path;
mod normal;
mod null;

use std::any::TypeId;

use serde_json::{Value, json};

pub use self::column::PrintColumn;
pub use self::error::{DefinitionError, SchemaError};
pub use self::normal::normal_schema;

use crate::kind::Kind;
use crate::object::Object;
use crate::validate::{is_dns_label, is_subdomain};

/// A definition of a kind: its names, columns, schema and subresources.
///
/// One definition serves all users of a kind: `CustomResourceDefinition` of the crate `homeostat-kubernetes` makes an
/// API server serve the kind, and `ObjectApi` of the crate `homeostat-serve` serves it from this program.
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Kind, KindDefinition, PrintColumn};
/// use serde_json::json;
///
/// let sites = KindDefinition::new(Kind::namespaced("example.com", "v1", "Site"))
///     .short_name("si")
///     .category("all")
///     .column(PrintColumn::string("Title", ".spec.title"))
///     .selectable_field(".spec.title")
///     .schema(json!({"type": "object", "required": ["spec"], "properties": {
///         "spec": {"type": "object", "required": ["title"], "properties": {"title": {"type": "string", "minLength": 1}}},
///     }}));
/// sites.check()?;
/// assert_eq!(sites.columns().map(|column| column.name().to_owned()).collect::<Vec<_>>(), ["Title", "Age"]);
/// # Ok::<_, homeostat_objects::DefinitionError>(())
/// ```
///
/// With the feature `schema`, [`described_by`](Self::described_by) takes the schema from a Rust type.
#[derive(Clone, Debug)]
#[must_use = "a definition does nothing until it is used"]
pub struct KindDefinition {
    kind: Kind,
    singular: String,
    short_names: Vec<String>,
    categories: Vec<String>,
    has_status: bool,
    is_served: bool,
    deprecation: Option<String>,
    scale: Option<Value>,
    columns: Vec<PrintColumn>,
    selectable_fields: Vec<String>,
    schema: Option<KindSchema>,
}

/// The schemas of the objects. They differ if a type writes other fields than it reads.
#[derive(Clone, Debug)]
struct KindSchema {
    read: Value,
    written: Option<Value>,
}

impl KindDefinition {
    /// Creates the definition of a kind with a status and without a schema.
    pub fn new(kind: Kind) -> Self {
        Self {
            singular: kind.name().to_lowercase(),
            kind,
            short_names: Vec::new(),
            categories: Vec::new(),
            has_status: true,
            is_served: true,
            deprecation: None,
            scale: None,
            columns: Vec::new(),
            selectable_fields: Vec::new(),
            schema: None,
        }
    }

    /// Creates the definition of a type's kind, without a schema. The kind has a status if the type's
    /// [`Status`](Object::Status) is not `()`.
    pub fn of<T: Object>() -> Self {
        const { T::KIND.assert_known() };
        Self::new(T::KIND).with_status(TypeId::of::<T::Status>() != TypeId::of::<()>())
    }

    /// Creates the definition of a type's kind, with the schema of the type. The kind has a status if the type's
    /// [`Status`](Object::Status) is not `()`. With this feature, [`ObjectMeta`](crate::ObjectMeta) and
    /// [`Condition`](crate::Condition) have schemas, so `#[derive(JsonSchema)]` is enough for a type with such fields.
    #[cfg(feature = "schema")]
    pub fn described_by<T: Object + schemars::JsonSchema>() -> Self {
        let settings = schemars::generate::SchemaSettings::draft2020_12();
        let read = settings.clone().for_deserialize().into_generator().into_root_schema_for::<T>();
        let written = settings.for_serialize().into_generator().into_root_schema_for::<T>();
        let schema = KindSchema { read: read.to_value(), written: Some(written.to_value()) };
        Self { schema: Some(schema), ..Self::of::<T>() }
    }

    /// Sets the singular name. Default: the kind's name in lower case.
    pub fn singular(self, singular: impl Into<String>) -> Self {
        Self { singular: singular.into(), ..self }
    }

    /// Adds a short name. With `si`, `kubectl get si` works.
    pub fn short_name(mut self, name: impl Into<String>) -> Self {
        self.short_names.push(name.into());
        self
    }

    /// Adds a category. With `all`, `kubectl get all` includes this kind.
    pub fn category(mut self, category: impl Into<String>) -> Self {
        self.categories.push(category.into());
        self
    }

    /// Sets whether the kind has the subresource `status`.
    pub fn with_status(self, has_status: bool) -> Self {
        Self { has_status, ..self }
    }

    /// Adds a column after the name. The last column is the age, unless one of the columns is named `Age`.
    pub fn column(mut self, column: PrintColumn) -> Self {
        self.columns.push(column);
        self
    }

    /// Allows clients to select objects by a field, such as `.spec.colour`, with `kubectl get --field-selector
    /// spec.colour=blue`.
    ///
    /// For Kubernetes, the field must be a text, an integer or a boolean, and must not be in `metadata`. A version has
    /// at most eight such fields. Servers before Kubernetes 1.30 refuse the definition. Without such fields, an
    /// `ObjectApi` selects by any field that the schema knows.
    pub fn selectable_field(mut self, path: impl Into<String>) -> Self {
        self.selectable_fields.push(path.into());
        self
    }

    /// Adds the subresource `scale` for `kubectl scale`, with the paths of the desired and the current number, such as
    /// `.spec.replicas` and `.status.replicas`. A `HorizontalPodAutoscaler` also needs [a
    /// selector](Self::scale_with_selector).
    ///
    /// Kubernetes API servers serve the subresource. An `ObjectApi` does not.
    pub fn scale(self, desired: &str, current: &str) -> Self {
        Self { scale: Some(json!({"specReplicasPath": desired, "statusReplicasPath": current})), ..self }
    }

    /// Adds the subresource [`scale`](Self::scale) with the path of a label selector for the pods, such as
    /// `.status.selector`.
    ///
    /// The selector in the object is a text, such as `app=web`, by which a `HorizontalPodAutoscaler` finds the pods.
    pub fn scale_with_selector(self, desired: &str, current: &str, selector: &str) -> Self {
        let paths = json!({"specReplicasPath": desired, "statusReplicasPath": current, "labelSelectorPath": selector});
        Self { scale: Some(paths), ..self }
    }

    /// Marks the version as deprecated. Kubernetes API servers send the warning to its clients.
    pub fn deprecated(self, warning: impl Into<String>) -> Self {
        Self { deprecation: Some(warning.into()), ..self }
    }

    /// Makes servers refuse requests for the version. Its objects can still be stored in another version.
    pub fn not_served(self) -> Self {
        Self { is_served: false, ..self }
    }

    /// Sets the schema of the objects: a structural schema of Kubernetes, or the schema that the crate `schemars`
    /// generates for a type.
    ///
    /// Fields that the schema does not know are not stored. Missing fields get their defaults. Objects that violate
    /// the schema are refused. The schema cannot describe `apiVersion`, `kind` and `metadata`. Without a schema, all
    /// fields are stored unchanged.
    ///
    /// A server takes the [normal form](normal_schema) of the schema. If it cannot honour a keyword, its error names
    /// the keyword and the path.
    pub fn schema(self, schema: Value) -> Self {
        Self { schema: Some(KindSchema { read: schema, written: None }), ..self }
    }

    /// Checks the names and columns, and that the schemas have a [normal form](normal_schema).
    ///
    /// # Errors
    ///
    /// Returns the first fault.
    pub fn check(&self) -> Result<(), DefinitionError> {
        let kind = &self.kind;
        let fault = |fault: String| Err(DefinitionError::new(kind, fault));
        if !kind.group().is_empty() && !is_subdomain(kind.group()) {
            return fault(format!("its group {:?} is not a DNS subdomain", kind.group()));
        }
        if kind.name().is_empty() || !kind.name().bytes().all(|letter| letter.is_ascii_alphanumeric()) {
            return fault("its name must have letters and digits only".to_owned());
        }
        let names = [("version", kind.version()), ("plural", &kind.plural()), ("singular", &self.singular)];
        let short = self.short_names.iter().map(|name| ("short name", &**name));
        let categories = self.categories.iter().map(|name| ("category", &**name));
        for (what, name) in names.into_iter().chain(short).chain(categories) {
            if !is_dns_label(name) {
                return fault(format!("its {what} {name:?} must have lower-case letters, digits and '-' only"));
            }
        }
        if let Some(error) = self.columns.iter().find_map(PrintColumn::fault) {
            return fault(error);
        }
        let schemas = [self.read_schema(), self.written_schema()].into_iter().flatten();
        let mut errors = schemas.filter_map(|schema| normal_schema(schema).err());
        errors.next().map_or(Ok(()), |error| fault(error.to_string()))
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Returns the singular name.
    #[must_use]
    pub fn singular_name(&self) -> &str {
        &self.singular
    }

    /// Returns the short names.
    #[must_use]
    pub fn short_names(&self) -> &[String] {
        &self.short_names
    }

    /// Returns the categories.
    #[must_use]
    pub fn categories(&self) -> &[String] {
        &self.categories
    }

    /// Returns whether the kind has the subresource `status`.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.has_status
    }

    /// Returns whether servers serve the version.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.is_served
    }

    /// Returns the warning to the clients of a deprecated version.
    #[must_use]
    pub fn deprecation(&self) -> Option<&str> {
        self.deprecation.as_deref()
    }

    /// Returns the paths of the subresource `scale`, in the form of Kubernetes.
    #[must_use]
    pub fn scale_paths(&self) -> Option<&Value> {
        self.scale.as_ref()
    }

    /// Returns the columns after the name, including the age.
    pub fn columns(&self) -> impl Iterator<Item = PrintColumn> {
        let has_age = self.columns.iter().any(|column| column.name().eq_ignore_ascii_case("age"));
        let age =
            || PrintColumn::date("Age", ".metadata.creationTimestamp").description("The time since the creation.");
        self.columns.iter().cloned().chain((!has_age).then(age))
    }

    /// Returns the paths of the fields by which clients can select objects.
    #[must_use]
    pub fn selectable_fields(&self) -> &[String] {
        &self.selectable_fields
    }

    /// Returns the schema of objects that are read.
    #[must_use]
    pub fn read_schema(&self) -> Option<&Value> {
        self.schema.as_ref().map(|schema| &schema.read)
    }

    /// Returns the schema of objects that are written. It has the fields that the type writes but does not read.
    #[must_use]
    pub fn written_schema(&self) -> Option<&Value> {
        self.schema.as_ref().map(|KindSchema { read, written }| written.as_ref().unwrap_or(read))
    }
}

/// The definition of a kind with a status and without a schema.
impl From<Kind> for KindDefinition {
    fn from(kind: Kind) -> Self {
        Self::new(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_names_and_columns_are_refused() {
        let site = |group: &'static str, version: &'static str, name: &'static str| {
            KindDefinition::new(Kind::namespaced(group, version, name))
        };
        for (definition, expected) in [
            (site("a b", "v1", "Site"), "its group \"a b\""),
            (site("", "V1", "Site"), "its version \"V1\""),
            (site("", "v1", "Si te"), "letters and digits"),
            (site("", "v1", "Site").short_name("Si"), "its short name \"Si\""),
            (site("", "v1", "Site").category("A"), "its category \"A\""),
            (site("", "v1", "Site").column(PrintColumn::string("Pages", "status")), "column \"Pages\""),
        ] {
            let error = definition.check().map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|error| error.contains(expected)), "{error:?}");
        }
        assert_eq!(site("", "v1", "Site").check(), Ok(()));
    }
}
