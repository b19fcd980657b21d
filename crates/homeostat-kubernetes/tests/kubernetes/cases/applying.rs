//! Server-side apply: case 19.

use homeostat_objects::{Client, FieldOwner, Kind, Patch, PatchTarget};
use serde_json::{Value, json};

use super::{CONFIG_MAP, Scratch, at};

#[test]
fn case_19_fields_are_applied_taken_over_and_dropped() {
    let scratch = Scratch::new("case-19");
    let client = &scratch.client;
    let colours = |data: Value| {
        let mut object = scratch.map("colours");
        object["data"] = data;
        object
    };
    let (one, two) = (FieldOwner::new("one"), FieldOwner::new("two"));
    let created = client.apply(&CONFIG_MAP, colours(json!({"sky": "blue", "sea": "green"})), &one).unwrap();
    let again = client.apply(&CONFIG_MAP, colours(json!({"sky": "blue", "sea": "green"})), &one).unwrap();
    assert_eq!(created.resource_version(), again.resource_version(), "the second apply changes nothing");

    let conflict = client.apply(&CONFIG_MAP, colours(json!({"sky": "grey"})), &two).unwrap_err();
    assert!(conflict.is_conflict(), "{conflict:?}");
    assert!(conflict.to_string().contains("one") && conflict.to_string().contains("sky"), "{conflict}");
    let forced = client.apply(&CONFIG_MAP, colours(json!({"sky": "grey"})), &two.clone().force()).unwrap();
    assert_eq!(at(&forced, "/data"), json!({"sky": "grey", "sea": "green"}));
    // The first owner drops two fields: one that it alone owns, and one that it has lost.
    let dropped = client.apply(&CONFIG_MAP, colours(json!({"sun": "red"})), &one).unwrap();
    assert_eq!(at(&dropped, "/data"), json!({"sky": "grey", "sun": "red"}));
}

#[test]
fn case_19_items_of_a_list_with_keys_are_merged() {
    const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment");
    let scratch = Scratch::new("case-19-lists");
    let client = &scratch.client;
    let deployment = |containers: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": scratch.namespace, "name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}},
            },
        })
    };
    let names = |object: &homeostat_objects::SharedObject| {
        let containers = at(object, "/spec/template/spec/containers");
        let names =
            containers.as_array().unwrap().iter().map(|container| container["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let (one, two) = (FieldOwner::new("one"), FieldOwner::new("two"));
    let web = json!([{"name": "web", "image": "web:1"}]);
    client.apply(&DEPLOYMENT, deployment(web.clone()), &one).unwrap();
    let both = client.apply(&DEPLOYMENT, deployment(json!([{"name": "proxy", "image": "proxy:1"}])), &two).unwrap();
    assert_eq!(names(&both), ["web", "proxy"]);
    let same = client.apply(&DEPLOYMENT, deployment(web), &one).unwrap();
    assert_eq!(names(&same), ["web", "proxy"]);
    let merge = Patch::Merge(json!({"metadata": {"labels": {"by": "hand"}}}));
    client.patch(&DEPLOYMENT, &scratch.key("web"), &merge, PatchTarget::Object).unwrap();
    let none = client.apply(&DEPLOYMENT, deployment(json!([{"name": "web", "image": "web:2"}])), &one).unwrap();
    assert_eq!((names(&none).len(), at(&none, "/metadata/labels/by")), (2, json!("hand")));
}
