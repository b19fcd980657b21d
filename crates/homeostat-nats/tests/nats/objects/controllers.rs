//! Controllers of objects in NATS.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use homeostat::manager::Elector;
use homeostat::{Action, BoxError, Context, Controller, Manager, WorkerPool};
use homeostat_objects::{
    Api, Client, DeleteOptions, DynamicObject, Kind, LeaseElector, Object, ObjectKey, ObjectWatch, PrimaryContext,
    PrimaryController, Query, Secondary, SharedObject, ValueRef,
};
use serde_json::json;

use super::{WIDGET, client, key, widget};
use crate::support::server::TestServer;
use crate::support::{LONG, spawn};
use crate::until::until;

const PAGE: Kind = Kind::namespaced("example.com", "v1", "Page");

#[test]
fn a_primary_controller_keeps_its_secondaries_across_a_server_restart() {
    let mut server = TestServer::start();
    let (writer, own) = (client(&server), Arc::new(client(&server)));
    let widgets = Api::<DynamicObject>::of_kind(own.clone(), WIDGET);
    let pages = Secondary::new(Api::<DynamicObject>::of_kind(own, PAGE));
    let made = pages.clone();
    let sync = move |cx: &PrimaryContext<'_>, widget: &DynamicObject| -> Result<Action, BoxError> {
        let size = widget.pointer("/spec/size").and_then(ValueRef::as_u64).unwrap_or_default();
        let mut keys = Vec::new();
        for number in 0..size {
            let page = DynamicObject::new(&PAGE, "pages", format!("{}-{number}", widget.meta().name));
            keys.push(made.ensure(cx, widget, page)?.object().key());
        }
        made.prune(cx, widget, keys)?;
        Ok(Action::await_change())
    };
    let manager = Manager::builder().build().unwrap();
    let _controller = PrimaryController::new("widgets", widgets, sync).secondary(&pages).add_to(&manager).unwrap();
    let running = manager.start().unwrap();
    let until_listed = |expected: &[&str]| {
        until(&format!("pages {expected:?}"), || {
            let list = writer.list(&PAGE, &Query::all()).unwrap().items;
            (list.iter().map(SharedObject::name).collect::<Vec<_>>() == expected).then_some(())
        });
    };
    writer.create(&WIDGET, widget("a", 2)).unwrap();
    until_listed(&["a-0", "a-1"]);
    server.restart();
    writer.delete(&PAGE, &ObjectKey::new("pages", "a-0"), &DeleteOptions::default()).unwrap();
    until_listed(&["a-0", "a-1"]);
    let mut grown = writer.get(&WIDGET, &key("a")).unwrap().to_value();
    grown["spec"]["size"] = json!(1);
    writer.update(&WIDGET, grown).unwrap();
    until_listed(&["a-0"]);
    writer.delete(&WIDGET, &key("a"), &DeleteOptions::default()).unwrap();
    until_listed(&[]);
    manager.stop();
    running.join().unwrap();
}

#[test]
fn a_lease_in_a_bucket_has_one_leader_even_after_a_server_restart() {
    let mut server = TestServer::start();
    let elector = |server: &TestServer, name: &str| {
        let builder = LeaseElector::builder(Arc::new(client(server)), "default", "leader").identity(name);
        builder.build().unwrap()
    };
    let (one, other) = (elector(&server, "one"), elector(&server, "other"));
    let term = one.campaign(&Context::detached()).unwrap();
    assert_eq!(term.fence().number(), Some(0));
    let waiting = spawn(move || other.campaign(&Context::detached()).map(|term| term.fence().number()));
    server.restart();
    assert!(term.fence().check().is_ok() && !waiting.is_finished());
    until("leader in the lease", || one.leader());
    drop(term);
    assert_eq!(waiting.join().unwrap().unwrap(), Some(1));
}

#[test]
fn a_controller_runs_for_each_change_of_an_object() {
    let server = TestServer::start();
    let (writer, own) = (client(&server), Arc::new(client(&server)));
    let api = Api::<DynamicObject>::of_kind(own, WIDGET);
    let objects = ObjectWatch::new(api.clone()).start().unwrap();
    let (runs, counted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&counted);
    let ran = Arc::clone(&runs);
    let reconcile = move |_cx: &Context, key: &ObjectKey| -> Result<Action, BoxError> {
        let size = api.get(key)?.pointer("/spec/size").and_then(ValueRef::as_u64).unwrap_or_default();
        count.store(usize::try_from(size)?, Ordering::SeqCst);
        ran.fetch_add(1, Ordering::SeqCst);
        Ok(Action::await_change())
    };
    let controller =
        Controller::builder("widgets", reconcile).watch(objects.watch(), |event| event.key().cloned()).build().unwrap();
    let pool = WorkerPool::builder().threads(2).start().unwrap();
    let running = controller.start(&pool).unwrap();
    let mut object = writer.create(&WIDGET, widget("a", 1)).unwrap().to_value();
    for size in 2..20 {
        object["spec"]["size"] = json!(size);
        object = writer.update(&WIDGET, object).unwrap().to_value();
        until("run for the change", || (counted.load(Ordering::SeqCst) == size).then_some(()));
    }
    assert!(runs.load(Ordering::SeqCst) >= 18);
    running.shutdown(LONG).unwrap();
}
