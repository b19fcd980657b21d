//! The manifests that install the operator in a cluster.

use std::fs;
use std::path::{Path, PathBuf};

use homeostat::BoxError;
use homeostat_kubernetes::to_yaml;
use homeostat_objects::Kind;
use serde_json::{Value, json};

use crate::objects::{DEPLOYMENT, NAME, definition, rules};

const NAMESPACE: Kind = Kind::cluster("", "v1", "Namespace");

/// Returns the manifest files: their names and texts, in the order of installation.
pub(crate) fn files(namespace: &str, image: &str) -> Result<[(&'static str, String); 3], BoxError> {
    let namespaced = json!({
        "apiVersion": NAMESPACE.api_version(), "kind": NAMESPACE.name(), "metadata": {"name": namespace},
    });
    let access: Vec<_> = [namespaced].into_iter().chain(rules().manifests(NAME, namespace)).collect();
    Ok([
        ("1-definition.yaml", definition()?.to_string()),
        ("2-access.yaml", to_yaml(&access)),
        ("3-operator.yaml", to_yaml([&operator(namespace, image)])),
    ])
}

/// Returns the deployment of the operator itself. In a pod, `--kubeconfig` finds the service account.
fn operator(namespace: &str, image: &str) -> Value {
    let labels = json!({"app.kubernetes.io/name": NAME});
    json!({
        "apiVersion": DEPLOYMENT.api_version(), "kind": DEPLOYMENT.name(),
        "metadata": {"namespace": namespace, "name": NAME, "labels": labels},
        "spec": {
            "replicas": 1,
            // Two operators at the same time would do each other's work.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": NAME,
                    "securityContext": {"runAsNonRoot": true, "runAsUser": 65532},
                    "containers": [{
                        "name": "operator",
                        "image": image,
                        "args": ["--kubeconfig"],
                        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "128Mi"}},
                        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true},
                    }],
                },
            },
        },
    })
}

/// Writes the manifests into a folder. Returns their paths.
pub(crate) fn write(folder: &Path, namespace: &str, image: &str) -> Result<Vec<PathBuf>, BoxError> {
    let failed = |path: &Path, error: std::io::Error| -> BoxError { format!("{}: {error}", path.display()).into() };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let written = files(namespace, image)?.into_iter().map(|(name, text)| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| failed(&path, error)).map(|()| path)
    });
    written.collect()
}

#[cfg(test)]
mod tests {
    use homeostat_objects::Object;

    use super::*;
    use crate::objects::{CONFIG_MAP, Site};

    #[test]
    fn the_rules_allow_the_requests_of_the_reconciler() {
        let rules = rules();
        for (kind, verbs) in [
            (&Site::KIND, &["get", "list", "watch", "patch"][..]),
            (&CONFIG_MAP, &["list", "watch", "create", "patch"]),
            (&DEPLOYMENT, &["list", "watch", "create", "patch"]),
        ] {
            for verb in verbs {
                assert!(rules.allows(kind, verb), "{verb} {kind}");
            }
        }
        assert!(!rules.allows(&Site::KIND, "delete"));
    }

    #[test]
    fn the_manifests_name_namespace_and_image() {
        let [(_, definition), (_, access), (_, operator)] = files("web", "registry/operator:1").unwrap();
        assert!(definition.contains("name: sites.example.com") && definition.contains("maximum: 10"));
        assert_eq!(access.matches("namespace: web").count(), 2);
        assert!(access.starts_with("---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: web\n---\n"));
        assert!(operator.contains("image: \"registry/operator:1\"") || operator.contains("image: registry/operator:1"));
    }
}
