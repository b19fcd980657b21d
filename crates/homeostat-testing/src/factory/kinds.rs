//! Factories of common Kubernetes objects.

use serde_json::{Value, json};

use super::Factory;
use homeostat_objects::{DynamicObject, Kind, Object};

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment");
const POD: Kind = Kind::namespaced("", "v1", "Pod");
const SECRET: Kind = Kind::namespaced("", "v1", "Secret");
const SERVICE: Kind = Kind::namespaced("", "v1", "Service");
const SERVICE_ACCOUNT: Kind = Kind::namespaced("", "v1", "ServiceAccount");

macro_rules! ready {
    ($($name:ident $kind:ident $what:literal)*) => {
        $(
            #[doc = concat!("Creates a `", $what, "` that has a key only.")]
            pub fn $name(namespace: impl Into<String>, name: impl Into<String>) -> Self {
                Self::dynamic(&$kind, namespace, name)
            }
        )*
    };
}

impl Factory<DynamicObject> {
    ready! {
        config_map CONFIG_MAP "ConfigMap"
        deployment DEPLOYMENT "Deployment"
        pod POD "Pod"
        secret SECRET "Secret"
        service SERVICE "Service"
        service_account SERVICE_ACCOUNT "ServiceAccount"
    }

    /// Sets an entry of `data`. The values of a secret are base64.
    pub fn data(&self, key: &str, value: impl Into<String>) -> Self {
        let value = value.into();
        self.part("data", |data| data[key] = value.into())
    }

    /// Sets `spec.replicas`.
    pub fn replicas(&self, replicas: u32) -> Self {
        self.spec(|spec| spec["replicas"] = replicas.into())
    }

    /// Adds a label to the selector and to the pod template. Services have no pod template.
    pub fn selector_label(&self, key: &str, value: &str) -> Self {
        let is_service = self.0.kind() == SERVICE;
        self.spec(|spec| {
            if is_service {
                spec["selector"][key] = value.into();
            } else {
                spec["selector"]["matchLabels"][key] = value.into();
                spec["template"]["metadata"]["labels"][key] = value.into();
            }
        })
    }

    /// Changes the `spec` of the pod or of the pod template, as JSON, with a function.
    pub fn pod_spec(&self, change: impl FnOnce(&mut Value)) -> Self {
        let is_pod = self.0.kind() == POD;
        self.spec(|spec| {
            let pod = if is_pod { spec } else { &mut spec["template"]["spec"] };
            if pod.is_null() {
                *pod = json!({});
            }
            change(pod);
        })
    }

    /// Changes a container with a function. A missing container is appended.
    pub fn container_named(&self, name: &str, change: impl FnOnce(&mut Value)) -> Self {
        self.pod_spec(|pod| {
            let mut containers = match pod["containers"].take() {
                Value::Array(containers) => containers,
                _ => Vec::new(),
            };
            let known = containers.iter().position(|container| container["name"] == name);
            let at = known.unwrap_or_else(|| {
                containers.push(json!({"name": name}));
                containers.len() - 1
            });
            change(&mut containers[at]);
            pod["containers"] = containers.into();
        })
    }

    /// Sets the image of a container.
    pub fn image(&self, container: &str, image: &str) -> Self {
        self.container_named(container, |container| container["image"] = image.into())
    }
}
