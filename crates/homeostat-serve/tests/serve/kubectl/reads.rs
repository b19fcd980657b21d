//! Commands that read.

use super::*;

#[test]
fn get_prints_tables_objects_and_selections() {
    let door = Door::new();
    assert!(door.run(&["get", "sites"]).err.contains("No resources found"));
    door.create("blue", "Blue");
    door.create("red", "Red");
    let rows = |arguments: &[&str]| -> Vec<Vec<String>> {
        let out = door.run(arguments).ok();
        out.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let table = rows(&["get", "sites"]);
    assert_eq!(table[0], ["NAME", "TITLE", "AGE"]);
    assert_eq!(table[1][..2], ["blue", "Blue"]);
    assert!(table[1][2].ends_with('s'), "{table:?}");
    let wide = rows(&["get", "si", "-o", "wide"]);
    assert_eq!((wide[0].join(" "), &*wide[2][2]), ("NAME TITLE PAGES AGE".to_owned(), "1"));
    assert_eq!(rows(&["get", "site", "-l", "name=red"])[1][0], "red");
    assert_eq!(rows(&["get", "site", "--field-selector", "metadata.name!=red"]).len(), 2);
    assert_eq!(rows(&["get", "site", "-A"])[1][..2], ["default", "blue"]);
    assert!(rows(&["get", "all"])[1][0].ends_with("blue"));
    assert_eq!(rows(&["get", "sites", "--chunk-size=1", "--no-headers"]).len(), 2);
    assert_eq!(rows(&["get", "site", "blue", "-o", "jsonpath={.spec.title}"])[0], ["Blue"]);
    assert_eq!(rows(&["get", "site", "-o", "name"])[0], ["site.example.com/blue"]);
    assert_eq!(rows(&["get", "site", "--sort-by=.spec.title", "-L", "name"])[1].last().unwrap(), "blue");
    let yaml = door.run(&["get", "site", "blue", "-o", "yaml"]).ok();
    assert!(yaml.contains("apiVersion: example.com/v1") && yaml.contains("  title: Blue"), "{yaml}");
    assert_eq!(door.get("red")["spec"], json!({"title": "Red", "pages": 1}));
    assert!(door.run(&["get", "site", "green"]).fails().contains("\"green\" not found"));
    assert!(door.run(&["get", "houses"]).fails().contains("the server doesn't have a resource type"));
    assert_eq!(rows(&["get", "namespaces"])[1][..2], ["default", "Active"]);
}

#[test]
fn watch_prints_changes() {
    let door = Door::new();
    door.create("blue", "Blue");
    let mut watch = door.follow(&["get", "sites", "--watch"]);
    assert_eq!(watch.words(), ["NAME", "TITLE", "AGE"]);
    assert_eq!(watch.words()[..2], ["blue", "Blue"]);
    door.create("red", "Red");
    assert_eq!(watch.words()[..2], ["red", "Red"]);
    let patch = Patch::Merge(json!({"spec": {"title": "Navy"}}));
    door.client.patch(&SITE, &ObjectKey::new("default", "blue"), &patch, PatchTarget::Object).unwrap();
    assert_eq!(watch.words()[..2], ["blue", "Navy"]);
}

#[test]
fn describe_shows_the_object_and_its_events() {
    let door = Door::new();
    door.create("blue", "Blue");
    let uid = door.get("blue")["metadata"]["uid"].clone();
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "blue.1", "namespace": "default"},
        "involvedObject": {"kind": "Site", "apiVersion": "example.com/v1", "name": "blue", "namespace": "default", "uid": uid},
        "type": "Normal", "reason": "Painted", "message": "The site is blue now.", "count": 1,
        "source": {"component": "painter"},
    });
    door.run_with(&["create", "-f", "-"], &event.to_string()).ok();
    let text = door.run(&["describe", "site", "blue"]).ok();
    for part in ["Name:         blue", "Title:", "Painted", "The site is blue now."] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let events = door.run(&["get", "events"]).ok();
    assert!(events.contains("site/blue") && events.contains("Painted"), "{events}");
}

#[test]
fn api_resources_and_explain_show_the_kinds() {
    let door = Door::new();
    let resources = door.run(&["api-resources"]).ok();
    let line = resources.lines().find(|line| line.starts_with("sites")).unwrap_or_else(|| panic!("{resources}"));
    for part in ["si", "example.com/v1", "true", "Site"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(resources.contains("configmaps") && resources.contains("namespaces"), "{resources}");
    assert!(door.run(&["api-versions"]).ok().contains("example.com/v1"));
    let explained = door.run(&["explain", "site.spec"]).ok();
    assert!(explained.contains("The wish of the owner.") && explained.contains("pages"), "{explained}");
    assert!(door.run(&["explain", "site.spec.title"]).ok().contains("The title in the browser."));
    assert!(door.run(&["explain", "site.metadata.labels"]).ok().contains("by which objects are selected"));
    assert!(door.run(&["explain", "site", "--recursive"]).ok().contains("ownerReferences"));
}
