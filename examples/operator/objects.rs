//! The sites, and the objects that each site has.

use std::collections::BTreeMap;

use homeostat_kubernetes::{CustomResourceDefinition, RbacRules};
use homeostat_objects::{
    Condition, ConditionSet, DefinitionError, Kind, KindDefinition, Object, ObjectMeta, PrintColumn,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
pub(crate) const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment");

/// The name of the operator. Its account, its fields and its events have this name.
pub(crate) const NAME: &str = "site-operator";
/// Keeps a site until it is removed from the index.
pub(crate) const FINALIZER: &str = "example.com/site-index";
/// The label of the objects that the operator makes.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The config map with the titles of all sites of a namespace.
pub(crate) const INDEX: &str = "site-index";

/// A site is ready if its pages are published and a web server shows them.
pub(crate) const CONDITIONS: ConditionSet = ConditionSet::new("Ready", &["Published", "Available"]);

/// A website: some pages, and the web servers that show them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Site {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: SiteSpec,
    #[serde(default)]
    pub(crate) status: SiteStatus,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SiteSpec {
    /// The title, for the index.
    pub(crate) title: String,
    /// The texts by the names of the pages.
    pub(crate) pages: BTreeMap<String, String>,
    /// The number of web servers.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 10))]
    pub(crate) replicas: i32,
}

fn one() -> i32 {
    1
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SiteStatus {
    /// The generation that the conditions describe.
    pub(crate) observed_generation: i64,
    /// The number of web servers that work.
    pub(crate) available: i32,
    /// The labels of the web servers, for an autoscaler.
    pub(crate) selector: String,
    pub(crate) conditions: Vec<Condition>,
}

homeostat_objects::object!(Site, namespaced, "example.com", "v1", status: SiteStatus);

/// The definition of sites, for a cluster.
pub(crate) fn definition() -> Result<CustomResourceDefinition, DefinitionError> {
    let ready = r#".status.conditions[?(@.type=="Ready")].status"#;
    let sites = KindDefinition::described_by::<Site>()
        .short_name("si")
        .category("all")
        .column(PrintColumn::string("Title", ".spec.title"))
        .column(PrintColumn::string("Ready", ready))
        .column(PrintColumn::integer("Servers", ".status.available").wide())
        .scale_with_selector(".spec.replicas", ".status.available", ".status.selector");
    CustomResourceDefinition::new(&sites)
}

/// The requests that the operator makes. When you change the reconciler, change this list too.
pub(crate) fn rules() -> RbacRules {
    RbacRules::new()
        .read(&Site::KIND)
        .finalizers(&Site::KIND)
        .status(&Site::KIND)
        .write(&CONFIG_MAP)
        .write(&DEPLOYMENT)
        .record_events()
        // The operator installs its own definition.
        .allow(&CustomResourceDefinition::KIND, &["get", "create", "patch"])
}

/// Returns the name of the config map with the pages of a site.
pub(crate) fn pages_of(site: &str) -> String {
    format!("{site}-pages")
}

/// Returns the metadata of an object that a site has.
fn owned_by(site: &Site, name: &str) -> Value {
    json!({
        "namespace": site.metadata.namespace,
        "name": name,
        "labels": {MANAGED_BY: NAME},
        "ownerReferences": [site.controller_reference()],
    })
}

/// Returns the config map with the pages of a site.
pub(crate) fn config_map(site: &Site) -> Value {
    let pages = site.spec.pages.iter().map(|(name, text)| (format!("{name}.html"), text.clone().into()));
    json!({
        "apiVersion": CONFIG_MAP.api_version(), "kind": CONFIG_MAP.name(),
        "metadata": owned_by(site, &pages_of(&site.metadata.name)),
        "data": Value::Object(pages.collect()),
    })
}

/// Returns the deployment of the web servers of a site.
pub(crate) fn deployment(site: &Site) -> Value {
    let name = &site.metadata.name;
    let labels = json!({"site": name});
    json!({
        "apiVersion": DEPLOYMENT.api_version(), "kind": DEPLOYMENT.name(),
        "metadata": owned_by(site, name),
        "spec": {
            "replicas": site.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{
                        "name": "web",
                        "image": "nginx:stable",
                        "volumeMounts": [{"name": "pages", "mountPath": "/usr/share/nginx/html"}],
                    }],
                    "volumes": [{"name": "pages", "configMap": {"name": pages_of(name)}}],
                },
            },
        },
    })
}
