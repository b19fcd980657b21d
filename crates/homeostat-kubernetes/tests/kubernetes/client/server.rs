//! The client against a real server, for features that the embedded clients lack.

use homeostat_kubernetes::{Kubeconfig, KubernetesClient};
use homeostat_objects::{Client, ClientErrorKind, DeleteOptions, Ignore, Kind, LabelSelector, ObjectKey, Query};
use serde_json::{Value, json};

use super::{CONFIG_MAP, map};
use crate::cluster;

const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment");

fn client() -> KubernetesClient {
    KubernetesClient::new(Kubeconfig::read(cluster::shared()).and_then(|file| file.config()).unwrap()).unwrap()
}

/// An object that is deleted when this is dropped.
struct Created<'a>(&'a KubernetesClient, Kind, ObjectKey);

impl<'a> Created<'a> {
    fn new(client: &'a KubernetesClient, kind: &Kind, object: Value) -> Self {
        let name = object["metadata"]["name"].as_str().unwrap();
        let created = Self(client, kind.clone(), ObjectKey::new("default", name));
        client.delete(kind, &created.2, &DeleteOptions::default()).ignore_not_found().unwrap();
        client.create(kind, object).unwrap();
        created
    }
}

impl Drop for Created<'_> {
    fn drop(&mut self) {
        let _ = self.0.delete(&self.1, &self.2, &DeleteOptions::default());
    }
}

#[test]
fn a_dry_run_stores_nothing() {
    let client = client();
    let dry = client.dry_run();
    let created = dry.create(&CONFIG_MAP, map("client-dry")).unwrap();
    assert!(!created.uid().is_empty());
    let key = created.key();
    assert!(client.get(&CONFIG_MAP, &key).unwrap_err().is_not_found());
    let stored = Created::new(&client, &CONFIG_MAP, map("client-dry"));
    dry.delete(&CONFIG_MAP, &key, &DeleteOptions::default()).unwrap();
    assert!(client.get(&CONFIG_MAP, &key).is_ok());
    drop(stored);
    assert!(client.get(&CONFIG_MAP, &key).unwrap_err().is_not_found());
}

#[test]
fn metadata_can_be_read_alone() {
    let client = client();
    let stored = Created::new(&client, &CONFIG_MAP, map("client-metadata"));
    let query = Query::all().namespace("default").field("metadata.name", "client-metadata");
    let lean = client.metadata_only();
    let listed = lean.list(&CONFIG_MAP, &query).unwrap().items;
    for object in [&lean.get(&CONFIG_MAP, &stored.2).unwrap(), &listed[0]] {
        assert_eq!((object.name(), object.kind(), object.get("data")), ("client-metadata", CONFIG_MAP, None));
    }
    assert!(client.get(&CONFIG_MAP, &stored.2).unwrap().get("data").is_some());
}

#[test]
fn replicas_are_scaled() {
    let client = client();
    let labels = json!({"app": "client-scale"});
    let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": pod});
    let meta = json!({"namespace": "default", "name": "client-scale"});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec});
    let stored = Created::new(&client, &DEPLOYMENT, object);
    assert_eq!(client.scale(&DEPLOYMENT, &stored.2).unwrap().desired, 2);
    let scaled = client.set_scale(&DEPLOYMENT, &stored.2, 5).unwrap();
    assert_eq!((scaled.desired, scaled.current, scaled.selector.as_str()), (5, 0, "app=client-scale"));
    let error = client.scale(&CONFIG_MAP, &stored.2).unwrap_err();
    assert_eq!(error.to_string(), "ConfigMap default/client-scale is invalid: the kind has no subresource scale");
}

#[test]
fn tables_have_the_columns_of_the_kind() {
    let client = client();
    let _stored = Created::new(&client, &CONFIG_MAP, map("client-table"));
    let query = Query::all().namespace("default").field("metadata.name", "client-table");
    let table = client.table(&CONFIG_MAP, &query).unwrap();
    let columns: Vec<_> = table.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(columns, ["Name", "Data", "Age"]);
    assert_eq!((table.rows.len(), table.rows[0].key.to_string()), (1, "default/client-table".to_owned()));
    assert_eq!(table.rows[0].cells[..2], [json!("client-table"), json!(1)]);
}

#[test]
fn an_irregular_plural_is_asked_for() {
    let client = client();
    let endpoints = Kind::of("v1", "Endpoints");
    client.list(&endpoints, &Query::all().namespace("default")).unwrap();
    assert_eq!(client.served_kind(&endpoints).unwrap().plural, "endpoints");
    let error = client.list(&Kind::of("example.com/v9", "Nothing"), &Query::all()).unwrap_err();
    assert!(
        *error.kind() == ClientErrorKind::KindNotServed
            && error.to_string().contains("has no group and version example.com/v9"),
        "{error}"
    );
    let error = client.get(&Kind::of("v1", "Node"), &ObjectKey::new("default", "a")).unwrap_err();
    assert!(error.to_string().contains("must be empty: the kind is in no namespace"), "{error}");
    let error = client.get(&CONFIG_MAP, &ObjectKey::cluster("a")).unwrap_err();
    assert!(error.to_string().contains("metadata.namespace: must be set"), "{error}");
}

#[test]
fn a_collection_is_deleted_at_once() {
    let client = client();
    let labels = LabelSelector::label("client", "collection");
    let query = Query::all().namespace("default").labels(labels);
    client.delete_collection(&CONFIG_MAP, &query, &DeleteOptions::default()).unwrap();
    for name in ["client-a", "client-b"] {
        let mut object = map(name);
        object["metadata"]["labels"] = json!({"client": "collection"});
        client.create(&CONFIG_MAP, object).unwrap();
    }
    let before = client.metrics().requests;
    let deleted = client.delete_collection(&CONFIG_MAP, &query, &DeleteOptions::default()).unwrap();
    assert_eq!((deleted.len(), deleted.iter().all(homeostat_objects::Deletion::is_gone)), (2, true));
    assert_eq!(client.metrics().requests - before, 2);
    // A field that the server does not support: nothing else is deleted.
    let mut object = map("client-c");
    object["metadata"]["labels"] = json!({"client": "collection"});
    let kept = Created::new(&client, &CONFIG_MAP, object);
    let other = query.field("data.a", "2");
    assert_eq!(client.delete_collection(&CONFIG_MAP, &other, &DeleteOptions::default()).unwrap(), []);
    assert!(client.get(&CONFIG_MAP, &kept.2).is_ok());
}

#[test]
fn refusals_of_a_server_are_typed() {
    let shared = cluster::shared();
    let file = Kubeconfig::read(&shared).unwrap();
    let client = client();
    let missing = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "no-such", "name": "a"}});
    let error = client.create(&CONFIG_MAP, missing).unwrap_err();
    assert_eq!((error.is_not_found(), error.to_string().as_str()), (true, "Namespace no-such is not found"));
    let wrong = KubernetesClient::new(file.config().unwrap().token("wrong")).unwrap();
    let error = wrong.list(&CONFIG_MAP, &Query::all()).unwrap_err();
    assert!(*error.kind() == ClientErrorKind::Unauthorized && !error.to_string().contains("wrong\""), "{error}");
    let nobody = homeostat_kubernetes::Impersonation::new("nobody");
    let nobody = KubernetesClient::new(file.config().unwrap().impersonate(nobody)).unwrap();
    let error = nobody.list(&CONFIG_MAP, &Query::all()).unwrap_err();
    assert!(
        *error.kind() == ClientErrorKind::Forbidden && error.to_string().contains("\"nobody\" cannot list resource"),
        "{error}"
    );
    let big = "x".repeat(2_000_000);
    let mut object = map("client-big");
    object["data"]["a"] = json!(big);
    assert!(client.create(&CONFIG_MAP, object).unwrap_err().is_invalid());
}
