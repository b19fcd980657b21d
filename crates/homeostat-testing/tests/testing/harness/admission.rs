//! Tables of admission: requests, decisions, and the reports of failing cases.

use std::sync::Arc;

use homeostat_objects::{Client, Kind, KindDefinition, Object, Query, Verb};
use homeostat_serve::{AdmissionOperation, AdmissionRequest, Rejection, ServedResource, UserInfo};
use homeostat_testing::{AdmissionDecision, AdmissionTable, AdmissionTestCase, Factory, Reactor};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::support::assert_report;

const VM: Kind = Kind::namespaced("example.com", "v1", "Vm");
const NODE: Kind = Kind::cluster("", "v1", "Node");

fn vm() -> Factory {
    Factory::dynamic(&VM, "default", "a").field("/spec/cores", 1)
}

/// Machines with a schema: at least one core, and a default for the disk.
fn vms() -> ServedResource {
    let spec = json!({"type": "object", "properties": {
        "cores": {"type": "integer", "minimum": 1}, "disk": {"type": "string", "default": "ssd"},
    }});
    KindDefinition::new(VM).schema(json!({"type": "object", "properties": {"spec": spec}})).into()
}

/// Returns the report of a table with one case. It is empty if the case passes.
fn report(case: AdmissionTestCase, resource: &ServedResource) -> String {
    AdmissionTable::new([case]).check(|_| resource.clone()).err().unwrap_or_default()
}

#[test]
fn schema_and_hooks_decide_as_on_a_server() {
    let kind = vms()
        .mutate(|_, vm| {
            vm["spec"]["cores"] = json!(vm["spec"]["cores"].as_i64().unwrap_or_default() + 1);
            Ok(())
        })
        .validate(|_, vm| match vm["spec"]["cores"].as_u64() {
            Some(13) => {
                Err(Rejection::invalid("spec.cores", "13", "must not be 13").and("spec.disk", "", "must be large"))
            }
            _ => Ok(()),
        })
        .validate_deletion(|request, _| Err(Rejection::forbidden(format!("{} may not", request.user.name))));
    let seen = |cores: u32| vm().field("/spec/cores", cores).field("/spec/disk", "ssd");
    AdmissionTable::new([
        AdmissionTestCase::create("defaults and changes", &vm()).expect_object(&seen(2)),
        AdmissionTestCase::create("unknown fields", &vm().field("/spec/coers", 2))
            .expect_warning("unknown field \"spec.coers\"")
            .expect_object(&seen(2)),
        AdmissionTestCase::create("the schema", &vm().field("/spec/cores", -1))
            .expect_invalid("spec.cores: Invalid value: 0: must be at least 1"),
        AdmissionTestCase::create("the hooks", &vm().field("/spec/cores", 12))
            .expect_invalid("spec.cores: Invalid value: \"13\": must not be 13")
            .expect_invalid("spec.disk: Invalid value: must be large"),
        AdmissionTestCase::update("a change", &vm(), &vm().field("/spec/cores", 4)).expect_object(&seen(5)),
        AdmissionTestCase::delete("a deletion", &vm()).user(UserInfo::new("eve")).expect_forbidden("eve may not"),
    ])
    .run(|_given| kind.clone());
}

#[test]
fn hooks_see_the_request() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kind = |name: &'static str| {
        let seen = Arc::clone(&seen);
        move |request: &AdmissionRequest<'_>, object: &Value| {
            let old = request.old.map(|old| old["spec"]["cores"].clone());
            seen.lock().push(format!(
                "{name} {:?} {}/{} {} {:?} status {} dry {} old {old:?} new {} uid {}",
                request.operation,
                request.namespace,
                request.name,
                request.user.name,
                request.user.groups,
                request.status,
                request.dry_run,
                object["spec"]["cores"],
                object["metadata"]["uid"],
            ));
            Ok::<(), Rejection>(())
        }
    };
    let resource = ServedResource::new(VM).validate(kind("write")).validate_deletion(kind("delete"));
    let node = ServedResource::new(NODE).validate(kind("node"));
    let next = vm().field("/spec/cores", 2);
    AdmissionTable::new([
        AdmissionTestCase::create("create", &vm()).user(UserInfo::new("ada").group("admins")),
        AdmissionTestCase::create("generated", &vm().generate_name("a-")).dry_run(),
        AdmissionTestCase::update("update", &vm(), &next).status(),
        AdmissionTestCase::delete("delete", &vm()),
    ])
    .run(|_| resource.clone());
    AdmissionTable::new([AdmissionTestCase::create("node", &Factory::dynamic(&NODE, "", "n"))]).run(|_| node.clone());
    assert_eq!(
        *seen.lock(),
        [
            "write Create default/a ada [\"admins\"] status false dry false old None new 1 uid null",
            "write Create default/  [] status false dry true old None new 1 uid null",
            "write Update default/a  [] status true dry false old Some(Number(1)) new 2 uid \"Vm.example.com:default/a\"",
            "delete Delete default/a  [] status false dry false old Some(Number(1)) new 1 uid \"Vm.example.com:default/a\"",
            "node Create /n  [] status false dry false old None new null uid null",
        ]
    );
}

/// The client of a case has the stored object, the given ones, and reactors. Each write must be expected.
#[test]
fn hooks_may_use_the_client_of_the_case() {
    let claim = Factory::config_map("default", "claim-a");
    let table = AdmissionTable::new([
        AdmissionTestCase::create("nothing is stored", &vm()).expect_create(&claim),
        AdmissionTestCase::update("the old machine is stored", &vm(), &vm())
            .expect_create(&claim)
            .expect_forbidden("1"),
        AdmissionTestCase::create("others are given", &vm()).given(&vm()).expect_create(&claim).expect_forbidden("1"),
        AdmissionTestCase::create("the client fails", &vm())
            .reactor(Reactor::fail(Verb::List).kind(&VM))
            .expect_create(&claim)
            .expect_forbidden("0"),
    ]);
    table.run(|given| {
        let client = given.client().clone();
        ServedResource::new(VM).validate(move |request, _| {
            let claim = Factory::config_map(request.namespace, format!("claim-{}", request.name)).build();
            client.create(&claim.kind(), claim.to_json().unwrap()).unwrap();
            match client.list(&VM, &Query::all()) {
                Ok(list) if list.items.is_empty() => Ok(()),
                Ok(list) => Err(Rejection::forbidden(list.items.len().to_string())),
                Err(_) => Err(Rejection::forbidden("0")),
            }
        })
    });
}

#[test]
fn another_decision_is_reported() {
    let closed = ServedResource::new(VM).validate(|_, _| Err(Rejection::forbidden("closed")));
    assert_report(
        &report(AdmissionTestCase::create("x", &vm()), &closed),
        "1 of 1 cases failed
        case \"x\":
          result differs (-expected +actual)
              -Allowed
              +Forbidden(
              +    \"closed\",
              +)",
    );
    assert_report(
        &report(AdmissionTestCase::create("x", &vm()).expect_forbidden("open"), &closed),
        "1 of 1 cases failed
        case \"x\":
          result differs (-expected +actual)
               Forbidden(
              -    \"open\",
              +    \"closed\",
               )",
    );
    // If a request should be denied, its object is not compared.
    assert_report(
        &report(AdmissionTestCase::create("x", &vm()).expect_forbidden("closed"), &vms()),
        "1 of 1 cases failed
        case \"x\":
          result differs (-expected +actual)
              -Forbidden(
              -    \"closed\",
              -)
              +Allowed",
    );
    let case =
        AdmissionTestCase::create("x", &vm().field("/spec/cores", 0)).expect_invalid("spec.cores: Required value");
    assert_report(
        &report(case, &vms()),
        "1 of 1 cases failed
        case \"x\":
          result differs (-expected +actual)
               Invalid(
                   [
              -        \"spec.cores: Required value\",
              +        \"spec.cores: Invalid value: 0: must be at least 1\",
                   ],
               )",
    );
}

#[test]
fn another_object_and_other_warnings_are_reported() {
    let case = AdmissionTestCase::create("x", &vm().field("/spec/coers", 2)).expect_warning("no such thing");
    assert_report(
        &report(case, &vms()),
        "1 of 1 cases failed
        case \"x\":
          object differs (-expected +actual)
                   \"namespace\": \"default\"
                 },
                 \"spec\": {
              -    \"coers\": 2,
              -    \"cores\": 1
              +    \"cores\": 1,
              +    \"disk\": \"ssd\"
                 }
               }
          warning differs (-expected +actual)
              -no such thing
              +unknown field \"spec.coers\"",
    );
    let case =
        AdmissionTestCase::create("x", &vm()).expect_object(&vm().field("/spec/disk", "ssd")).expect_warning("a");
    assert_report(
        &report(case, &vms()),
        "1 of 1 cases failed
        case \"x\":
          missing warning
              a",
    );
}

#[test]
fn a_panic_of_a_hook_is_reported_unless_it_is_expected() {
    let panics = ServedResource::new(VM).validate(|_, _| panic!("no idea"));
    let case = || AdmissionTestCase::create("x", &vm());
    assert_report(
        &report(case(), &panics),
        "1 of 1 cases failed
        case \"x\":
          the run panicked
              no idea",
    );
    assert_report(&report(case().expect_panic("no idea"), &panics), "");
    assert_report(
        &report(case().expect_panic("no idea"), &ServedResource::new(VM)),
        "1 of 1 cases failed
        case \"x\":
          expected a panic
              Ok(
                  Allowed,
              )",
    );
}

#[test]
fn unexpected_writes_are_reported() {
    let table = AdmissionTable::new([AdmissionTestCase::create("x", &vm())]);
    let report = table.check(|given| {
        let client = given.client().clone();
        ServedResource::new(VM).validate(move |_, vm| {
            let _ = client.create(&VM, vm.clone());
            Ok(())
        })
    });
    assert!(report.unwrap_err().contains("  unexpected create Vm.example.com default/a\n"));
}

#[test]
fn kinds_that_cannot_be_served_fail_the_case() {
    let other = ServedResource::new(NODE);
    assert_report(
        &report(AdmissionTestCase::create("x", &vm()), &other),
        "1 of 1 cases failed
        case \"x\":
          an unexpected error
              the hooks are of Node/v1, but the object is of Vm.example.com/v1",
    );
    let broken = KindDefinition::new(VM).schema(json!({"properties": {"spec": {"type": "whole number"}}})).into();
    let report = report(AdmissionTestCase::create("x", &vm()), &broken);
    assert!(
        report.contains("an unexpected error\n      Vm.example.com/v1: the schema of spec is unusable: "),
        "{report}"
    );
}

/// Options that all cases have: further runs, and checks of the decision.
#[test]
fn a_second_request_sees_the_state_of_the_first() {
    let names = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&names);
    let quota = AdmissionTestCase::create("the first", &vm())
        .verify(move |decision| seen.lock().push(format!("{decision:?}")))
        .then(AdmissionTestCase::create("the second", &vm().name("b")).expect_forbidden("there is one"));
    AdmissionTable::new([quota]).run(|_| {
        let count = Mutex::new(0);
        ServedResource::new(VM).validate(move |request, _| {
            assert_eq!(request.operation, AdmissionOperation::Create);
            let mut count = count.lock();
            *count += 1;
            if *count == 1 { Ok(()) } else { Err(Rejection::forbidden("there is one")) }
        })
    });
    assert_eq!(*names.lock(), ["Ok(Allowed)"]);
    assert_eq!(format!("{:?}", AdmissionDecision::Allowed), "Allowed");
}
