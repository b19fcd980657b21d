//! Custom resources. These tests need no core kinds, and run on old and on current servers. Each also
//! checks the behaviour of an old server.

mod private;
mod rules;
mod streams;
mod types;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use homeostat::Context;
use homeostat_kubernetes::{CustomResourceDefinition, InstallError, KubernetesClient};
use homeostat_objects::{Client, ClientError, ClientErrorKind, DeleteOptions, Ignore, Kind, ObjectKey, Query};
use serde_json::{Value, json};

use crate::cluster;
use crate::cluster::http::Http;
use crate::kinds::{self, DEFINITION};
use crate::until::within;

const PATIENCE: Duration = Duration::from_secs(60);

/// The shared cluster of the chosen programs, with a kind that one test uses.
struct Place {
    client: KubernetesClient,
    kind: Kind,
    /// The minor version of the server.
    minor: u32,
}

impl Place {
    /// Removes the kind and its objects, if an earlier run has left them.
    fn empty(kind: Kind) -> Self {
        let directory = cluster::own();
        let client = cluster::client(&directory.join("kubeconfig"));
        let place = Self { client, kind, minor: cluster::minor(&directory) };
        place.remove();
        place
    }

    /// Defines the kind by a schema of `spec`.
    fn with(kind: Kind, spec: &Value) -> Self {
        let place = Self::empty(kind);
        place.define(&definition(&place.kind, spec));
        place
    }

    fn define(&self, definition: &Value) {
        kinds::define(&self.client, definition);
        self.accepts_objects();
    }

    fn install(&self, definition: &CustomResourceDefinition) -> Result<(), InstallError> {
        definition.install(&Context::detached(), &self.client, "tests", PATIENCE)
    }

    /// Waits until the server reads and writes objects. A current server answers 429 for a new kind at first.
    fn accepts_objects(&self) {
        within(PATIENCE, "the kind accepts objects", || {
            self.client.dry_run().create(&self.kind, self.object("probe", &json!({}))).map_or_else(
                |error| match error.kind() {
                    ClientErrorKind::KindNotServed | ClientErrorKind::TooManyRequests { .. } => None,
                    _ => Some(()),
                },
                |_| Some(()),
            )
        });
    }

    fn object(&self, name: &str, spec: &Value) -> Value {
        let meta = json!({"namespace": "default", "name": name});
        json!({"apiVersion": self.kind.api_version(), "kind": self.kind.name(), "metadata": meta, "spec": spec})
    }

    fn create(&self, name: &str, spec: &Value) -> Result<Value, ClientError> {
        self.client.create(&self.kind, self.object(name, spec)).map(|object| object.to_value())
    }

    /// Returns the path of the objects on the server.
    fn path(&self) -> String {
        let plural = format!("{}s", self.kind.name().to_lowercase());
        format!("/apis/{}/namespaces/default/{plural}", self.kind.api_version())
    }

    fn http(&self) -> Http {
        Http::of_directory(&cluster::own(), self.client.server())
    }

    fn remove(&self) {
        let key = ObjectKey::cluster(&format!("{}s.{}", self.kind.name().to_lowercase(), self.kind.group()));
        let client = &self.client;
        client.delete(&DEFINITION, &key, &DeleteOptions::default()).ignore_not_found().unwrap();
        within(PATIENCE, "the kind is removed", || {
            let is_gone = client.get(&DEFINITION, &key).ignore_not_found().unwrap().is_none();
            let unserved = || {
                client
                    .list(&self.kind, &Query::all())
                    .is_err_and(|error| *error.kind() == ClientErrorKind::KindNotServed)
            };
            (is_gone && unserved()).then_some(())
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.remove();
        }
    }
}

fn definition(kind: &Kind, spec: &Value) -> Value {
    let mut definition = kinds::definition(kind);
    let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "properties": {"spec": spec, "status": status}});
    definition
}

/// Returns the causes of an error that must be *invalid*, as text.
fn causes(error: &ClientError) -> Vec<String> {
    assert!(error.is_invalid(), "{error:?}");
    error.causes().iter().map(ToString::to_string).collect()
}

fn names(list: &homeostat_objects::ObjectList<homeostat_objects::SharedObject>) -> Vec<String> {
    list.items.iter().map(|object| object.name().to_owned()).collect()
}

fn shared(client: &KubernetesClient) -> Arc<dyn Client> {
    Arc::new(client.clone())
}
