//! Options of a case: time, metadata, closures, other configs and further runs. Also cases of whole reconcilers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

use homeostat::{Action, BoxError, Context};
use homeostat_objects::sub::{Config, Flow, ResourceReconciler, SubContext, SubResult};
use homeostat_objects::{
    Api, Client, DeleteOptions, DynamicObject, EventType, Object, ObjectKey, Query, TrackRef, ValueRef, Verb,
};
use homeostat_testing::{ConfigCase, Factory, Reactor, ReconcilerTable, ReconcilerTestCase, SubReconcilerTable};
use serde_json::json;

use super::support::{APP, Case, Step, app, assert_report, case, idle, report};

fn create(config: &Config, name: &str) -> Result<(), BoxError> {
    let map = Factory::config_map("default", name).build();
    config.client().create(&map.kind(), map.to_json()?)?;
    Ok(())
}

fn map(name: &str) -> Factory {
    Factory::config_map("default", name)
}

/// Like reconcilerio/runtime, `testing/reconciler_test.go` (`TestReconcilerTestCase_Now`), but without the system
/// time.
#[test]
fn the_time_is_fixed_at_the_time_of_the_case() {
    let see: Step = |cx, app| {
        app.fields_mut().insert("now".to_owned(), cx.now().to_string().into());
        assert_eq!(cx.clock().now(), cx.config().clock().now());
        Ok(Flow::proceed())
    };
    let seen = |now: &str| app("shop").field("/now", now);
    assert_report(&report(case("x").expect_resource(&seen("1970-01-01T00:00:00Z")), see), "");
    let noon = UNIX_EPOCH + Duration::from_secs(12 * 3600);
    assert_report(&report(case("x").now(noon).expect_resource(&seen("1970-01-01T12:00:00Z")), see), "");
}

#[test]
fn metadata_is_for_the_closures() {
    let table = SubReconcilerTable::new([
        case("one").metadata("size", 1_u32).expect_resource(&app("shop").field("/size", 1)),
        case("two").metadata("size", 2_u32).expect_resource(&app("shop").field("/size", 2)),
        case("none").expect_resource(&app("shop").field("/size", 0)),
    ]);
    table.run(|given| {
        assert_eq!(given.metadata::<String>("size"), None);
        let size = given.metadata("size").copied().unwrap_or(0_u32);
        move |_: &SubContext<'_>, app: &mut DynamicObject| -> SubResult {
            app.fields_mut().insert("size".to_owned(), size.into());
            Ok(Flow::proceed())
        }
    });
}

/// Calls before the run are not checked. The given objects already exist.
#[test]
fn preparation_comes_first() {
    let prepared = case("x").given(&map("a")).prepare(|given| {
        assert!(given.client().get(&map("a").build().kind(), &ObjectKey::new("default", "a")).is_ok());
        create(&given.config(), "b").unwrap();
        given.config().recorder().event(&app("shop").build(), EventType::Normal, "A", "b");
        given.config().tracker().track(&APP, TrackRef::name(app("shop").build().key()), ObjectKey::cluster("x"));
    });
    let table = SubReconcilerTable::new([prepared]);
    table.run(|given| {
        create(&given.config(), "c").unwrap();
        |cx: &SubContext<'_>, _: &mut DynamicObject| -> SubResult {
            let maps = Api::<DynamicObject>::of_kind(cx.config().client().clone(), map("a").build().kind());
            assert_eq!(maps.list(&Query::all())?.items.len(), 3);
            Ok(Flow::proceed())
        }
    });
    let panics = case("x").prepare(|_| panic!("not ready")).clean_up(|_| panic!("not clean"));
    let never: Step = |_, _| panic!("it is run");
    assert_report(
        &report(panics, never),
        "1 of 1 cases failed
        case \"x\":
          `prepare` panicked
              not ready
          `clean_up` panicked
              not clean",
    );
    let made = SubReconcilerTable::new([case("x")]).check(|_| -> Step { panic!("no such step") });
    assert!(made.unwrap_err().contains("`prepare` panicked\n      no such step"));
}

#[test]
fn cleaning_up_is_always_last() {
    let cleaned = Arc::new(AtomicUsize::new(0));
    let cleans = |case: Case| {
        let cleaned = Arc::clone(&cleaned);
        case.clean_up(move |given| {
            assert!(given.client().writes().is_empty(), "they have been looked at");
            cleaned.fetch_add(1, Relaxed);
        })
    };
    let panics: Step = |_, _| panic!("out of plans");
    let fails: Step = |_, _| Err("out of luck".into());
    let writes: Step = |cx, _| {
        create(cx.config(), "a")?;
        Ok(Flow::proceed())
    };
    let runs = [idle, panics, fails, writes].map(|step| report(cleans(case("x")), step).is_empty());
    assert_eq!((runs, cleaned.load(Relaxed)), ([true, false, false, false], 4));
    let prepares = report(cleans(case("x").prepare(|_| panic!("not ready"))), idle);
    assert!(prepares.contains("not ready") && cleaned.load(Relaxed) == 5, "{prepares}");
}

/// No case sees the objects of another case.
#[test]
fn each_case_begins_anew() {
    let leaves: Step = |cx, _| {
        create(cx.config(), "a")?;
        cx.track(&APP, TrackRef::name(ObjectKey::cluster("x")));
        cx.event(EventType::Normal, "A", "b");
        Ok(Flow::proceed())
    };
    let one = |name| {
        case(name)
            .expect_create(&map("a"))
            .expect_track_of(&APP, TrackRef::name(ObjectKey::cluster("x")), &app("shop"))
            .expect_event(&app("shop"), EventType::Normal, "A", "b")
    };
    SubReconcilerTable::new([one("first"), one("second")]).run(|_| leaves);
}

/// The resource is in the client and in the uncached client.
#[test]
fn the_resource_is_in_the_clients() {
    let reads: Step = |cx, app| {
        assert_eq!(Api::<DynamicObject>::of_kind(cx.config().client().clone(), APP).get(cx.key())?, *app);
        assert_eq!(Api::<DynamicObject>::of_kind(cx.config().uncached().clone(), APP).get(cx.key())?, *app);
        Ok(Flow::proceed())
    };
    assert_report(&report(case("x"), reads), "");
    assert_report(&report(case("x").given_uncached(&map("a")), reads), "");
    // A given uncached object differs from the cached one.
    let changed = case("x").given(&app("shop").resource_version("1001").field("/spec/size", 2));
    assert!(report(changed, reads).contains("the run panicked"));
}

#[test]
fn writes_of_the_uncached_client_are_recorded() {
    let writes: Step = |cx, _| {
        cx.config().uncached().delete(&APP, cx.key(), &DeleteOptions::default())?;
        Ok(Flow::proceed())
    };
    for case in [case("x"), case("x").given_uncached(&map("a"))] {
        assert_report(&report(case.expect_delete(&app("shop")), writes), "");
    }
}

#[test]
fn other_configs_are_identified_by_name() {
    let run = |remote: ConfigCase, own: Case| {
        let table = SubReconcilerTable::new([own.config("remote", remote)]);
        let made = table.check(|given| {
            let (config, remote) = (given.config(), given.config_named("remote"));
            move |_: &SubContext<'_>, _: &mut DynamicObject| -> SubResult {
                create(&config, "here")?;
                create(&remote, "there")?;
                remote.recorder().event(&app("shop").build(), EventType::Normal, "A", "b");
                Ok(Flow::proceed())
            }
        });
        made.err().unwrap_or_default()
    };
    let there = || ConfigCase::new().expect_create(&map("there"));
    let event = |config: ConfigCase| config.expect_event(&app("shop"), EventType::Normal, "A", "b");
    assert_report(&run(event(there()), case("x").expect_create(&map("here"))), "");
    assert_report(
        &run(there(), case("x").expect_create(&map("here"))),
        "1 of 1 cases failed
        case \"x\":
          config \"remote\": unexpected event
              App.example.com default/shop: Normal A: b",
    );
    let swapped = run(event(ConfigCase::new().expect_create(&map("here"))), case("x").expect_create(&map("there")));
    assert!(swapped.contains("  create ConfigMap default/there differs"), "{swapped}");
    assert!(swapped.contains("  config \"remote\": create ConfigMap default/here differs"), "{swapped}");
    // An owner in one client is not an owner in the other client.
    SubReconcilerTable::new([case("x").config("a", ConfigCase::new()).config("b", ConfigCase::new())]).run(|given| {
        let uids = [given.config(), given.config_named("a"), given.config_named("b")].map(|config| {
            let map = map("m").build();
            let made = config.client().create(&map.kind(), map.to_json().unwrap()).unwrap();
            made.to_value()["metadata"]["uid"].as_str().unwrap().to_owned()
        });
        assert_eq!(std::collections::BTreeSet::from(uids).len(), 3);
        idle
    });
    let unknown = SubReconcilerTable::new([case("x")]).check(|given| {
        let _ = given.config_named("remote");
        idle
    });
    assert!(unknown.unwrap_err().contains("the case \"x\" has no config \"remote\""));
}

/// Counts the runs of a reconciler, and creates a config map for each run.
fn counting(runs: &AtomicUsize, cx: &SubContext<'_>, app: &mut DynamicObject) -> SubResult {
    let run = runs.fetch_add(1, Relaxed) + 1;
    create(cx.config(), &format!("run-{run}"))?;
    app.fields_mut().insert("now".to_owned(), cx.now().to_string().into());
    Ok(Flow::proceed())
}

#[test]
fn further_runs_continue_from_the_previous_one() {
    let check = |case: Case| {
        let made = SubReconcilerTable::new([case]).check(|_| {
            let runs = AtomicUsize::new(0);
            move |cx: &SubContext<'_>, app: &mut DynamicObject| counting(&runs, cx, app)
        });
        made.err().unwrap_or_default()
    };
    let at = |second: u64| UNIX_EPOCH + Duration::from_secs(second);
    let seen = |second: u64| app("shop").field("/now", format!("1970-01-01T00:00:{second:02}Z"));
    let first = || case("x").now(at(5)).expect_create(&map("run-1")).expect_resource(&seen(5));
    let second = || case("again").expect_create(&map("run-2"));
    assert_report(&check(first().then(second().expect_resource(&seen(5)))), "");
    assert_report(&check(first().then(second().now(at(7)).expect_resource(&seen(7)))), "");
    // The created object still exists, and the given object replaces it.
    let third = case("third").reactor(Reactor::fail(Verb::Create).once()).expect_create(&map("run-3"));
    let third = third.expect_error("a reactor fails this call");
    assert_report(&check(first().then(second().expect_resource(&seen(5))).then(third)), "");
    assert_report(
        &check(first().then(case("again").expect_create(&map("run-2")).now(at(6)).expect_resource(&seen(5)))),
        "1 of 1 cases failed
        case \"x\":
          then \"again\": resource differs (-expected +actual)
                   \"name\": \"shop\",
                   \"namespace\": \"default\"
                 },
              -  \"now\": \"1970-01-01T00:00:05Z\"
              +  \"now\": \"1970-01-01T00:00:06Z\"
               }",
    );
    let early = check(first().then(second().now(at(4)).expect_resource(&seen(5))));
    assert!(early.contains("then \"again\": the time of `now` is before the previous run"), "{early}");
    // Further runs follow a failed run, but not a panic.
    let wrong = check(case("x").then(second()));
    assert!(wrong.contains("  unexpected create ConfigMap default/run-1"), "{wrong}");
    assert!(wrong.contains("  then \"again\": resource differs"), "{wrong}");
    let panics: Step = |_, _| panic!("out of plans");
    assert!(!report(case("x").then(case("again")), panics).contains("again"));
}

/// Cases of whole reconcilers have a key instead of a resource, and an action instead of a flow.
#[test]
fn a_reconciler_is_run_for_a_key() {
    let later = |_: &Context, key: &ObjectKey| -> Result<Action, BoxError> {
        match key.name() {
            "shop" => Ok(Action::await_change()),
            "bank" => Ok(Action::requeue_after(Duration::from_secs(3))),
            _ => Err("no such app".into()),
        }
    };
    let case = |name: &str| ReconcilerTestCase::new(name, &app(name));
    let in_three = Action::requeue_after(Duration::from_secs(3));
    ReconcilerTable::new([
        case("shop"),
        case("bank").expect_action(in_three),
        case("mill").expect_error("no such app"),
    ])
    .run(|_| later);
    let report =
        ReconcilerTable::new([case("bank"), case("shop").expect_action(in_three)]).check(|_| later).unwrap_err();
    assert_report(
        &report,
        "2 of 2 cases failed
        case \"bank\":
          result differs (-expected +actual)
               Action(
              -    Nothing,
              +    Requeue(
              +        3s,
              +    ),
               )
        case \"shop\":
          result differs (-expected +actual)
               Action(
              -    Requeue(
              -        3s,
              -    ),
              +    Nothing,
               )",
    );
}

#[test]
fn a_further_run_of_a_whole_reconciler_sees_earlier_writes() {
    fn grow(_: &SubContext<'_>, app: &mut DynamicObject) -> SubResult {
        let size = app.pointer("/status/size").and_then(ValueRef::as_u64).unwrap_or(0);
        app.fields_mut().insert("status".to_owned(), json!({"size": size + 1}));
        Ok(Flow::proceed())
    }
    let sized = |size: u64| app("shop").field("/status/size", size);
    let grows = |name: &str, size| {
        ReconcilerTestCase::new(name, &app("shop")).expect_status_update(&sized(size)).expect_event(
            &app("shop"),
            EventType::Normal,
            "StatusUpdated",
            "Updated status",
        )
    };
    let table = |second| ReconcilerTable::new([grows("one", 1).given(&app("shop")).then(second)]);
    let make =
        |given: &homeostat_testing::CaseContext<'_>| ResourceReconciler::of_kind("app", APP, given.config(), grow);
    table(grows("two", 2)).run(make);
    let report = table(grows("two", 1)).check(make).unwrap_err();
    assert!(report.contains("then \"two\": status update App.example.com default/shop differs"), "{report}");
    // A given object replaces the existing one.
    table(grows("two", 8).given(&sized(7))).run(make);
}

#[test]
fn further_runs_follow_an_expected_panic() {
    let panics_once = |case: Case| {
        let made = SubReconcilerTable::new([case]).check(|_| {
            let runs = AtomicUsize::new(0);
            move |cx: &SubContext<'_>, app: &mut DynamicObject| {
                assert!(runs.load(Relaxed) > 0 || runs.fetch_add(1, Relaxed) > 0, "out of plans");
                counting(&runs, cx, app)
            }
        });
        made.err().unwrap_or_default()
    };
    let first = || case("x").expect_panic("out of plans");
    let second = || case("again").expect_create(&map("run-2"));
    let seen = app("shop").field("/now", "1970-01-01T00:00:00Z");
    assert_report(&panics_once(first().then(second().expect_resource(&seen))), "");
    let wrong = panics_once(first().then(second()));
    assert!(wrong.contains("  then \"again\": resource differs"), "{wrong}");
    // They do not follow an unexpected panic.
    assert!(!panics_once(case("x").expect_panic("out of luck").then(second())).contains("again"));
}

/// An error check is a closure of the case, so its panic fails the case.
#[test]
fn a_panic_of_an_expectation_fails_its_case() {
    let fails: Step = |_, _| Err("out of luck".into());
    let cleaned = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&cleaned);
    let picky = case("x").expect_error_that("a fault of the disk", |_| panic!("what disk?")).clean_up(move |_| {
        counted.fetch_add(1, Relaxed);
    });
    assert_report(
        &report(picky, fails),
        "1 of 1 cases failed
        case \"x\":
          the check of the result panicked
              what disk?",
    );
    assert_eq!(cleaned.load(Relaxed), 1);
}
