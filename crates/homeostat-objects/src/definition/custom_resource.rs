//! Reads the definitions of kinds from Kubernetes.

use serde_json::Value;

use super::column::PrintColumn;
use super::error::DefinitionError;
use super::{KindDefinition, KindSchema};
use crate::kind::Kind;

impl KindDefinition {
    /// Reads a custom resource definition of Kubernetes. Returns a definition for each version of the kind, also for
    /// versions that are not served.
    ///
    /// Does not [check](Self::check) the names and columns.
    ///
    /// # Errors
    ///
    /// Returns an error if a name, the scope or the list of versions is missing.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat_objects::{Kind, KindDefinition};
    /// use serde_json::json;
    ///
    /// let versions = KindDefinition::of_custom_resource(&json!({"spec": {
    ///     "group": "example.com", "scope": "Namespaced", "names": {"kind": "Site", "plural": "sites"},
    ///     "versions": [{"name": "v1", "served": true, "selectableFields": [{"jsonPath": ".spec.title"}]}],
    /// }}))?;
    /// assert_eq!(*versions[0].kind(), Kind::namespaced("example.com", "v1", "Site"));
    /// assert_eq!(versions[0].selectable_fields(), [".spec.title"]);
    /// # Ok::<_, homeostat_objects::DefinitionError>(())
    /// ```
    pub fn of_custom_resource(json: &Value) -> Result<Vec<Self>, DefinitionError> {
        let missing = |path: &str| DefinitionError::new("definition", format_args!("{path} is missing"));
        let text = |path: &str| json.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
        let required = |path: &str| text(path).ok_or_else(|| missing(path));
        let (group, name, plural) =
            (required("/spec/group")?, required("/spec/names/kind")?, required("/spec/names/plural")?);
        let is_cluster_wide = required("/spec/scope")? == "Cluster";
        let names = &json["spec"]["names"];
        let versions = json["spec"]["versions"].as_array().ok_or_else(|| missing("/spec/versions"))?;
        let read = |version: &Value| {
            let version_name = version["name"].as_str().unwrap_or_default();
            let kind = Kind::of(&format!("{group}/{version_name}"), name).with_plural(plural.to_owned());
            let kind = if is_cluster_wide { kind.in_no_namespace() } else { kind };
            let definition = Self::new(kind);
            let schema = version["schema"].get("openAPIV3Schema");
            let deprecation = version["deprecationWarning"].as_str().unwrap_or("this version is deprecated");
            Self {
                singular: text("/spec/names/singular").map_or(definition.singular, str::to_owned),
                short_names: texts(&names["shortNames"]),
                categories: texts(&names["categories"]),
                has_status: version["subresources"].get("status").is_some(),
                is_served: version["served"] == true,
                deprecation: (version["deprecated"] == true).then(|| deprecation.to_owned()),
                scale: version["subresources"].get("scale").cloned(),
                columns: elements(&version["additionalPrinterColumns"]).map(PrintColumn::from_json).collect(),
                selectable_fields: elements(&version["selectableFields"])
                    .filter_map(|field| field["jsonPath"].as_str().map(str::to_owned))
                    .collect(),
                schema: schema.map(|read| KindSchema { read: read.clone(), written: None }),
                ..definition
            }
        };
        Ok(versions.iter().map(read).collect())
    }
}

fn elements(array: &Value) -> impl Iterator<Item = &Value> {
    array.as_array().into_iter().flatten()
}

fn texts(array: &Value) -> Vec<String> {
    elements(array).filter_map(|text| text.as_str().map(str::to_owned)).collect()
}
