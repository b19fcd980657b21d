//! The helper of kube-rs for finalizers.

use futures::StreamExt;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{self, Event, finalizer};
use kube::runtime::wait::delete::delete_and_finalize;
use kube::runtime::watcher;
use serde_json::json;

use super::controllers::{Shared, wait_for_phase};
use super::*;

const FINALIZER: &str = "example.com/cleanup";

/// Makes a config map without an owner, and deletes it with the site.
async fn reconcile(site: Arc<Site>, shared: Arc<Shared>) -> Result<Action, finalizer::Error<kube::Error>> {
    let sites: Api<Site> = Api::default_namespaced(shared.client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(shared.client.clone());
    let reconcile = async |event: Event<Site>| -> kube::Result<Action> {
        match event {
            Event::Apply(site) => {
                let metadata = ObjectMeta { name: Some(site.name_any()), ..ObjectMeta::default() };
                let map = ConfigMap { metadata, ..ConfigMap::default() };
                let map = Patch::Apply(map);
                maps.patch(&site.name_any(), &PatchParams::apply("painter").force(), &map).await?;
                let status = Patch::Merge(json!({"status": {"phase": "Up"}}));
                sites.patch_status(&site.name_any(), &PatchParams::default(), &status).await?;
            }
            Event::Cleanup(site) => drop(maps.delete(&site.name_any(), &DeleteParams::default()).await?),
        }
        Ok(Action::await_change())
    };
    finalizer(&sites, FINALIZER, site, reconcile).await
}

#[test]
fn a_finalizer_holds_an_object_until_the_cleanup() {
    with_door(async |door| {
        let (sites, maps, shared) = (door.sites(), door.config_maps(), Shared::new(door));
        let runs = Controller::new(sites.clone(), watcher::Config::default());
        let runs = runs.run(reconcile, Shared::failed, Arc::clone(&shared));
        let noting = Arc::clone(&shared);
        tokio::spawn(runs.for_each(move |run| noting.ended(run)));

        for (name, others) in [("blue", &[][..]), ("red", &["example.com/other".to_owned()])] {
            let mut site = site(name);
            site.finalizers_mut().extend_from_slice(others);
            sites.create(&PostParams::default(), &site).await.unwrap();
            wait_for_phase(sites.clone(), name, "Up").await;
            assert_eq!(sites.get(name).await.unwrap().finalizers(), [others, &[FINALIZER.to_owned()]].concat());
            assert_eq!(names(&maps.list(&ListParams::default()).await.unwrap()), [name]);
            if !others.is_empty() {
                let own = json!({"metadata": {"finalizers": [FINALIZER]}});
                sites.patch(name, &PatchParams::default(), &Patch::Merge(own)).await.unwrap();
            }
            delete_and_finalize(sites.clone(), name, &DeleteParams::default()).await.unwrap();
            assert!(maps.list(&ListParams::default()).await.unwrap().items.is_empty());
        }
        shared.check();
    });
}
