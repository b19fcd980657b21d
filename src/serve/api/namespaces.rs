//! Virtual namespaces: a namespace exists as long as an object is in it. The namespace `default` always exists.

use std::collections::BTreeSet;

use serde_json::json;

use super::route::NAMESPACE;
use crate::objects::{Client, ClientError, Query, SharedObject};
use crate::serve::kinds::{KindRegistry, PrintColumn, RegistryError, ServedResource};

/// Returns the served form of namespaces, for tables and documents.
pub(super) fn resource() -> Result<ServedResource, RegistryError> {
    let status = PrintColumn::new("Status", "string", ".status.phase").description("The phase of the namespace.");
    let resource = ServedResource::new(NAMESPACE).short_name("ns").with_status(false).column(status);
    let registry = KindRegistry::new([resource.clone()])?;
    Ok(registry.iter().next().cloned().unwrap_or(resource))
}

/// Returns the namespaces in which objects are, and `default`, with the version of the list.
pub(super) fn list(client: &dyn Client, kinds: &KindRegistry) -> Result<(String, Vec<SharedObject>), ClientError> {
    let mut names = BTreeSet::from(["default".to_owned()]);
    let mut version = String::new();
    for kind in kinds.iter().map(ServedResource::kind).filter(|kind| kind.is_namespaced()) {
        let list = client.list(kind, &Query::all())?;
        for object in &list.items {
            if !names.contains(object.namespace()) {
                names.insert(object.namespace().to_owned());
            }
        }
        version = list.version;
    }
    let namespaces = names.iter().map(|name| namespace(name));
    Ok((version, namespaces.collect()))
}

/// Returns a namespace as an object.
fn namespace(name: &str) -> SharedObject {
    let labels = json!({"kubernetes.io/metadata.name": name});
    json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels},
        "spec": {}, "status": {"phase": "Active"},
    })
    .into()
}
