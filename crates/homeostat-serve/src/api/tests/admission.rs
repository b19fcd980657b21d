//! Schemas and hooks, as clients see them.

use std::collections::HashMap;

use super::*;
use crate::sync::atomic::{AtomicUsize, Ordering};
use homeostat_objects::{Client, DeleteOptions, ObjectKey, Patch, PatchTarget, Query, SharedObject, WatchEvent};

#[test]
fn faults_name_their_fields() {
    let served = served();
    let mut object = site("home", "");
    object["spec"]["pages"] = json!("many");
    object["spec"]["tags"] = json!({"a.b": 1});
    let answer = request(&format!("POST {SITES}")).body(&object).to(&served);
    assert_eq!((answer.code, &answer.json()["reason"]), (422, &json!("Invalid")));
    let details = &answer.json()["details"];
    assert_eq!(
        (&details["kind"], &details["group"], &details["name"]),
        (&json!("Site"), &json!("example.com"), &json!("home"))
    );
    let causes: Vec<_> =
        details["causes"].as_array().unwrap().iter().map(|one| (one["field"].clone(), one["reason"].clone())).collect();
    assert_eq!(
        causes,
        [
            (json!("spec.pages"), json!("FieldValueTypeInvalid")),
            (json!("spec.tags[a.b]"), json!("FieldValueTypeInvalid")),
            (json!("spec.title"), json!("FieldValueInvalid")),
        ]
    );
    let missing = request(&format!("POST {SITES}")).body(&json!({"metadata": {"name": "a"}})).to(&served).json();
    assert_eq!(missing["message"], "Site.example.com \"a\" is invalid: spec: Required value: must be set");
}

#[test]
fn unknown_fields_are_warned_about_or_refused() {
    let served = served();
    let mut object = site("home", "Home");
    object["spec"]["titel"] = json!("x");
    let strict = request(&format!("POST {SITES}?fieldValidation=Strict")).body(&object).to(&served);
    assert_eq!((strict.code, &strict.json()["reason"]), (400, &json!("BadRequest")));
    assert!(
        strict.json()["message"].as_str().unwrap().ends_with("strict decoding error: unknown field \"spec.titel\"")
    );
    let warned = request(&format!("POST {SITES}?fieldValidation=Warn&dryRun=All")).body(&object).to(&served);
    assert_eq!((warned.code, warned.json()["spec"].get("titel")), (201, None));
    assert_eq!(warned.headers["warning"], r#"299 - "unknown field \"spec.titel\"""#);
    let ignored = request(&format!("POST {SITES}?fieldValidation=Ignore")).body(&object).to(&served);
    assert_eq!((ignored.code, ignored.headers.get("warning")), (201, None));
    assert_eq!(request(&format!("POST {SITES}?fieldValidation=Loose")).body(&object).to(&served).code, 400);
    let patched = merge_patch(&format!("{HOME}?fieldValidation=Strict"), &json!({"spec": {"no": 1}})).to(&served);
    assert_eq!(patched.code, 400);
    let applied = apply(&format!("{HOME}?fieldManager=a&fieldValidation=Strict"), &object).to(&served);
    assert_eq!(applied.code, 400);
    let applied = apply(&format!("{HOME}?fieldManager=a"), &object).to(&served);
    assert_eq!((applied.code, applied.headers.contains_key("warning")), (200, true), "{applied:?}");
}

#[test]
fn hooks_see_each_kind_of_write() {
    let served = served();
    let refused = request(&format!("POST {SITES}")).body(&site("home", "Forbidden")).to(&served);
    assert_eq!(
        (refused.code, &refused.json()["message"]),
        (403, &json!("sites.example.com \"home\" is forbidden: this title is taken"))
    );
    let created = create(&served, "home", "Home");
    merge_patch(HOME, &json!({"spec": {"pages": 5}})).to(&served);
    let falling = json!({"spec": {"pages": 2}});
    let patched = merge_patch(HOME, &falling).to(&served);
    assert_eq!((patched.code, &patched.json()["details"]["causes"][0]["field"]), (422, &json!("spec.pages")));
    let mut object = site("home", "Home");
    object["spec"]["pages"] = json!(2);
    let applied = apply(&format!("{HOME}?fieldManager=a&force=true"), &object).to(&served);
    assert_eq!(applied.code, 422);
    object["metadata"]["resourceVersion"] =
        request(&format!("GET {HOME}")).to(&served).json()["metadata"]["resourceVersion"].clone();
    let updated = merge_patch(HOME, &object).to(&served);
    assert_eq!(updated.code, 422);
    assert_eq!(created["spec"]["pages"], 1);
}

#[test]
fn a_patch_is_admitted_again_if_the_object_changes_in_between() {
    let client = MemoryClient::new();
    let (other, runs) = (client.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&runs);
    let site = ServedResource::new(SITE).mutate(move |request, site| {
        if request.old.is_some() && counted.fetch_add(1, Ordering::SeqCst) == 0 {
            let patch = Patch::Merge(json!({"spec": {"other": 1}}));
            other.patch(&SITE, &ObjectKey::new("default", "home"), &patch, PatchTarget::Object).unwrap();
        }
        site["spec"]["seen"] = site["spec"]["other"].clone();
        Ok(())
    });
    let api = ObjectApi::builder(Arc::new(client)).serve(site).build().unwrap();
    let object = super::site("home", "Home");
    assert_eq!(request(&format!("POST {SITES}")).body(&object).send_to(&api).code, 201);
    let patched = merge_patch(HOME, &json!({"spec": {"mine": 2}})).send_to(&api).json();
    assert_eq!(patched["spec"], json!({"title": "Home", "seen": 1, "other": 1, "mine": 2}));
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    // The same holds for an applied object.
    runs.store(0, Ordering::SeqCst);
    let applied = apply(&format!("{HOME}?fieldManager=a"), &json!({"spec": {"mine": 3}})).send_to(&api);
    assert_eq!((applied.code, &applied.json()["spec"]["mine"]), (200, &json!(3)), "{applied:?}");
}

#[test]
fn a_hook_can_remove_a_field_that_others_have_set() {
    let client = MemoryClient::new();
    let site = ServedResource::new(SITE).mutate(|_, site| {
        if site["spec"]["clean"] == true
            && let Some(spec) = site["spec"].as_object_mut()
        {
            spec.remove("dirt");
        }
        Ok(())
    });
    let api = ObjectApi::builder(Arc::new(client)).serve(site).build().unwrap();
    let mut object = super::site("home", "Home");
    object["spec"]["dirt"] = json!(1);
    assert_eq!(request(&format!("POST {SITES}")).body(&object).send_to(&api).code, 201);
    let applied = apply(&format!("{HOME}?fieldManager=a"), &json!({"spec": {"clean": true}})).send_to(&api);
    assert_eq!((applied.code, &applied.json()["spec"]), (200, &json!({"title": "Home", "clean": true})), "{applied:?}");
}

#[test]
fn warnings_about_unknown_fields_are_bounded_and_keep_their_characters() {
    let served = served();
    let mut object = site("home", "Home");
    object["spec"]["größe"] = json!(1);
    let created = request(&format!("POST {SITES}")).body(&object).to(&served);
    let warnings: Vec<_> = created.headers.get_all(WARNING).iter().map(HeaderValue::as_bytes).collect();
    assert_eq!(warnings, ["299 - \"unknown field \\\"spec.größe\\\"\"".as_bytes()]);
    for number in 0..200 {
        object["spec"][format!("{number}-{}", "x".repeat(2_000))] = json!(1);
    }
    object["spec"]["tags"] = json!({("y".repeat(2_000)): 1});
    let refused = merge_patch(HOME, &object).to(&served);
    assert_eq!(refused.code, 422, "{refused:?}");
    assert!(refused.text.len() < 10_000, "{}", refused.text.len());
    object["spec"]["tags"] = json!({});
    let updated = merge_patch(HOME, &object).to(&served);
    let warnings: Vec<_> = updated.headers.get_all(WARNING).iter().map(|value| value.as_bytes().len()).collect();
    assert!(warnings.len() == 50 && warnings.iter().all(|length| *length < 1_200), "{warnings:?}");
    let strict = merge_patch(&format!("{HOME}?fieldValidation=Strict"), &object).to(&served);
    assert!(strict.code == 400 && strict.text.len() < 60_000, "{}", strict.text.len());
}

#[test]
fn a_deleted_collection_does_not_include_objects_that_replace_others() {
    let client = MemoryClient::new();
    let other = client.clone();
    let site = ServedResource::new(SITE).validate_deletion(move |request, _| {
        if request.name == "a" {
            other.delete(&SITE, &ObjectKey::new("default", "a"), &DeleteOptions::default()).unwrap();
            other.create(&SITE, site("a", "New")).unwrap();
        }
        Ok(())
    });
    let api = ObjectApi::builder(Arc::new(client.clone())).serve(site).build().unwrap();
    for name in ["a", "b"] {
        client.create(&SITE, super::site(name, "Old")).unwrap();
    }
    let deleted = request(&format!("DELETE {SITES}")).send_to(&api);
    assert_eq!(deleted.code, 200, "{deleted:?}");
    let names = |list: &Value| {
        list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&deleted.json()), ["b"]);
    assert_eq!(names(&request(&format!("GET {SITES}")).send_to(&api).json()), ["a"]);
}

#[test]
fn a_panic_of_a_hook_is_an_internal_error() {
    let site = ServedResource::new(SITE).validate(|_, _| panic!("no idea"));
    let api = ObjectApi::builder(Arc::new(MemoryClient::new())).serve(site).build().unwrap();
    let answer = request(&format!("POST {SITES}")).body(&super::site("home", "Home")).send_to(&api);
    assert_eq!((answer.code, &answer.json()["reason"]), (500, &json!("InternalError")));
    assert!(answer.json()["message"].as_str().unwrap().ends_with("panicked: no idea"));
}

/// Writers of different fields change one object at the same time. A hook computes a sum, which must match each stored
/// state.
#[test]
fn writers_at_the_same_time_lose_nothing() {
    const WRITERS: i64 = 4;
    const ROUNDS: i64 = 25;
    let sum =
        |site: &Value| (0..WRITERS).map(|writer| site["spec"][format!("w{writer}")].as_i64().unwrap_or(0)).sum::<i64>();
    let client = MemoryClient::new();
    let site = ServedResource::new(SITE)
        .mutate(move |_, site| {
            site["spec"]["sum"] = json!(sum(site));
            Ok(())
        })
        .validate(move |request, site| match request.old {
            // Sums only grow, because each writer counts up.
            Some(old) if sum(old) > sum(site) => Err(Rejection::invalid("spec.sum", "", "must not fall")),
            _ => Ok(()),
        });
    let api = ObjectApi::builder(Arc::new(client.clone())).serve(site).build().unwrap();
    assert_eq!(request(&format!("POST {SITES}")).body(&super::site("home", "Home")).send_to(&api).code, 201);
    let write = |writer: i64, round: i64| {
        let change = json!({"spec": {(format!("w{writer}")): round}});
        let answer = if writer % 2 == 0 {
            merge_patch(HOME, &change).send_to(&api)
        } else {
            apply(&format!("{HOME}?fieldManager=w{writer}"), &change).send_to(&api)
        };
        assert_eq!(answer.code, 200, "{answer:?}");
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let write = &write;
            scope.spawn(move || (1..=ROUNDS).for_each(|round| write(writer, round)));
        }
    });
    let stored = client.get(&SITE, &ObjectKey::new("default", "home")).unwrap().to_value();
    assert_eq!((sum(&stored), &stored["spec"]["sum"]), (WRITERS * ROUNDS, &json!(WRITERS * ROUNDS)));
}

/// If a hook changes the version, the write can never succeed.
#[test]
fn an_undisturbed_write_is_not_repeated_for_ever() {
    let site = ServedResource::new(SITE).mutate(|request, site| {
        if request.old.is_some() {
            site["metadata"]["resourceVersion"] = json!("1234567");
        }
        Ok(())
    });
    let api = ObjectApi::builder(Arc::new(MemoryClient::new())).serve(site).build().unwrap();
    assert_eq!(request(&format!("POST {SITES}")).body(&super::site("home", "Home")).send_to(&api).code, 201);
    let answer = merge_patch(HOME, &json!({"spec": {"title": "House"}})).send_to(&api);
    assert_eq!((answer.code, &answer.json()["reason"]), (409, &json!("Conflict")));
}

#[test]
fn an_applied_object_that_others_create_in_between_is_admitted_again() {
    let client = MemoryClient::new();
    let other = client.clone();
    let site = ServedResource::new(SITE).mutate(move |request, site| {
        if request.old.is_none() {
            other.create(&SITE, super::site("home", "Theirs")).unwrap();
        }
        site["spec"]["update"] = json!(request.old.is_some());
        Ok(())
    });
    let api = ObjectApi::builder(Arc::new(client)).serve(site).build().unwrap();
    let applied = apply(&format!("{HOME}?fieldManager=a"), &json!({"spec": {"mine": 1}})).send_to(&api);
    assert_eq!(applied.code, 200, "{applied:?}");
    assert_eq!(applied.json()["spec"], json!({"title": "Theirs", "mine": 1, "update": true}));
}

/// Returns the events of a watch since the version `from`, up to the version `to`.
fn events_between(client: &MemoryClient, from: &str, to: &str) -> Vec<SharedObject> {
    let stop = CancellationToken::new();
    let mut seen = Vec::new();
    for event in client.watch(&SITE, &Query::all(), Some(from), &stop).unwrap() {
        match event.unwrap() {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let is_last = object.resource_version() == to;
                seen.push(object);
                if is_last {
                    break;
                }
            }
            _ => {}
        }
    }
    seen
}

#[test]
fn an_apply_runs_each_hook_once_and_stores_one_state() {
    let client = MemoryClient::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let (mutations, checks) = (Arc::clone(&runs), Arc::clone(&runs));
    let site = ServedResource::new(SITE)
        .mutate(move |_, site| {
            mutations.fetch_add(1, Ordering::SeqCst);
            site["spec"]["title"] = json!(site["spec"]["title"].as_str().unwrap_or_default().to_uppercase());
            site["spec"]["length"] = json!(site["spec"]["title"].as_str().unwrap_or_default().len());
            Ok(())
        })
        .validate(move |_, _| {
            checks.fetch_add(100, Ordering::SeqCst);
            Ok(())
        });
    let api = ObjectApi::builder(Arc::new(client.clone())).serve(site).build().unwrap();
    let write = |title: &str| {
        let before = client.list(&SITE, &Query::all()).unwrap().version;
        runs.store(0, Ordering::SeqCst);
        let object = super::site("home", title);
        let answer = apply(&format!("{HOME}?fieldManager=a"), &object).send_to(&api);
        assert_eq!(runs.load(Ordering::SeqCst), 101, "each hook has run once");
        (answer.code, before, SharedObject::from(answer.json()))
    };
    for (title, code, generation) in [("blue", 201, 1), ("green", 200, 2)] {
        let (answered, before, stored) = write(title);
        assert_eq!(answered, code);
        let seen = events_between(&client, &before, stored.resource_version());
        assert_eq!(seen, std::slice::from_ref(&stored), "one version");
        let stored = stored.to_value();
        assert_eq!(stored["spec"], json!({"title": title.to_uppercase(), "length": title.len()}));
        assert_eq!(stored["metadata"]["generation"], generation);
        let owned = &stored["metadata"]["managedFields"];
        assert_eq!((owned.as_array().unwrap().len(), &owned[0]["manager"]), (1, &json!("a")));
        assert_eq!(owned[0]["fieldsV1"], json!({"f:spec": {"f:title": {}}}), "the hook's field has no owner");
    }
    let (code, before, same) = write("green");
    assert_eq!((code, same.resource_version()), (200, before.as_str()), "applying again writes nothing");
}

#[test]
fn a_field_that_a_hook_changes_leaves_its_other_owner() {
    let site = ServedResource::new(SITE).mutate(|_, site| {
        site["spec"]["count"] = json!(site["spec"]["count"].as_i64().unwrap_or_default() + 1);
        Ok(())
    });
    let api = ObjectApi::builder(Arc::new(MemoryClient::new())).serve(site).build().unwrap();
    let owned_by = |manager: &str, fields: &Value| {
        let applied = apply(&format!("{HOME}?fieldManager={manager}"), &json!({"spec": fields})).send_to(&api).json();
        let entries = applied["metadata"]["managedFields"].as_array().unwrap().clone();
        let owned = entries.iter().map(|entry| json!([entry["manager"], entry["fieldsV1"]["f:spec"]]));
        (applied["spec"].clone(), owned.collect::<Vec<_>>())
    };
    let (spec, owned) = owned_by("one", &json!({"count": 1, "a": 1}));
    assert_eq!(spec, json!({"count": 2, "a": 1}));
    assert_eq!(owned, [json!(["one", {"f:a": {}, "f:count": {}}])]);
    let (spec, owned) = owned_by("two", &json!({"b": 1}));
    assert_eq!(spec, json!({"count": 3, "a": 1, "b": 1}));
    assert_eq!(owned, [json!(["one", {"f:a": {}}]), json!(["two", {"f:b": {}}])]);
}

/// Writers apply, patch and delete while a watch records all versions. Each answer is a stored version, and no version
/// is only half of a write.
#[test]
fn every_state_that_racing_writers_and_watches_see_is_stored() {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 25;
    let client = MemoryClient::new();
    // The hook derives a field from all others.
    let derived = |site: &Value| {
        let writers = (0..WRITERS).map(|writer| site["spec"][format!("w{writer}")].as_u64().unwrap_or_default());
        json!(writers.sum::<u64>())
    };
    let site = ServedResource::new(SITE).mutate(move |_, site| {
        site["spec"]["sum"] = derived(site);
        Ok(())
    });
    let api = ObjectApi::builder(Arc::new(client.clone())).serve(site).build().unwrap();
    let before = client.list(&SITE, &Query::all()).unwrap().version;
    let write = |writer: usize, round: usize| {
        let change = json!({"spec": {(format!("w{writer}")): round}});
        if writer == 0 && round.is_multiple_of(5) {
            let code = request(&format!("DELETE {HOME}")).send_to(&api).code;
            assert!([200, 404].contains(&code), "{code}");
            return None;
        }
        let answer = apply(&format!("{HOME}?fieldManager=w{writer}"), &change).send_to(&api);
        assert!([200, 201].contains(&answer.code), "{answer:?}");
        Some(SharedObject::from(answer.json()))
    };
    let answers: Vec<_> = std::thread::scope(|scope| {
        let write = &write;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || (1..=ROUNDS).filter_map(|round| write(writer, round)).collect::<Vec<_>>())
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    let last = write(1, ROUNDS + 1).unwrap();
    let stored = events_between(&client, &before, last.resource_version());
    let by_version: HashMap<_, _> = stored.iter().map(|object| (object.resource_version(), object)).collect();
    for answer in &answers {
        assert_eq!(by_version.get(answer.resource_version()), Some(&answer), "the answer is a stored version");
    }
    for object in &stored {
        let object = object.to_value();
        assert_eq!(object["spec"]["sum"], derived(&object), "{object}");
        // Each writer owns its own field in the same version.
        let names = object["spec"].as_object().unwrap().keys().filter(|name| name.starts_with('w'));
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        let owned = |name: &String| {
            let own = json!({"f:spec": {(format!("f:{name}")): {}}});
            entries.iter().any(|entry| entry["manager"] == **name && entry["fieldsV1"] == own)
        };
        assert!(names.clone().all(owned) && names.count() == entries.len(), "{object}");
    }
    // An answer is one version, and each version is the answer to one call, unless a call changed nothing.
    assert_eq!(stored.len(), by_version.len());
}
