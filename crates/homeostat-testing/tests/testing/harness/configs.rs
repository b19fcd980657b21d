//! Expectations of a config, each in four cases: as expected, different, unexpected, missing. The names come from
//! reconcilerio/runtime, `testing/config_test.go` (`TestExpectConfig`).

use homeostat_objects::sub::{Config, Flow, SubContext, SubResult};
use homeostat_objects::{
    Api, DeleteOptions, DynamicObject, EventType, FieldOwner, LabelSelector, Object, ObjectKey, Patch, Query, TrackRef,
    Verb,
};
use homeostat_testing::{ConfigCase, Factory, Reactor, Sample, SubReconcilerTable};
use serde_json::json;

use super::support::{APP, app, assert_report, case};

/// Returns the report of a case with a config named `test` that makes the calls of `operation`.
fn of(config: ConfigCase, operation: fn(&Config)) -> String {
    let table = SubReconcilerTable::new([case("x").config("test", config)]);
    let made = table.check(|given| {
        let config = given.config_named("test");
        move |_: &SubContext<'_>, _: &mut DynamicObject| -> SubResult {
            operation(&config);
            Ok(Flow::proceed())
        }
    });
    made.err().unwrap_or_default()
}

fn nothing(_: &Config) {}

fn apps(config: &Config) -> Api<DynamicObject> {
    Api::of_kind(config.client().clone(), APP)
}

fn r1() -> Factory {
    app("resource-1")
}

fn r2() -> Factory {
    app("resource-2")
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

#[track_caller]
fn fails(config: ConfigCase, operation: fn(&Config), expected: &str) {
    assert_report(
        &of(config, operation),
        &format!("1 of 1 cases failed\ncase \"x\":\n{}", expected.trim_matches('\n')),
    );
}

#[track_caller]
fn passes(config: ConfigCase, operation: fn(&Config)) {
    assert_report(&of(config, operation), "");
}

#[test]
fn no_mutations() {
    passes(ConfigCase::new(), nothing);
}

#[test]
fn given_objects_are_read() {
    let given = || ConfigCase::new().given(&r1()).given(&r2());
    passes(given(), |config| {
        assert_eq!(apps(config).get(&key("resource-1")).unwrap().key(), key("resource-1"));
        assert_eq!(apps(config).list(&Query::all()).unwrap().items.len(), 2);
        assert_eq!(config.uncached().list(&APP, &Query::all()).unwrap().items.len(), 2);
    });
    passes(given().reactor(Reactor::fail(Verb::Get).kind(&APP)), |config| {
        assert!(apps(config).get(&key("resource-1")).unwrap_err().is_transport());
        assert_eq!(apps(config).list(&Query::all()).unwrap().items.len(), 2);
    });
    passes(given().given_uncached(&app("resource-3")), |config| {
        assert!(config.uncached().get(&APP, &key("resource-3")).is_ok());
        assert_eq!(config.uncached().list(&APP, &Query::all()).unwrap().items.len(), 1);
        assert!(apps(config).get(&key("resource-3")).unwrap_err().is_not_found());
    });
}

#[test]
fn given_tracks_are_present_and_are_not_new() {
    let given = || ConfigCase::new().given_track(&r2(), &r1());
    passes(given(), |config| {
        assert_eq!(config.tracker().trackers_of(&APP, &r2().sample().meta()), [key("resource-1")]);
    });
    let track = |config: &Config| config.tracker().track(&APP, TrackRef::name(key("resource-2")), key("resource-1"));
    passes(given().expect_track(&r2(), &r1()), track);
}

#[test]
fn tracks() {
    let track = |config: &Config| config.tracker().track(&APP, TrackRef::name(key("resource-2")), key("resource-1"));
    passes(ConfigCase::new().expect_track(&r2(), &r1()), track);
    fails(
        ConfigCase::new().expect_track(&r1(), &r2()),
        track,
        "
  config \"test\": track differs (-expected +actual)
      -App.example.com default/resource-1 by default/resource-2
      +App.example.com default/resource-2 by default/resource-1
",
    );
    fails(
        ConfigCase::new(),
        track,
        "
  config \"test\": unexpected track
      App.example.com default/resource-2 by default/resource-1
",
    );
    fails(
        ConfigCase::new().expect_track(&r2(), &r1()),
        nothing,
        "
  config \"test\": missing track
      App.example.com default/resource-2 by default/resource-1
",
    );
    let select = |config: &Config| {
        let labels = || LabelSelector::label("app", "web");
        config.tracker().track(&APP, TrackRef::selector(Some("default"), labels()), key("resource-1"));
        config.tracker().track(&APP, TrackRef::selector(None, labels()), key("resource-1"));
    };
    let labels = || LabelSelector::label("app", "web");
    passes(
        ConfigCase::new().expect_track_of(&APP, TrackRef::selector(Some("default"), labels()), &r1()).expect_track_of(
            &APP,
            TrackRef::selector(None, labels()),
            &r1(),
        ),
        select,
    );
    fails(
        ConfigCase::new(),
        select,
        "
  config \"test\": unexpected track
      App.example.com default/* with app=web by default/resource-1
  config \"test\": unexpected track
      App.example.com * with app=web by default/resource-1
",
    );
}

#[test]
fn events() {
    let record = |config: &Config| config.recorder().event(&r1().build(), EventType::Normal, "TheReason", "the note");
    let expected =
        |object: &Factory| ConfigCase::new().expect_event(object, EventType::Normal, "TheReason", "the note");
    passes(expected(&r1()), record);
    fails(
        expected(&r2()),
        record,
        "
  config \"test\": event differs (-expected +actual)
      -App.example.com default/resource-2: Normal TheReason: the note
      +App.example.com default/resource-1: Normal TheReason: the note
",
    );
    fails(
        ConfigCase::new(),
        record,
        "
  config \"test\": unexpected event
      App.example.com default/resource-1: Normal TheReason: the note
",
    );
    fails(
        expected(&r1()),
        nothing,
        "
  config \"test\": missing event
      App.example.com default/resource-1: Normal TheReason: the note
",
    );
    let other = |event, reason, note| ConfigCase::new().expect_event(&r1(), event, reason, note);
    for config in [
        other(EventType::Warning, "TheReason", "the note"),
        other(EventType::Normal, "AReason", "the note"),
        other(EventType::Normal, "TheReason", "a note"),
    ] {
        assert!(of(config, record).contains("event differs"));
    }
    // A repeated event counts again.
    fails(
        expected(&r1()),
        |config| {
            for _ in 0..2 {
                config.recorder().event(&r1().build(), EventType::Normal, "TheReason", "the note");
            }
        },
        "
  config \"test\": unexpected event
      App.example.com default/resource-1: Normal TheReason: the note
",
    );
}

#[test]
fn creates() {
    let create = |config: &Config| drop(apps(config).create(&r1().build()));
    passes(ConfigCase::new().expect_create(&r1()), create);
    fails(
        ConfigCase::new().expect_create(&r2()),
        create,
        r#"
  config "test": create App.example.com default/resource-2 differs (-expected +actual)
      -create App.example.com/v1 default/resource-2
      +create App.example.com/v1 default/resource-1
       {
         "apiVersion": "example.com/v1",
         "kind": "App",
         "metadata": {
      -    "name": "resource-2",
      +    "name": "resource-1",
           "namespace": "default"
         }
       }
"#,
    );
    fails(
        ConfigCase::new(),
        create,
        r#"
  config "test": unexpected create App.example.com default/resource-1
      {
        "apiVersion": "example.com/v1",
        "kind": "App",
        "metadata": {
          "name": "resource-1",
          "namespace": "default"
        }
      }
"#,
    );
    fails(
        ConfigCase::new().expect_create(&r1()),
        nothing,
        r#"
  config "test": missing create App.example.com default/resource-1
      {
        "apiVersion": "example.com/v1",
        "kind": "App",
        "metadata": {
          "name": "resource-1",
          "namespace": "default"
        }
      }
"#,
    );
    // Writers do not send the fields that a client sets, so an expectation with such fields is a mistake.
    assert!(of(ConfigCase::new().expect_create(&r1().created(1)), create).contains("-    \"uid\""));
}

#[test]
fn generated_names() {
    fn named() -> Factory {
        Factory::config_map("default", "").generate_name("resource-")
    }
    passes(
        ConfigCase::new().expect_create(&named()).expect_create(&named()).given(&named().name("resource-002")),
        |config| {
            let maps = Api::<DynamicObject>::of_kind(config.client().clone(), named().build().kind());
            let created = || maps.create(&named().build()).unwrap().meta().name.clone();
            assert_eq!([created(), created()], ["resource-001", "resource-003"]);
        },
    );
    fails(
        ConfigCase::new(),
        |config| drop(config.client().create(&named().build().kind(), named().build().to_json().unwrap())),
        r#"
  config "test": unexpected create ConfigMap default/resource-*
      {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
          "generateName": "resource-",
          "namespace": "default"
        }
      }
"#,
    );
}

#[test]
fn updates() {
    let update = |config: &Config| {
        let mut app = apps(config).get(&key("resource-1")).unwrap();
        app.fields_mut().insert("spec".to_owned(), json!({"replicas": 2}));
        apps(config).update(&app).unwrap();
    };
    let given = || ConfigCase::new().given(&r1());
    passes(given().expect_update(&r1().field("/spec/replicas", 2)), update);
    passes(given().expect_update(&r1().created(0).resource_version("1").field("/spec/replicas", 2)), update);
    fails(
        given().expect_update(&r1().field("/spec/replicas", 3)),
        update,
        r#"
  config "test": update App.example.com default/resource-1 differs (-expected +actual)
           "namespace": "default"
         },
         "spec": {
      -    "replicas": 3
      +    "replicas": 2
         }
       }
"#,
    );
    // Fields that a client sets are compared if the expected object has them.
    assert!(
        of(given().expect_update(&r1().created(5).field("/spec/replicas", 2)), update).contains("creationTimestamp")
    );
    assert!(of(given(), update).contains("config \"test\": unexpected update App.example.com default/resource-1\n"));
    assert!(
        of(given().expect_update(&r1()), nothing)
            .contains("config \"test\": missing update App.example.com default/resource-1\n")
    );
}

#[test]
fn patches() {
    let patch = |config: &Config| {
        let foo = Patch::Merge(json!({"metadata": {"resourceVersion": "999"}, "spec": {"foo": "bar"}}));
        apps(config).patch(&key("resource-1"), &foo).unwrap();
    };
    let given = || ConfigCase::new().given(&r1());
    let merge = |json| given().expect_patch(&r1(), Patch::Merge(json));
    passes(merge(json!({"metadata": {}, "spec": {"foo": "bar"}})), patch);
    passes(merge(json!({"spec": {"foo": "bar"}})), patch);
    passes(merge(json!({"metadata": {"resourceVersion": "999"}, "spec": {"foo": "bar"}})), patch);
    assert!(of(merge(json!({"metadata": {"resourceVersion": "1"}, "spec": {"foo": "bar"}})), patch).contains("\"1\""));
    fails(
        merge(json!({"metadata": {}, "spec": {}})),
        patch,
        r#"
  config "test": patch App.example.com default/resource-1 differs (-expected +actual)
       {
         "merge": {
           "metadata": {},
      -    "spec": {}
      +    "spec": {
      +      "foo": "bar"
      +    }
         }
       }
"#,
    );
    fails(
        given(),
        patch,
        r#"
  config "test": unexpected patch App.example.com default/resource-1
      {
        "merge": {
          "metadata": {
            "resourceVersion": "999"
          },
          "spec": {
            "foo": "bar"
          }
        }
      }
"#,
    );
    assert!(
        of(merge(json!({})), nothing).contains("config \"test\": missing patch App.example.com default/resource-1\n")
    );
    let steps = || Patch::Json(json!([{"op": "add", "path": "/spec", "value": {}}]));
    let step = |config: &Config| {
        let steps = Patch::Json(json!([{"op": "add", "path": "/spec", "value": {}}]));
        apps(config).patch(&key("resource-1"), &steps).unwrap();
    };
    passes(given().expect_patch(&r1(), steps()), step);
    assert!(of(merge(json!([{"op": "add", "path": "/spec", "value": {}}])), step).contains("differs"));
}

#[test]
fn applies() {
    let apply = |config: &Config| {
        let fields = r1().field("/spec/replicas", 1).build().to_json().unwrap();
        apps(config).apply(fields, &FieldOwner::new("me")).unwrap();
    };
    let expected =
        |replicas: u32, owner| ConfigCase::new().expect_apply(&r1().field("/spec/replicas", replicas), owner);
    passes(expected(1, FieldOwner::new("me")), apply);
    fails(
        expected(2, FieldOwner::new("me").force()),
        apply,
        r#"
  config "test": apply App.example.com default/resource-1 differs (-expected +actual)
             "namespace": "default"
           },
           "spec": {
      -      "replicas": 2
      +      "replicas": 1
           }
         },
      -  "force": true,
      +  "force": false,
         "owner": "me"
       }
"#,
    );
    assert!(of(expected(1, FieldOwner::new("you")), apply).contains("-  \"owner\": \"you\""));
    assert!(
        of(ConfigCase::new(), apply).contains("config \"test\": unexpected apply App.example.com default/resource-1\n")
    );
    assert!(
        of(expected(1, FieldOwner::new("me").status()), apply)
            .contains("status apply App.example.com default/resource-1 differs")
    );
    let missing = of(expected(1, FieldOwner::new("me")), nothing);
    assert!(missing.contains("config \"test\": missing apply App.example.com default/resource-1\n"));
}

#[test]
fn deletes() {
    let delete = |config: &Config| {
        let options = DeleteOptions::default().resource_version("999");
        apps(config).delete(&key("resource-1"), &options).unwrap();
    };
    let given = || ConfigCase::new().given(&r1());
    let options = |version: &str| DeleteOptions::default().resource_version(version);
    passes(given().expect_delete(&r1()), delete);
    passes(given().expect_delete_with(&r1(), options("999")), delete);
    fails(
        given().expect_delete_with(&r1(), options("1").purge()),
        delete,
        r#"
  config "test": delete App.example.com default/resource-1 differs (-expected +actual)
       {
         "gracePeriod": null,
         "propagation": "Background",
      -  "purge": true,
      -  "resourceVersion": "1",
      +  "purge": false,
      +  "resourceVersion": "999",
         "uid": null
       }
"#,
    );
    fails(
        given().expect_delete(&r2()),
        delete,
        r#"
  config "test": delete App.example.com default/resource-2 differs (-expected +actual)
      -delete App.example.com/v1 default/resource-2
      +delete App.example.com/v1 default/resource-1
       {
         "gracePeriod": null,
         "propagation": "Background",
"#,
    );
    assert!(of(given(), delete).contains("config \"test\": unexpected delete App.example.com default/resource-1\n"));
    assert!(
        of(given().expect_delete(&r1()), nothing)
            .contains("config \"test\": missing delete App.example.com default/resource-1\n")
    );
    let purge = of(given().expect_delete(&r1()), |config| drop(apps(config).purge(&key("resource-1"))));
    assert!(purge.contains("-  \"purge\": false"), "{purge}");
}

#[test]
fn status_updates() {
    let update = |config: &Config| {
        let mut app = apps(config).get(&key("resource-1")).unwrap();
        app.fields_mut().insert("spec".to_owned(), json!({"replicas": 2}));
        app.fields_mut().insert("status".to_owned(), json!({"ready": true}));
        apps(config).update_status(&app).unwrap();
    };
    let given = || ConfigCase::new().given(&r1());
    passes(given().expect_status_update(&r1().field("/status/ready", true)), update);
    fails(
        given().expect_status_update(&r1().field("/status/ready", false)),
        update,
        r#"
  config "test": status update App.example.com default/resource-1 differs (-expected +actual)
       {
         "status": {
      -    "ready": false
      +    "ready": true
         }
       }
"#,
    );
    fails(
        given(),
        update,
        r#"
  config "test": unexpected status update App.example.com default/resource-1
      {
        "status": {
          "ready": true
        }
      }
"#,
    );
    let missing = of(given().expect_status_update(&r1().field("/status/ready", true)), nothing);
    assert!(missing.contains("config \"test\": missing status update App.example.com default/resource-1\n"));
    // Deletions with different options differ.
    let update = of(given().expect_update(&r1().field("/status/ready", true)), update);
    assert!(update.contains("-update App") && update.contains("+status update App"), "{update}");
}

#[test]
fn status_patches() {
    let patch = |config: &Config| {
        let ready = Patch::Merge(json!({"status": {"ready": true}}));
        apps(config).patch_status(&key("resource-1"), &ready).unwrap();
    };
    let given = || ConfigCase::new().given(&r1());
    let ready = |ready: bool| given().expect_status_patch(&r1(), Patch::Merge(json!({"status": {"ready": ready}})));
    passes(ready(true), patch);
    assert!(of(ready(false), patch).contains("-      \"ready\": false"));
    assert!(
        of(given(), patch).contains("config \"test\": unexpected status patch App.example.com default/resource-1\n")
    );
    assert!(
        of(ready(true), nothing).contains("config \"test\": missing status patch App.example.com default/resource-1\n")
    );
    let whole = given().expect_patch(&r1(), Patch::Merge(json!({"status": {"ready": true}})));
    assert!(of(whole, patch).contains("+status patch App.example.com/v1 default/resource-1"));
}

/// The writes of all methods have one common order.
#[test]
fn the_order_of_writes() {
    let writes = |config: &Config| {
        apps(config).create(&r2().build()).unwrap();
        apps(config).delete(&key("resource-1"), &DeleteOptions::default()).unwrap();
    };
    let given = || ConfigCase::new().given(&r1());
    passes(given().expect_create(&r2()).expect_delete(&r1()), writes);
    let report = of(given().expect_delete(&r1()).expect_create(&r2()), writes);
    assert_eq!(report.matches("missing ").count(), 1, "{report}");
    assert_eq!(report.matches("unexpected ").count(), 1, "{report}");
}

/// The order of events is compared, and the order of tracks too.
#[test]
fn the_order_of_events_and_of_tracks() {
    let two = |config: &Config| {
        for name in ["a", "b"] {
            config.recorder().event(&r1().build(), EventType::Normal, name, "note");
            config.tracker().track(&APP, TrackRef::name(key(name)), key("resource-1"));
        }
    };
    let expected = |names: [&str; 2]| {
        names.iter().fold(ConfigCase::new(), |config, name| {
            config.expect_event(&r1(), EventType::Normal, name, "note").expect_track(&app(name), &r1())
        })
    };
    passes(expected(["a", "b"]), two);
    fails(
        expected(["b", "a"]),
        two,
        "
  config \"test\": unexpected event
      App.example.com default/resource-1: Normal a: note
  config \"test\": missing event
      App.example.com default/resource-1: Normal a: note
  config \"test\": unexpected track
      App.example.com default/a by default/resource-1
  config \"test\": missing track
      App.example.com default/a by default/resource-1
",
    );
    // The last repetition of a track counts.
    let again = |config: &Config| {
        for name in ["a", "b", "a"] {
            config.tracker().track(&APP, TrackRef::name(key(name)), key("resource-1"));
        }
    };
    passes(ConfigCase::new().expect_track(&app("b"), &r1()).expect_track(&app("a"), &r1()), again);
}

#[test]
fn a_failed_write_counts_as_a_write() {
    let create = |config: &Config| drop(apps(config).create(&r1().build()));
    let failing = || ConfigCase::new().reactor(Reactor::fail(Verb::Create));
    passes(failing().expect_create(&r1()), create);
    assert!(of(failing(), create).contains("unexpected create"));
}
