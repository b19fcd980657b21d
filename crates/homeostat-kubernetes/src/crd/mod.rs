//! Definitions of kinds in the form of Kubernetes.

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

use serde_json::{Value, json};

pub use self::error::InstallError;

use self::version::version;
use super::manifest::to_yaml;
use homeostat_objects::{DefinitionError, Kind, KindDefinition};

/// The definition of a kind in the form of Kubernetes: an object that makes an API server serve the kind. Displays as a
/// YAML manifest that begins with `---`, so several definitions can be joined to one file.
///
/// The schema comes from the [`KindDefinition`]. With the feature `schema` of `homeostat-objects`,
/// `KindDefinition::described_by` takes it from a Rust type.
///
/// Kubernetes allows less than JSON schema: each field has one type, types cannot contain themselves, and a struct
/// cannot also be a map. A server drops each field that the schema does not name. The definition therefore accepts and
/// keeps more than the Rust type, never less:
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
/// the same type, and each program can apply its own conditions. A type of your own names its keys with
/// `#[schemars(extend("x-list-map-keys" = ["name"]))]`.
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
/// use homeostat_kubernetes::CustomResourceDefinition;
/// use homeostat_objects::{KindDefinition, ObjectMeta, PrintColumn};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// /// A website.
/// #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// struct Site {
///     metadata: ObjectMeta,
///     spec: SiteSpec,
///     #[serde(default)]
///     status: SiteStatus,
/// }
///
/// #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// struct SiteSpec {
///     title: String,
///     #[schemars(range(min = 1, max = 9))]
///     replicas: Option<u8>,
/// }
///
/// #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
/// struct SiteStatus {
///     pages: u32,
/// }
///
/// homeostat_objects::object!(Site, namespaced, "example.com", "v1", status: SiteStatus);
///
/// let sites = KindDefinition::described_by::<Site>()
///     .short_name("si")
///     .column(PrintColumn::integer("Pages", ".status.pages"));
/// let definition = CustomResourceDefinition::new(&sites)?;
/// assert_eq!(definition.name(), "sites.example.com");
/// let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
/// let schema = definition.to_json().pointer(schema).unwrap();
/// assert_eq!(schema["title"], serde_json::json!({"type": "string"}));
/// assert_eq!(schema["replicas"]["nullable"], true);
/// print!("{definition}"); // for `kubectl apply`
/// # Ok::<_, homeostat_objects::DefinitionError>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "CRD")]
pub struct CustomResourceDefinition {
    json: Value,
    /// The versions of the kind that the server serves.
    served: Vec<Kind>,
}

impl CustomResourceDefinition {
    /// The kind of the definitions themselves.
    pub const KIND: Kind = Kind::cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition");

    /// Creates the definition of a kind with one version. The server stores objects in this version.
    ///
    /// Without a schema, the server stores all fields unchanged.
    ///
    /// # Errors
    ///
    /// - If a name or a column is [faulty](KindDefinition::check), or the kind is in the core group.
    /// - If the schema cannot be expressed: a type contains itself or is not a struct with named fields, or Kubernetes
    ///   lacks a keyword.
    pub fn new(stored: &KindDefinition) -> Result<Self, DefinitionError> {
        let kind = stored.kind();
        if kind.group().is_empty() {
            return Err(DefinitionError::new(kind, "the group must not be empty"));
        }
        let mut names = json!({
            "kind": kind.name(),
            "listKind": format!("{}List", kind.name()),
            "plural": kind.plural(),
            "singular": stored.singular_name(),
        });
        for (field, values) in [("shortNames", stored.short_names()), ("categories", stored.categories())] {
            if !values.is_empty() {
                names[field] = values.into();
            }
        }
        let json = json!({
            "apiVersion": Self::KIND.api_version(),
            "kind": Self::KIND.name(),
            "metadata": {"name": format!("{}.{}", kind.plural(), kind.group())},
            "spec": {
                "group": kind.group(),
                "names": names,
                "scope": if kind.is_namespaced() { "Namespaced" } else { "Cluster" },
                "versions": [version(stored, true)?],
            },
        });
        Ok(Self { json, served: stored.is_served().then(|| kind.clone()).into_iter().collect() })
    }

    /// Adds another version. Its objects are stored in the first version, with the fields of that version's schema. The
    /// first version decides the names of the kind.
    ///
    /// # Errors
    ///
    /// - As [`new`](Self::new).
    /// - If the version has another group, name, plural or scope, or if the definition has a version of this name.
    pub fn with_version(mut self, other: &KindDefinition) -> Result<Self, DefinitionError> {
        let (kind, spec) = (other.kind(), &mut self.json["spec"]);
        let scope = if kind.is_namespaced() { "Namespaced" } else { "Cluster" };
        let (names, group) = (&spec["names"], &spec["group"]);
        if *group != kind.group()
            || names["kind"] != kind.name()
            || names["plural"] != *kind.plural()
            || spec["scope"] != scope
        {
            return Err(DefinitionError::new(
                self.name(),
                format!("{kind} is another kind, not another version of it"),
            ));
        }
        let added = version(other, false)?;
        if let Some(versions) = spec["versions"].as_array_mut() {
            if versions.iter().any(|known| known["name"] == added["name"]) {
                return Err(DefinitionError::new(self.name(), format!("has the version {} twice", kind.version())));
            }
            versions.push(added);
        }
        self.served.extend(other.is_served().then(|| kind.clone()));
        Ok(self)
    }

    /// Reads a definition from JSON, such as the result of `crd()` of a type that derives kube-rs' `CustomResource`.
    ///
    /// # Errors
    ///
    /// Returns an error if the JSON is not a definition with a name and versions.
    pub fn from_json(json: Value) -> Result<Self, DefinitionError> {
        if json["metadata"]["name"].as_str().unwrap_or_default().is_empty() {
            return Err(DefinitionError::new("definition", "/metadata/name is missing"));
        }
        let versions = KindDefinition::of_custom_resource(&json)?;
        let served = versions.iter().filter(|version| version.is_served()).map(|version| version.kind().clone());
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
