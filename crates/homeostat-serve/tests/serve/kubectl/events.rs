//! The events of an `EventRecorder`.

use homeostat_objects::{Api, DynamicObject, EventRecorder, EventType};

use super::*;

const RACK: Kind = Kind::cluster("example.com", "v1", "Rack");

/// Returns a server of events, and a recorder that stores its events there.
fn recorded() -> (Door, EventRecorder) {
    let door = Door::with(|api| api.serve(ServedResource::new(RACK)).serve_events());
    let recorder = EventRecorder::builder("painter").client(Arc::new(door.client.clone())).log(false).build();
    for name in ["blue", "red"] {
        door.create(name, name);
        let object = sites_of(&door).get(&ObjectKey::new("default", name)).unwrap();
        recorder.event(&object, EventType::Normal, "Painted", &format!("The site is {name} now."));
    }
    recorder.flush();
    (door, recorder)
}

fn sites_of(door: &Door) -> Api<DynamicObject> {
    Api::of_kind(Arc::new(door.client.clone()), SITE)
}

/// Returns the events in the output of `kubectl describe`.
fn described(door: &Door, arguments: &[&str]) -> String {
    let text = door.run(&[&["describe"], arguments].concat()).ok();
    text.split_once("\nEvents:").unwrap_or_else(|| panic!("{text}")).1.to_owned()
}

#[test]
fn describe_shows_the_events_of_a_recorder() {
    let (door, recorder) = recorded();
    let events = described(&door, &["site", "blue"]);
    for part in ["Normal", "Painted", "painter", "The site is blue now."] {
        assert!(events.contains(part), "{part}: {events}");
    }
    assert!(!events.contains("red"), "{events}");
    let blue = sites_of(&door).get(&ObjectKey::new("default", "blue")).unwrap();
    recorder.event(&blue, EventType::Normal, "Painted", "The site is blue now.");
    recorder.flush();
    assert!(described(&door, &["site", "blue"]).contains("(x2 over "));

    // Events from before belong to another object with the same name.
    sites_of(&door).delete(&ObjectKey::new("default", "blue"), &homeostat_objects::DeleteOptions::default()).unwrap();
    door.create("blue", "Blue");
    assert_eq!(described(&door, &["site", "blue"]).trim(), "<none>");
}

#[test]
fn describe_shows_the_events_of_a_cluster_wide_object() {
    let (door, recorder) = recorded();
    let racks = Api::<DynamicObject>::of_kind(Arc::new(door.client.clone()), RACK);
    let rack = racks.create(&DynamicObject::new(&RACK, "", "r1")).unwrap();
    recorder.event(&rack, EventType::Warning, "Hot", "It has 61 degrees.");
    recorder.flush();
    assert!(described(&door, &["rack", "r1"]).contains("It has 61 degrees."));
}

#[test]
fn events_are_listed_and_watched_in_both_groups() {
    let (door, recorder) = recorded();
    let core = door.run(&["get", "events"]).ok();
    assert!(
        core.contains("LAST SEEN") && core.contains("site/blue") && core.contains("The site is red now."),
        "{core}"
    );
    assert_eq!(door.run(&["get", "events.events.k8s.io", "--no-headers"]).ok().lines().count(), 2);
    let only = door.run(&["events", "--for", "site.example.com/blue", "--no-headers"]).ok();
    assert!(only.contains("The site is blue now.") && only.lines().count() == 1, "{only}");

    let mut watch = door.follow(&["get", "events", "--watch-only", "--field-selector", "involvedObject.name=blue"]);
    door.wait_for_watch();
    for name in ["red", "blue"] {
        let site = sites_of(&door).get(&ObjectKey::new("default", name)).unwrap();
        recorder.event(&site, EventType::Warning, "Faded", "It has less colour.");
        recorder.flush();
    }
    assert_eq!(watch.words()[..3], ["LAST", "SEEN", "TYPE"]);
    let line = watch.words();
    assert!(line.contains(&"site/blue".to_owned()) && line.contains(&"Faded".to_owned()), "{line:?}");
}

#[test]
fn the_columns_of_events_are_those_of_kubernetes() {
    let (door, _recorder) = recorded();
    let heads = |arguments: &[&str]| door.run(arguments).ok().lines().next().unwrap().to_owned();
    let words = |text: &str| {
        text.split("  ").map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    for events in ["events", "events.events.k8s.io"] {
        assert_eq!(words(&heads(&["get", events])), ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]);
        assert_eq!(
            words(&heads(&["get", events, "-o", "wide"])),
            ["LAST SEEN", "TYPE", "REASON", "OBJECT", "SUBOBJECT", "SOURCE", "MESSAGE", "FIRST SEEN", "COUNT", "NAME",]
        );
    }
}

#[test]
fn core_events_are_read_and_written_one_by_one() {
    let (door, _recorder) = recorded();
    let stored = door.client.list(&EventRecorder::KIND, &homeostat_objects::Query::all()).unwrap().items;
    let name = stored[0].name();
    let event: Value = serde_json::from_str(&door.run(&["get", "event", name, "-o", "json"]).ok()).unwrap();
    assert_eq!((&event["apiVersion"], &event["reportingComponent"]), (&json!("v1"), &json!("painter")));
    assert_eq!(event["metadata"]["uid"], stored[0].uid());
    let error = door.run(&["get", "event", "none"]).fails();
    assert!(error.contains("events \"none\" not found"), "{error}");
    door.run(&["annotate", "event", name, "a=b"]).ok();
    let newer = door.run(&["get", "events.events.k8s.io", name, "-o", "jsonpath={.metadata.annotations.a}"]).ok();
    assert_eq!(newer, "b");
    door.run(&["delete", "event", name]).ok();
    assert!(door.run(&["get", "events.events.k8s.io", name]).fails().contains("not found"));
}
