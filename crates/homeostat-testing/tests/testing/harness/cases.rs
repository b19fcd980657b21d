//! The report of one run, for passing and for failing cases: resource, stash, result, errors and panics.

use std::time::Duration;

use homeostat::run::Cancelled;
use homeostat::{RequeueAfter, terminal};
use homeostat_objects::sub::{ErrorClass, Flow, StashKey, SubContext, SubResult, quiet};
use homeostat_objects::{
    Condition, ConditionStatus, DynamicObject, EventType, Object, ObjectMeta, Patch, set_condition,
};
use homeostat_testing::{Factory, SubReconcilerTable, SubReconcilerTestCase};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::support::{Case, Step, app, assert_report, case, idle, report};

const IMAGE: StashKey<String> = StashKey::new("image");
const PORT: StashKey<u16> = StashKey::new("port");

#[track_caller]
fn passes(case: Case, step: Step) {
    assert_report(&report(case, step), "");
}

/// Fails unless the report of the case equals `expected`, without the case's name.
#[track_caller]
fn fails(case: Case, step: Step, expected: &str) {
    let expected = format!("1 of 1 cases failed\ncase \"x\":\n{}", expected.trim_matches('\n'));
    assert_report(&report(case, step), &expected);
}

fn scale(_: &SubContext<'_>, app: &mut DynamicObject) -> SubResult {
    app.fields_mut().insert("spec".to_owned(), json!({"replicas": 2}));
    Ok(Flow::proceed())
}

#[test]
fn an_unexpected_resource_is_reported() {
    let scaled = |replicas: u32| app("shop").field("/spec/replicas", replicas);
    passes(case("x"), idle);
    passes(case("x").expect_resource(&app("shop")), idle);
    passes(case("x").expect_resource(&scaled(2)), scale);
    fails(
        case("x"),
        scale,
        r#"
  resource differs (-expected +actual)
           "name": "shop",
           "namespace": "default",
           "uid": "App.example.com:default/shop"
      +  },
      +  "spec": {
      +    "replicas": 2
         }
       }
"#,
    );
    fails(
        case("x").expect_resource(&scaled(3)),
        scale,
        r#"
  resource differs (-expected +actual)
           "namespace": "default"
         },
         "spec": {
      -    "replicas": 3
      +    "replicas": 2
         }
       }
"#,
    );
    fails(
        case("x").expect_resource(&scaled(2)),
        idle,
        r#"
  resource differs (-expected +actual)
         "metadata": {
           "name": "shop",
           "namespace": "default"
      -  },
      -  "spec": {
      -    "replicas": 2
         }
       }
"#,
    );
}

/// The resource may have any object type.
#[test]
fn a_resource_may_have_a_type() {
    #[derive(Clone, Serialize, Deserialize)]
    struct Vm {
        metadata: ObjectMeta,
        cores: u32,
    }
    homeostat_objects::object!(Vm, namespaced, "example.com", "v1");
    let vm = |cores| Factory::of(Vm { metadata: ObjectMeta::new("default", "vm-1"), cores });
    let grow = |_: &SubContext<'_>, vm: &mut Vm| -> SubResult {
        vm.cores *= 2;
        Ok(Flow::proceed())
    };
    let grows = |cores| SubReconcilerTestCase::new("x", &vm(2)).expect_resource(&vm(cores));
    assert_eq!(SubReconcilerTable::new([grows(4)]).check(|_| grow), Ok(()));
    let report = SubReconcilerTable::new([grows(8)]).check(|_| grow).unwrap_err();
    assert!(report.contains("-  \"cores\": 8") && report.contains("+  \"cores\": 4"), "{report}");
}

#[test]
fn a_change_of_metadata_is_reported() {
    let label: Step = |_, app| {
        app.meta_mut().labels.insert("a".to_owned(), "b".to_owned());
        Ok(Flow::proceed())
    };
    passes(case("x").expect_resource(&app("shop").add_label("a", "b")), label);
    assert!(report(case("x"), label).contains("+    \"labels\": {"));
    let other_uid: Step = |_, app| {
        app.meta_mut().uid = "other".to_owned();
        Ok(Flow::proceed())
    };
    assert!(report(case("x"), other_uid).contains("+    \"uid\": \"other\""));
}

/// A finalizer is written to the client that holds the resource.
#[test]
fn a_change_of_finalizers_is_expected_as_a_patch() {
    let hold: Step = |cx, app| {
        cx.add_finalizer(&mut app.meta_mut(), "example.com/x")?;
        Ok(Flow::proceed())
    };
    let with_it = app("shop").finalizer("example.com/x");
    let patch = || Patch::Merge(json!({"metadata": {"finalizers": ["example.com/x"]}}));
    let message = "Patched finalizer \"example.com/x\"";
    let expected = || {
        case("x").expect_resource(&with_it).expect_patch(&with_it, patch()).expect_event(
            &with_it,
            EventType::Normal,
            "FinalizerPatched",
            message,
        )
    };
    passes(expected(), hold);
    passes(expected().expect_resource(&with_it.created(0)), hold);
    assert!(report(expected(), idle).contains("missing patch App.example.com default/shop"));
}

/// The time of a condition is compared only if it is expected. The expected time is the time of the case.
#[test]
fn times_of_conditions() {
    let ready: Step = |cx, app| {
        let mut conditions = vec![];
        set_condition(&mut conditions, Condition::new("Ready", ConditionStatus::True, "Fine"), cx.now());
        app.fields_mut().insert("status".to_owned(), json!({"conditions": conditions}));
        Ok(Flow::proceed())
    };
    let condition = |time: Option<&str>| {
        let time: Option<jiff::Timestamp> = time.map(|time| time.parse().unwrap());
        Condition::new("Ready", ConditionStatus::True, "Fine").last_transition_time(time)
    };
    let noon = "2026-05-01T12:00:00Z";
    let expected = |time| {
        let now: jiff::Timestamp = noon.parse().unwrap();
        case("x").now(now).expect_resource(&app("shop").condition(&condition(time)))
    };
    passes(expected(None), ready);
    passes(expected(Some(noon)), ready);
    let report = report(expected(Some("2026-05-01T12:00:01Z")), ready);
    assert!(report.contains("+        \"lastTransitionTime\": \"2026-05-01T12:00:00Z\""), "{report}");
    let status = Condition::new("Ready", ConditionStatus::False, "Fine");
    let other = super::support::report(case("x").expect_resource(&app("shop").condition(&status)), ready);
    assert!(other.contains("-        \"status\": \"False\""), "{other}");
}

#[test]
fn conditions_are_compared_by_type() {
    let ready: Step = |cx, app| {
        let mut conditions = vec![];
        for kind in ["Synced", "Ready"] {
            set_condition(&mut conditions, Condition::new(kind, ConditionStatus::True, "Fine"), cx.now());
        }
        app.fields_mut().insert("status".to_owned(), json!({"conditions": conditions}));
        Ok(Flow::proceed())
    };
    let expected = |kinds: &[&str]| {
        let conditions = kinds.iter().map(|kind| Condition::new(*kind, ConditionStatus::True, "Fine"));
        case("x").expect_resource(&conditions.fold(app("shop"), |app, condition| app.condition(&condition)))
    };
    passes(expected(&["Synced", "Ready"]), ready);
    passes(expected(&["Ready", "Synced"]), ready);
    for (kinds, line) in [
        (&["Ready"][..], "+        \"type\": \"Synced\""),
        (&["Ready", "Synced", "Stored"], "-        \"type\": \"Stored\""),
    ] {
        let report = report(expected(kinds), ready);
        assert!(report.contains(line), "{report}");
    }
}

fn stash(cx: &SubContext<'_>, _: &mut DynamicObject) -> SubResult {
    cx.stash().put(IMAGE, "shop:1".to_owned());
    Ok(Flow::proceed())
}

#[test]
fn an_unexpected_stash_value_is_reported() {
    passes(case("x").expect_stashed(IMAGE, "shop:1".to_owned()), stash);
    fails(
        case("x").expect_stashed(IMAGE, "shop:2".to_owned()),
        stash,
        r#"
  stashed "image" differs (-expected +actual)
      -"shop:2" (alloc::string::String)
      +"shop:1" (alloc::string::String)
"#,
    );
    fails(
        case("x").expect_stashed(PORT, 80),
        stash,
        r#"
  missing in the stash: "port"
      80
  unexpected in the stash: "image"
      "shop:1"
"#,
    );
    // A key with the same name and another type is another key.
    let other: StashKey<&str> = StashKey::new("image");
    fails(
        case("x").expect_stashed(other, "shop:1"),
        stash,
        r#"
  stashed "image" differs (-expected +actual)
      -"shop:1" (&str)
      +"shop:1" (alloc::string::String)
"#,
    );
}

#[test]
fn given_stash_values_are_present() {
    let take: Step = |cx, _| {
        let image = cx.stashed(IMAGE)?;
        assert_eq!(image, "shop:1");
        cx.stash().remove(IMAGE);
        Ok(Flow::proceed())
    };
    let given = || case("x").given_stashed(IMAGE, "shop:1".to_owned());
    passes(given().expect_unstashed(IMAGE), take);
    passes(given(), idle);
    passes(given().expect_stashed(IMAGE, "shop:1".to_owned()), idle);
    assert!(report(given(), take).contains("missing in the stash: \"image\""));
    assert!(report(given().expect_unstashed(IMAGE), idle).contains("unexpected in the stash: \"image\""));
    assert!(report(case("x"), take).contains("nothing is stashed as \"image\""));
}

#[test]
fn different_values_with_equal_debug_output_are_reported() {
    #[derive(Clone, PartialEq)]
    struct Secret(u8);
    impl std::fmt::Debug for Secret {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Secret")
        }
    }
    const SECRET: StashKey<Secret> = StashKey::new("secret");
    let keep: Step = |cx, _| {
        cx.stash().put(SECRET, Secret(1));
        Ok(Flow::proceed())
    };
    passes(case("x").expect_stashed(SECRET, Secret(1)), keep);
    assert!(report(case("x").expect_stashed(SECRET, Secret(2)), keep).contains("stashed \"secret\" differs"));
}

#[test]
fn an_unexpected_flow_is_reported() {
    let later: Step = |_, _| Ok(Flow::requeue_after(Duration::from_secs(5)));
    let halt: Step = |_, _| Ok(Flow::halt());
    passes(case("x").expect_flow(Flow::requeue_after(Duration::from_secs(5))), later);
    passes(case("x").expect_flow(Flow::halt()), halt);
    fails(
        case("x"),
        later,
        "
  result differs (-expected +actual)
       Flow {
      -    requeue: None,
      +    requeue: Some(
      +        5s,
      +    ),
           halted: false,
       }
",
    );
    assert!(report(case("x").expect_flow(Flow::requeue_after(Duration::from_secs(4))), later).contains("-        4s,"));
    assert!(report(case("x").expect_flow(Flow::halt()), idle).contains("-    halted: true,"));
}

#[test]
fn an_unexpected_error_is_reported() {
    let fail: Step = |_, _| Err("out of luck".into());
    passes(case("x").expect_error("luck"), fail);
    passes(case("x").expect_error("out of luck").expect_error_class(ErrorClass::Transient), fail);
    fails(
        case("x"),
        fail,
        "
  an unexpected error
      out of luck
",
    );
    fails(
        case("x").expect_error("money").expect_error_class(ErrorClass::Durable).expect_error("luck"),
        fail,
        "
  expected an error with the text \"money\" and an error of the class Durable
      out of luck
",
    );
    fails(
        case("x").expect_error("luck"),
        idle,
        "
  expected an error
      Flow {
          requeue: None,
          halted: false,
      }
",
    );
    // The other expectations also apply to a failed run.
    assert!(
        report(case("x").expect_error("luck"), |cx, app| {
            let _ = scale(cx, app)?;
            Err("out of luck".into())
        })
        .contains("resource differs")
    );
}

#[test]
fn an_error_is_found_by_its_class_its_type_and_its_sources() {
    let durable: Step = |_, _| Err(terminal("for good").into());
    let later: Step = |_, _| Err(RequeueAfter::new(Duration::from_secs(1), "soon").into());
    let silent: Step = |_, _| Err(quiet("hush").into());
    for (step, class) in [(durable, ErrorClass::Durable), (later, ErrorClass::Later), (silent, ErrorClass::Quiet)] {
        passes(case("x").expect_error_class(class), step);
        assert!(report(case("x").expect_error_class(ErrorClass::Transient), step).contains("of the class Transient"));
    }
    let cancelled: Step = |_, _| Err(Cancelled::Aborted.into());
    let is_cancelled = |case: Case| case.expect_error_that("a cancellation", |error| error.is::<Cancelled>());
    passes(is_cancelled(case("x")), cancelled);
    assert!(report(is_cancelled(case("x")), durable).contains("expected a cancellation"));
    // The text of an error does not contain its sources.
    let deep: Step = |_, _| Err(anyhow::Error::new(Cancelled::Aborted).context("no luck").into());
    passes(case("x").expect_error("no luck").expect_error(Cancelled::Aborted.to_string()), deep);
}

#[test]
fn an_unexpected_panic_is_reported() {
    let panics: Step = |_, _| panic!("no plan for this");
    passes(case("x").expect_panic("no plan"), panics);
    fails(
        case("x"),
        panics,
        "
  the run panicked
      no plan for this
",
    );
    fails(
        case("x").expect_panic("a plan"),
        panics,
        "
  expected a panic with the text \"a plan\"
      no plan for this
",
    );
    assert!(report(case("x").expect_error("plan"), panics).contains("the run panicked"));
    fails(
        case("x").expect_panic("plan"),
        idle,
        "
  expected a panic
      Ok(
          Flow {
              requeue: None,
              halted: false,
          },
      )
",
    );
}

#[test]
fn a_verification_sees_the_result() {
    passes(case("x").verify(|result| assert!(result.is_ok())), idle);
    let fail: Step = |_, _| Err("out of luck".into());
    passes(case("x").expect_error("").verify(|result| assert!(result.is_err())), fail);
    fails(
        case("x").verify(|_| panic!("not good enough")),
        idle,
        "
  `verify` panicked
      not good enough
",
    );
}

/// The report lists all mismatches of a case.
#[test]
fn all_mismatches_are_reported_in_a_fixed_order() {
    let busy: Step = |cx, app| {
        let _ = scale(cx, app)?.and(stash(cx, app)?);
        cx.event(EventType::Normal, "Scaled", "to 2");
        cx.track(&cx.kind().clone(), homeostat_objects::TrackRef::name(app.key()));
        cx.config().client().create(&app.kind(), super::support::app("other").build().to_json()?)?;
        Ok(Flow::halt())
    };
    let report = report(case("x"), busy);
    let places: Vec<_> = [
        "result differs",
        "resource differs",
        "unexpected in the stash",
        "unexpected create",
        "unexpected event",
        "unexpected track",
    ]
    .iter()
    .map(|what| report.find(what).unwrap_or_else(|| panic!("no {what} in\n{report}")))
    .collect();
    assert!(places.is_sorted(), "{report}");
    assert!(report.contains("\n      App.example.com default/shop: Normal Scaled: to 2\n"), "{report}");
    assert!(report.contains("\n      App.example.com default/shop by default/shop"), "{report}");
}
