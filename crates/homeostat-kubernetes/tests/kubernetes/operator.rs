//! The example `operator` on a real server, with the permissions that its manifests grant.

use std::fs;
use std::process::Command;
use std::time::Duration;

use homeostat_kubernetes::CustomResourceDefinition;
use homeostat_objects::{
    Api, DeleteOptions, DynamicObject, FieldOwner, Ignore, Kind, Object, ObjectKey, Patch, Query, ValueRef,
};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cluster;
use crate::definitions::client;
use crate::process::Program;
use crate::until::within;
use homeostat_test_support::example;

const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");
const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment");
const ACCOUNT: &str = "system:serviceaccount:operator-test:site-operator";
const PATIENCE: Duration = Duration::from_secs(60);

/// Parses YAML documents.
fn parse(yaml: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(yaml).unwrap()
}

fn kind_of(object: &Value) -> Kind {
    let kind = Kind::of(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    if object["metadata"]["namespace"].is_string() { kind } else { kind.in_no_namespace() }
}

fn key_of(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    ObjectKey::new(text("namespace"), text("name"))
}

#[test]
fn the_operator_works_with_the_rights_of_its_manifests() {
    let client = client();
    let operator = example!("operator");
    let folder = tempfile::tempdir().unwrap();
    let mut manifests = Command::new(&operator);
    manifests.arg("manifests").arg(folder.path()).args(["--namespace", "operator-test"]);
    assert!(manifests.output().unwrap().status.success());
    let read = |name: &str| parse(&fs::read_to_string(folder.path().join(name)).unwrap());
    let access = read("2-access.yaml");
    // The operator installs the definition itself.
    let [definition] = &read("1-definition.yaml")[..] else { panic!("one definition") };
    for object in access.iter().chain(&read("3-operator.yaml")) {
        client.apply(&kind_of(object), object.clone(), &FieldOwner::new("tests").force()).unwrap();
    }

    let mut kubeconfig = parse(&fs::read_to_string(cluster::shared()).unwrap()).remove(0);
    for user in kubeconfig["users"].as_array_mut().unwrap() {
        user["user"]["as"] = ACCOUNT.into();
    }
    // File paths are relative to the kubeconfig.
    let directory = cluster::shared().parent().unwrap().to_owned();
    for (list, entry) in [("clusters", "cluster"), ("users", "user")] {
        for named in kubeconfig[list].as_array_mut().unwrap() {
            for field in ["certificate-authority", "client-certificate", "client-key", "tokenFile"] {
                if let Some(path) = named[entry][field].as_str().map(|path| directory.join(path)) {
                    named[entry][field] = path.to_str().unwrap().into();
                }
            }
        }
    }
    let as_account = folder.path().join("kubeconfig");
    fs::write(&as_account, kubeconfig.to_string()).unwrap();
    let mut command = Command::new(&operator);
    command.arg("--kubeconfig").arg(&as_account);
    let mut program = Program::start(command);
    program.expect("Sites are served.");

    let sites = Api::<DynamicObject>::of_kind(client.clone(), SITE);
    let spec = json!({"title": "The garden", "pages": {"index": "Roses"}});
    let garden = sites.create(&DynamicObject::new(&SITE, "default", "garden").with("spec", spec)).unwrap();
    let reason = |of: &str| {
        let site = sites.get(&garden.key()).unwrap();
        let conditions = site.pointer("/status/conditions").map_or(Value::Null, ValueRef::to_value);
        let found = conditions.as_array().and_then(|all| all.iter().find(|condition| condition["type"] == of).cloned());
        found.map_or_else(String::new, |condition| condition["reason"].as_str().unwrap_or_default().to_owned())
    };
    within(PATIENCE, "the site is published", || (reason("Published") == "Published").then_some(()));
    assert_eq!(reason("Ready"), "Waiting", "no node runs the web server");

    // A deleted child is created again.
    let pages = ObjectKey::new("default", "garden-pages");
    let uid = client.get(&CONFIG_MAP, &pages).unwrap().uid().to_owned();
    client.delete(&CONFIG_MAP, &pages, &DeleteOptions::default()).unwrap();
    within(PATIENCE, "the config map is back", || {
        let map = client.get(&CONFIG_MAP, &pages).ignore_not_found().unwrap()?;
        (map.uid() != uid && !map.is_deleting()).then_some(())
    });
    // Runs that find everything in order write nothing.
    let version = || client.get(&CONFIG_MAP, &pages).unwrap().resource_version().to_owned();
    let before = version();
    sites.patch(&garden.key(), &Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}))).unwrap();
    let no_pages = json!([{"op": "replace", "path": "/spec/pages", "value": {}}]);
    sites.patch(&garden.key(), &Patch::Json(no_pages)).unwrap();
    within(PATIENCE, "the site has no pages", || (reason("Ready") == "NoPages").then_some(()));
    assert_eq!(version(), before);

    // The children are deleted with the site, and the finalizer removes the site from the index.
    sites.delete(&garden.key(), &DeleteOptions::default()).unwrap();
    within(PATIENCE, "the site is gone", || {
        sites.get(&garden.key()).ignore_not_found().unwrap().is_none().then_some(())
    });
    let index = client.get(&CONFIG_MAP, &ObjectKey::new("default", "site-index")).unwrap();
    assert!(index.pointer("/data/garden").is_none());
    within(PATIENCE, "the children are gone", || {
        let deployment = client.get(&DEPLOYMENT, &garden.key()).ignore_not_found().unwrap();
        (deployment.is_none() && client.get(&CONFIG_MAP, &pages).ignore_not_found().unwrap().is_none()).then_some(())
    });

    program.signal(Signal::INT);
    assert!(program.ended().success(), "{:?}", program.unasked());
    program.expect("The operator has ended.");

    client.delete(&CONFIG_MAP, &index.key(), &DeleteOptions::default()).unwrap();
    client.delete(&CustomResourceDefinition::KIND, &key_of(definition), &DeleteOptions::default()).unwrap();
    for object in access.iter().rev() {
        client.delete(&kind_of(object), &key_of(object), &DeleteOptions::default()).ignore_not_found().unwrap();
    }
    let left = client.list(&DEPLOYMENT, &Query::all().namespace("default")).unwrap();
    assert!(left.items.is_empty(), "{:?}", left.items);
}
