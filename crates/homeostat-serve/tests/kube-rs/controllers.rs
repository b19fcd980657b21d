//! A controller of kube-rs, with dependents, a status and events.

use std::future::{Ready, ready};
use std::sync::Mutex;

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::api::events::v1::Event as StoredEvent;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::controller::{Action, Controller, Error as RunError};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use serde_json::json;
use tokio::sync::oneshot;

use super::*;

/// Shared by the runs of a reconciler.
pub(super) struct Shared {
    pub(super) client: Client,
    recorder: Recorder,
    /// The errors of all runs.
    faults: Mutex<Vec<String>>,
}

impl Shared {
    pub(super) fn new(door: &Door) -> Arc<Self> {
        let client = door.client.clone();
        let recorder = Recorder::new(client.clone(), "painter".into());
        Arc::new(Self { client, recorder, faults: Mutex::default() })
    }

    fn note(&self, fault: String) {
        self.faults.lock().unwrap().push(fault);
    }

    /// Notes the error of a run, and returns when the run is repeated.
    pub(super) fn failed<E: std::error::Error>(_: Arc<Site>, error: &E, shared: Arc<Self>) -> Action {
        shared.note(format!("{error:?}"));
        Action::requeue(Duration::from_millis(10))
    }

    /// Notes the error of a watch.
    pub(super) fn ended<T, E: std::error::Error>(&self, result: Result<T, RunError<E, watcher::Error>>) -> Ready<()> {
        if let Err(RunError::QueueError(error)) = result {
            self.note(format!("{error:?}"));
        }
        ready(())
    }

    /// Fails if a run or a watch has failed.
    pub(super) fn check(&self) {
        let faults = self.faults.lock().unwrap();
        assert!(faults.is_empty(), "{faults:?}");
    }
}

/// Makes a config map with the title of a site.
async fn reconcile(site: Arc<Site>, shared: Arc<Shared>) -> kube::Result<Action> {
    let (name, namespace) = (site.name_any(), site.namespace().unwrap_or_default());
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": [site.controller_owner_ref(&())]},
        "data": {"title": site.spec.title},
    });
    let maps: Api<ConfigMap> = Api::namespaced(shared.client.clone(), &namespace);
    maps.patch(&name, &PatchParams::apply("painter").force(), &Patch::Apply(map)).await?;
    let sites: Api<Site> = Api::namespaced(shared.client.clone(), &namespace);
    let status = json!({"status": {"phase": format!("Painted {}", site.spec.title)}});
    sites.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    shared.recorder.publish(&painted(), &site.object_ref(&())).await?;
    Ok(Action::await_change())
}

fn painted() -> Event {
    Event {
        type_: EventType::Normal,
        reason: "Painted".to_owned(),
        note: Some("The site has its colour.".to_owned()),
        action: "Paint".to_owned(),
        secondary: None,
    }
}

/// Waits until the status of a site has this phase.
pub(super) async fn wait_for_phase(sites: Api<Site>, name: &str, phase: &str) {
    let has_phase =
        |site: Option<&Site>| site.and_then(|site| site.status.as_ref()).is_some_and(|it| it.phase == phase);
    await_condition(sites, name, has_phase).await.unwrap();
}

#[test]
fn a_controller_keeps_dependents_and_reports() {
    with_door(async |door| {
        let (sites, maps, shared) = (door.sites(), door.config_maps(), Shared::new(door));
        let (stop, stopped) = oneshot::channel::<()>();
        let runs = Controller::new(sites.clone(), watcher::Config::default())
            .owns(maps.clone(), watcher::Config::default())
            .graceful_shutdown_on(stopped.map(drop))
            .run(reconcile, Shared::failed, Arc::clone(&shared));
        let noting = Arc::clone(&shared);
        let controller = tokio::spawn(runs.for_each(move |run| noting.ended(run)));

        let blue = door.create("blue").await;
        wait_for_phase(sites.clone(), "blue", "Painted Site blue").await;
        let map = maps.get("blue").await.unwrap();
        assert_eq!(map.data.as_ref().unwrap()["title"], "Site blue");
        assert_eq!(map.owner_references()[0].uid, blue.uid().unwrap());

        let title = json!({"spec": {"title": "Navy"}});
        sites.patch("blue", &PatchParams::default(), &Patch::Merge(title)).await.unwrap();
        wait_for_phase(sites.clone(), "blue", "Painted Navy").await;
        assert_eq!(maps.get("blue").await.unwrap().data.unwrap()["title"], "Navy");

        // The controller restores its dependents.
        maps.delete("blue", &DeleteParams::default()).await.unwrap();
        let old = map.uid();
        let is_new = |map: Option<&ConfigMap>| map.is_some_and(|map| map.uid() != old);
        let restored = await_condition(maps.clone(), "blue", is_new).await.unwrap().unwrap();

        stop.send(()).unwrap();
        controller.await.unwrap();
        shared.check();
        let events: Api<CoreEvent> = Api::default_namespaced(door.client.clone());
        let events = events.list(&ListParams::default().fields("involvedObject.name=blue")).await.unwrap().items;
        assert!(events.iter().all(|event| event.reason.as_deref() == Some("Painted")) && !events.is_empty());

        sites.delete("blue", &DeleteParams::default()).await.unwrap();
        await_condition(maps, "blue", conditions::is_deleted(&restored.uid().unwrap())).await.unwrap();
    });
}

#[test]
fn a_repeated_event_is_counted() {
    with_door(async |door| {
        let shared = Shared::new(door);
        let blue = door.create("blue").await.object_ref(&());
        for _ in 0..3 {
            shared.recorder.publish(&painted(), &blue).await.unwrap();
        }
        let events: Api<StoredEvent> = Api::default_namespaced(door.client.clone());
        let stored = events.list(&ListParams::default()).await.unwrap().items;
        assert_eq!((stored.len(), stored[0].series.as_ref().unwrap().count), (1, 3));
        // The core group shows the same event.
        let events: Api<CoreEvent> = Api::default_namespaced(door.client.clone());
        let event = events.get(stored[0].metadata.name.as_ref().unwrap()).await.unwrap();
        let count = event.series.as_ref().and_then(|series| series.count);
        assert_eq!((count, event.message.as_deref()), (Some(3), Some("The site has its colour.")));
        assert_eq!(event.involved_object.name.as_deref(), Some("blue"));
    });
}
