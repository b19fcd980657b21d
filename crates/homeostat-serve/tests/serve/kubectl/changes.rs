//! Commands that change objects.

use super::*;

#[test]
fn apply_creates_and_changes_on_both_sides() {
    let door = Door::new();
    let apply = |object: &Value, options: &[&str]| {
        door.run_with(&[&["apply", "-f", "-"], options].concat(), &object.to_string())
    };
    assert_eq!(apply(&site("blue", "Blue"), &[]).ok(), "site.example.com/blue created\n");
    assert_eq!(apply(&site("blue", "Blue"), &[]).ok(), "site.example.com/blue unchanged\n");
    let mut changed = site("blue", "Navy");
    changed["spec"]["tags"] = json!({"a": "b"});
    assert_eq!(apply(&changed, &[]).ok(), "site.example.com/blue configured\n");
    assert_eq!(apply(&site("blue", "Navy"), &[]).ok(), "site.example.com/blue configured\n");
    assert_eq!(door.get("blue")["spec"], json!({"title": "Navy", "pages": 1}));

    let server_side = &["--server-side"][..];
    assert_eq!(apply(&site("red", "Red"), server_side).ok(), "site.example.com/red serverside-applied\n");
    let other = apply(&site("red", "Rose"), &["--server-side", "--field-manager=bob"]).fails();
    assert!(other.contains("conflict with \"kubectl\"") && other.contains(".spec.title"), "{other}");
    apply(&site("red", "Rose"), &["--server-side", "--field-manager=bob", "--force-conflicts"]).ok();
    assert_eq!(door.get("red")["spec"]["title"], "Rose");

    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "default"}, "data": {"a": "1"}});
    apply(&map, &[]).ok();
    let mut more = map.clone();
    more["data"] = json!({"b": "2"});
    assert_eq!(apply(&more, &[]).ok(), "configmap/m configured\n");
    assert_eq!(door.run(&["get", "cm", "m", "-o", "jsonpath={.data}"]).ok(), r#"{"b":"2"}"#);

    assert_eq!(
        apply(&site("dry", "Dry"), &["--dry-run=server"]).ok(),
        "site.example.com/dry created (server dry run)\n"
    );
    assert!(door.run(&["get", "site", "dry"]).fails().contains("not found"));
    let diff = door.run_with(&["diff", "-f", "-"], &site("red", "Crimson").to_string());
    assert!(diff.out.contains("+  title: Crimson"), "{diff:?}");
}

#[test]
fn edit_sends_the_changed_object() {
    let door = Door::new();
    door.create("blue", "Blue");
    let script = door.file("edit.sh", "#!/bin/sh\nsed -i 's/title: Blue/title: Navy/' \"$1\"\n");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = door.command(&["edit", "site", "blue"]);
    command.env("EDITOR", &script);
    assert!(Door::finish(command, "").ok().contains("edited"));
    assert_eq!(door.get("blue")["spec"]["title"], "Navy");
}

#[test]
fn patch_label_and_annotate_change_fields() {
    let door = Door::new();
    door.create("blue", "Blue");
    door.run(&["patch", "site", "blue", "--type=merge", "-p", r#"{"spec": {"pages": 3}}"#]).ok();
    door.run(&[
        "patch",
        "site",
        "blue",
        "--type=json",
        "-p",
        r#"[{"op": "add", "path": "/spec/tags", "value": {"x": "y"}}]"#,
    ])
    .ok();
    door.run(&["label", "site", "blue", "tier=front", "name-"]).ok();
    door.run(&["annotate", "sites", "--all", "note=hello world"]).ok();
    door.set_status("blue", &json!({"phase": "Up"}));
    let blue = door.get("blue");
    assert_eq!(blue["spec"], json!({"title": "Blue", "pages": 3, "tags": {"x": "y"}}));
    assert_eq!(blue["metadata"]["labels"], json!({"tier": "front"}));
    assert_eq!(blue["metadata"]["annotations"], json!({"note": "hello world"}));
    assert_eq!(blue["status"]["phase"], "Up");
    let mut replaced = blue;
    replaced["spec"]["title"] = json!("Navy");
    door.run_with(&["replace", "-f", "-"], &replaced.to_string()).ok();
    assert_eq!(door.get("blue")["spec"]["title"], "Navy");
    let strategic = door.run(&["patch", "cm", "none", "-p", r#"{"data": {"a": "b"}}"#]).fails();
    assert!(strategic.contains("not found"), "{strategic}");
}

#[test]
fn wait_and_delete_see_the_end_of_an_object() {
    let door = Door::new();
    for name in ["blue", "red", "green"] {
        door.create(name, name);
    }
    let mut waits = door.follow(&["wait", "site/blue", "--for=condition=Ready", "--timeout=60s"]);
    door.set_status("blue", &json!({"conditions": [{"type": "Ready", "status": "True"}]}));
    assert_eq!(waits.words(), ["site.example.com/blue", "condition", "met"]);
    assert!(waits.child.wait().unwrap().success());
    assert!(door.run(&["wait", "site/red", "--for=condition=Ready", "--timeout=1s"]).fails().contains("timed out"));

    door.run(&["patch", "site", "red", "--type=merge", "-p", r#"{"metadata": {"finalizers": ["example.com/x"]}}"#])
        .ok();
    door.run(&["delete", "site", "red", "--wait=false"]).ok();
    let mut gone = door.follow(&["wait", "site/red", "--for=delete", "--timeout=60s"]);
    door.wait_for_watch();
    door.run(&["patch", "site", "red", "--type=merge", "-p", r#"{"metadata": {"finalizers": null}}"#]).ok();
    assert!(gone.child.wait().unwrap().success());
    assert_eq!(door.run(&["delete", "site", "blue"]).ok().split_whitespace().next(), Some("site.example.com"));
    assert!(door.run(&["delete", "site", "blue"]).fails().contains("not found"));
    door.run(&["delete", "site", "-l", "name=green", "--cascade=foreground"]).ok();
    door.create("last", "Last");
    door.run(&["delete", "sites", "--all"]).ok();
    assert!(door.run(&["get", "sites"]).err.contains("No resources found"));
}

#[test]
fn a_namespace_is_applied_with_its_objects() {
    let door = Door::new();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "blue"}});
    let mut inside = site("home", "Home");
    inside["metadata"]["namespace"] = json!("blue");
    let both = json!({"apiVersion": "v1", "kind": "List", "items": [namespace, inside]}).to_string();
    let apply = |options: &[&str]| door.run_with(&[&["apply", "-f", "-"], options].concat(), &both).ok();
    assert_eq!(apply(&[]), "namespace/blue created\nsite.example.com/home created\n");
    for _ in 0..2 {
        let again = apply(&[]);
        assert!(again.contains("namespace/blue") && again.contains("site.example.com/home unchanged"), "{again}");
    }
    assert!(apply(&["--server-side", "--force-conflicts"]).contains("namespace/blue serverside-applied"));
    let mut watch = door.follow(&["get", "namespaces", "--watch"]);
    assert_eq!([watch.words(), watch.words()].map(|words| words[0].clone()), ["NAME", "blue"]);
    let refused = door.run(&["delete", "namespace", "blue"]).fails();
    assert!(refused.contains("namespaces are virtual") && refused.contains("delete its objects"), "{refused}");
    assert_eq!(door.run(&["create", "namespace", "red"]).ok(), "namespace/red created\n");
}

/// Since version 1.32, kubectl sends protocol buffers here.
#[test]
fn create_makes_config_maps() {
    let door = Door::new();
    door.run(&["create", "configmap", "m", "--from-literal=a=1"]).ok();
    assert_eq!(door.run(&["get", "cm", "m", "-o", "jsonpath={.data}"]).ok(), r#"{"a":"1"}"#);
    assert!(door.run(&["create", "configmap", "m"]).fails().contains("already exists"));
}
