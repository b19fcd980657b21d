//! Definitions of kinds, generated from Rust types. Feature `schema`.

mod alternatives;
mod both;
mod defaults;
mod error;
mod install;
mod rules;
mod shape;
mod structural;
#[cfg(all(test, not(loom)))]
mod tests;
mod version;
mod written;

use std::fmt;

use schemars::JsonSchema;
use serde_json::{Value, json};

pub use self::error::{InstallError, SchemaError};
pub use self::version::CrdVersion;

use super::manifest::to_yaml;
use homeostat_objects::{Kind, Object};

/// The definition of a kind: an object that makes a Kubernetes API server serve the kind. Displays as a YAML manifest
/// that begins with `---`, so several definitions can be joined to one file.
///
/// The schema comes from the type's `JsonSchema`. Kubernetes allows less than JSON schema: each field has one type,
/// types cannot contain themselves, and a struct cannot also be a map. A server drops each field that the schema does
/// not name. The definition therefore accepts and keeps more than the Rust type, never less:
///
/// - The alternatives of an enum with data become one object with the properties of all variants. The server still
///   checks that the required properties of one variant are present.
/// - A field with several types accepts any value, unless the types are integer and string.
/// - Some objects keep any fields: a struct with a flattened map, `Value` or `Option` of an enum, and an object
///   without known fields, such as an [`ObjectMeta`] within a template.
/// - The elements of a `HashSet` of structs may be equal.
///
/// Three limits remain. An integer must fit into an `i64`. An internally tagged variant that holds a [`Value`] keeps
/// only its tag: use a `Map` there. A kind with a status has no rules at its root, so the server does not check an
/// enum that is flattened into the root.
///
/// An array of [`Condition`]s becomes a list of type `map` with the key `type`. The server refuses two conditions of
/// the same type, and each program can apply its own conditions.
///
/// Keywords that begin with `x-kubernetes-` are kept, for example from `#[schemars(extend("x-kubernetes-list-type" =
/// "atomic"))]`. CEL rules (`x-kubernetes-validations`) of a field are added to the rules of its type. A keyword that
/// only refuses values and is missing in Kubernetes, such as `if`, `contains` or `propertyNames`, is an error that
/// names it.
///
/// The fields of `metadata` are not part of the schema. The type's defaults (`#[serde(default)]`) become the server's
/// defaults, with exceptions that only the type sets, when it reads an object. These are the default of `status`,
/// `null`, defaults of one variant of several, defaults that violate their own schema, and defaults with an empty
/// text, which some servers refuse.
///
/// [`Condition`]: homeostat_objects::Condition
/// [`ObjectMeta`]: homeostat_objects::ObjectMeta
///
/// # Examples
///
/// ```
/// use homeostat_kubernetes::{CrdVersion, CustomResourceDefinition};
/// use homeostat_objects::ObjectMeta;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// /// A website.
/// #[derive(Clone, Serialize, Deserialize, JsonSchema)]
/// struct Site {
///     metadata: ObjectMeta,
///     spec: SiteSpec,
///     #[serde(default)]
///     status: SiteStatus,
/// }
///
/// #[derive(Clone, Serialize, Deserialize, JsonSchema)]
/// struct SiteSpec {
///     title: String,
///     #[schemars(range(min = 1, max = 9))]
///     replicas: Option<u8>,
/// }
///
/// #[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
/// struct SiteStatus {
///     pages: u32,
/// }
///
/// homeostat_objects::object!(Site, namespaced, "example.com", "v1", status: SiteStatus);
///
/// let version = CrdVersion::of::<Site>().column("Pages", "integer", ".status.pages");
/// let definition = CustomResourceDefinition::builder(version).short_name("si").build()?;
/// assert_eq!(definition.name(), "sites.example.com");
/// let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
/// let schema = definition.to_json().pointer(schema).unwrap();
/// assert_eq!(schema["title"], serde_json::json!({"type": "string"}));
/// assert_eq!(schema["replicas"]["nullable"], true);
/// print!("{definition}"); // for `kubectl apply`
/// # Ok::<_, homeostat_kubernetes::SchemaError>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "CRD")]
pub struct CustomResourceDefinition {
    json: Value,
    /// The versions of the kind that the server serves.
    served: Vec<Kind>,
}

/// Settings for a [`CustomResourceDefinition`].
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until `build` is called"]
pub struct CustomResourceDefinitionBuilder {
    stored: CrdVersion,
    others: Vec<CrdVersion>,
    short_names: Vec<String>,
    categories: Vec<String>,
}

impl CustomResourceDefinitionBuilder {
    /// Adds another version. Its objects are stored in the first version, with the fields of that version's schema.
    pub fn version(mut self, version: CrdVersion) -> Self {
        self.others.push(version);
        self
    }

    /// Adds a short name for `kubectl`.
    pub fn short_name(mut self, name: impl Into<String>) -> Self {
        self.short_names.push(name.into());
        self
    }

    /// Adds a category. `kubectl get <category>` then also lists these objects.
    pub fn category(mut self, category: impl Into<String>) -> Self {
        self.categories.push(category.into());
        self
    }

    /// Builds the definition.
    ///
    /// # Errors
    ///
    /// - If a type cannot be described: it contains itself, is not a struct with named fields, or its schema has a
    ///   keyword that Kubernetes lacks.
    /// - If the versions differ in group, name, plural or scope, or if two have the same name.
    pub fn build(self) -> Result<CustomResourceDefinition, SchemaError> {
        let Self { stored, others, short_names, categories } = self;
        let kind = &stored.kind;
        let error = |fault: String| SchemaError::new(kind.to_string(), "", fault);
        if kind.group().is_empty() {
            return Err(error("the group must not be empty".to_owned()));
        }
        let mut versions = vec![stored.to_json(true)?];
        let mut served: Vec<_> = stored.is_served().then(|| kind.clone()).into_iter().collect();
        for other in &others {
            let identity = |kind: &Kind| {
                (kind.group().to_owned(), kind.name().to_owned(), kind.plural().into_owned(), kind.is_namespaced())
            };
            if identity(&other.kind) != identity(kind) {
                return Err(error(format!("{} is another kind, not another version of it", other.kind)));
            }
            if versions.iter().any(|known| known["name"] == other.kind.version()) {
                return Err(error(format!("has the version {} twice", other.kind.version())));
            }
            versions.push(other.to_json(false)?);
            served.extend(other.is_served().then(|| other.kind.clone()));
        }
        let mut names = json!({
            "kind": kind.name(),
            "listKind": format!("{}List", kind.name()),
            "plural": kind.plural(),
            "singular": kind.name().to_lowercase(),
        });
        for (field, values) in [("shortNames", short_names), ("categories", categories)] {
            if !values.is_empty() {
                names[field] = values.into();
            }
        }
        let json = json!({
            "apiVersion": CustomResourceDefinition::KIND.api_version(),
            "kind": CustomResourceDefinition::KIND.name(),
            "metadata": {"name": format!("{}.{}", kind.plural(), kind.group())},
            "spec": {
                "group": kind.group(),
                "names": names,
                "scope": if kind.is_namespaced() { "Namespaced" } else { "Cluster" },
                "versions": versions,
            },
        });
        Ok(CustomResourceDefinition { json, served })
    }
}

impl CustomResourceDefinition {
    /// The kind of the definitions themselves.
    pub const KIND: Kind = Kind::cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition");

    /// Returns a builder for a definition. The server stores objects in the version `stored`.
    pub fn builder(stored: CrdVersion) -> CustomResourceDefinitionBuilder {
        CustomResourceDefinitionBuilder { stored, others: Vec::new(), short_names: Vec::new(), categories: Vec::new() }
    }

    /// Returns the definition of a kind with one version and default settings.
    ///
    /// # Errors
    ///
    /// As [`build`](CustomResourceDefinitionBuilder::build).
    pub fn of<T: Object + JsonSchema>() -> Result<Self, SchemaError> {
        Self::builder(CrdVersion::of::<T>()).build()
    }

    /// Reads a definition from JSON, such as the result of `crd()` of a type that derives kube-rs' `CustomResource`.
    ///
    /// # Errors
    ///
    /// Returns an error if the JSON is not a definition with a name and versions.
    pub fn from_json(json: Value) -> Result<Self, SchemaError> {
        let text = |path: &str| json.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let error = |path: &str| SchemaError::new("definition", path, "is missing");
        let named = |path: &str| text(path).filter(|text| !text.is_empty()).ok_or_else(|| error(path));
        named("/metadata/name")?;
        let (group, name, plural) = (named("/spec/group")?, named("/spec/names/kind")?, named("/spec/names/plural")?);
        let is_cluster_wide = named("/spec/scope")? == "Cluster";
        let versions = json["spec"]["versions"].as_array().ok_or_else(|| error("/spec/versions"))?;
        let served = versions.iter().filter(|version| version["served"] == true).map(|version| {
            let version = version["name"].as_str().unwrap_or_default();
            let kind = Kind::of(&format!("{group}/{version}"), &name).with_plural(plural.clone());
            if is_cluster_wide { kind.in_no_namespace() } else { kind }
        });
        Ok(Self { served: served.collect(), json })
    }

    /// Returns the name of the definition, such as `sites.example.com`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.json["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Returns the definition as JSON.
    #[must_use]
    pub fn to_json(&self) -> &Value {
        &self.json
    }

    /// Returns the versions of the kind that the server serves.
    pub fn served(&self) -> impl Iterator<Item = &Kind> {
        self.served.iter()
    }
}

/// Writes the definition as a YAML manifest.
impl fmt::Display for CustomResourceDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_yaml([&self.json]))
    }
}
