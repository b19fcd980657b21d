//! Kinds that are installed, removed and changed while they are watched: cases 11, 17 and 18.

use std::sync::Arc;

use homeostat_objects::{
    Api, Client, ClientErrorKind, DeleteOptions, Ignore, Kind, ObjectKey, ObjectMeta, ObjectWatch, Patch, PatchTarget,
    Query,
};
use homeostat_testing::{ApiServer, IncomingRequest};
use serde_json::json;

use super::{Follower, Scratch, client_of, delete};
use crate::kinds::{self, DEFINITION, definition};
use crate::until::within;

/// A widget with a number.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Sized {
    metadata: ObjectMeta,
    spec: SizedSpec,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct SizedSpec {
    size: u32,
}

homeostat_objects::object!(Sized, namespaced, "case11.example.com", "v1");

#[test]
fn case_11_an_unreadable_object_does_not_hide_the_others() {
    const KIND: Kind = Kind::namespaced("case11.example.com", "v1", "Sized");
    let scratch = Scratch::new("case-11");
    kinds::define(&scratch.client, &definition(&KIND));
    let sized = |name: &str, size: serde_json::Value| {
        json!({
            "apiVersion": "case11.example.com/v1", "kind": "Sized",
            "metadata": {"namespace": scratch.namespace, "name": name}, "spec": {"size": size},
        })
    };
    scratch.client.create(&KIND, sized("bad-at-first", json!("large"))).unwrap();
    scratch.client.create(&KIND, sized("good", json!(1))).unwrap();
    let api = Api::<Sized>::new(Arc::new(scratch.client.clone()));
    let watch = ObjectWatch::new(api).query(scratch.query()).start().unwrap();
    let size = |name: &str| watch.watch().store().get(&scratch.key(name)).map(|object| object.spec.size);
    let waits_for = |name: &str, expected: Option<u32>| {
        within(super::PATIENCE, &format!("{name} has the size {expected:?}"), || {
            (size(name) == expected).then_some(())
        });
    };
    waits_for("good", Some(1));
    assert_eq!(size("bad-at-first"), None);
    scratch.client.create(&KIND, sized("bad-later", json!(-1))).unwrap();
    scratch.client.create(&KIND, sized("also-good", json!(2))).unwrap();
    waits_for("also-good", Some(2));
    assert_eq!(size("bad-later"), None);
    let repair = Patch::Merge(json!({"spec": {"size": 3}}));
    scratch.client.patch(&KIND, &scratch.key("bad-at-first"), &repair, PatchTarget::Object).unwrap();
    waits_for("bad-at-first", Some(3));
}

#[test]
fn case_17_a_kind_is_installed_watched_removed_and_installed_again() {
    const KIND: Kind = Kind::namespaced("case17.example.com", "v1", "Gizmo");
    let scratch = Scratch::new("case-17");
    let client = &scratch.client;
    let remove = || {
        client
            .delete(&DEFINITION, &ObjectKey::cluster("gizmos.case17.example.com"), &DeleteOptions::default())
            .ignore_not_found()
            .unwrap();
        within(super::PATIENCE, "the kind is removed", || {
            client
                .get(&DEFINITION, &ObjectKey::cluster("gizmos.case17.example.com"))
                .ignore_not_found()
                .unwrap()
                .is_none()
                .then_some(())
        });
    };
    remove();
    let gizmo = |name: &str| {
        json!({
            "apiVersion": "case17.example.com/v1", "kind": "Gizmo",
            "metadata": {"namespace": scratch.namespace, "name": name},
        })
    };
    within(super::PATIENCE, "the kind is not served", || {
        client
            .list(&KIND, &Query::all())
            .is_err_and(|error| *error.kind() == ClientErrorKind::KindNotServed)
            .then_some(())
    });
    // The watch starts before its kind exists.
    let follower = Follower::start(client, &KIND, scratch.query());
    kinds::define(client, &definition(&KIND));
    let created = within(super::PATIENCE, "the kind accepts objects", || client.create(&KIND, gizmo("a")).ok());
    follower.waits_for(&created.key(), true);
    remove();
    // The server deletes the objects before the kind.
    follower.waits_for(&created.key(), false);
    assert_eq!(follower.deletions(), [created.key()]);
    kinds::define(client, &definition(&KIND));
    let created = within(super::PATIENCE, "the kind accepts objects", || client.create(&KIND, gizmo("b")).ok());
    follower.waits_for(&created.key(), true);
    remove();
}

#[test]
fn case_18_a_version_that_is_no_longer_served_is_an_error_until_it_is_served_again() {
    const KIND: Kind = Kind::namespaced("case18.example.com", "v1", "Gizmo");
    let server = ApiServer::start().unwrap();
    server.serve(KIND);
    let client = client_of(&server);
    let gizmo = |name: &str| {
        json!({
            "apiVersion": "case18.example.com/v1", "kind": "Gizmo", "metadata": {"namespace": "default", "name": name},
        })
    };
    server.client().create(&KIND, gizmo("a")).unwrap();
    let follower = Follower::start(&client, &KIND, Query::all()).synced();
    server.withdraw(&KIND);
    server.disconnect();
    assert!(*client.list(&KIND, &Query::all()).unwrap_err().kind() == ClientErrorKind::KindNotServed);
    let seen = server.requests().len();
    server.wait_for_requests(|all| all.iter().skip(seen).filter(|request| request.is_watch()).count() > 1);
    // Known objects stay in the store.
    follower.waits_for(&ObjectKey::new("default", "a"), true);
    server.client().create(&KIND, gizmo("b")).unwrap();
    server.serve(KIND);
    follower.waits_for(&ObjectKey::new("default", "b"), true);
    assert!(server.requests().iter().any(IncomingRequest::is_watch));
}

#[test]
fn case_18_a_version_of_a_real_kind_is_served_and_then_not() {
    const OLD: Kind = Kind::namespaced("case18.example.com", "v1beta1", "Gadget");
    const NEW: Kind = Kind::namespaced("case18.example.com", "v1", "Gadget");
    let scratch = Scratch::new("case-18");
    let client = &scratch.client;
    let name = ObjectKey::cluster("gadgets.case18.example.com");
    if client.get(&DEFINITION, &name).ignore_not_found().unwrap().is_some() {
        delete(client, &DEFINITION, &name);
        within(super::PATIENCE, "the kind is removed", || (!super::exists(client, &DEFINITION, &name)).then_some(()));
    }
    let mut both = definition(&NEW);
    let mut old = both["spec"]["versions"][0].clone();
    old["name"] = json!("v1beta1");
    old["storage"] = json!(false);
    both["spec"]["versions"].as_array_mut().unwrap().push(old);
    kinds::define(client, &both);
    let follower = Follower::start(client, &OLD, scratch.query()).synced();
    let gadget = |name: &str| {
        json!({
            "apiVersion": "case18.example.com/v1", "kind": "Gadget",
            "metadata": {"namespace": scratch.namespace, "name": name},
        })
    };
    let first = client.create(&NEW, gadget("a")).unwrap();
    follower.waits_for(&first.key(), true);
    let serve_old = |served: bool| {
        let patch = Patch::Json(json!([{"op": "replace", "path": "/spec/versions/1/served", "value": served}]));
        client.patch(&DEFINITION, &name, &patch, PatchTarget::Object).unwrap();
        within(super::PATIENCE, "the version is served, or not", || {
            (client.list(&OLD, &scratch.query()).is_ok() == served).then_some(())
        });
    };
    serve_old(false);
    assert!(*client.list(&OLD, &scratch.query()).unwrap_err().kind() == ClientErrorKind::KindNotServed);
    let second = client.create(&NEW, gadget("b")).unwrap();
    serve_old(true);
    follower.waits_for(&second.key(), true);
    follower.waits_for(&first.key(), true);
    delete(client, &DEFINITION, &name);
}
