//! The reconciler: it makes the objects of a site, and reports in the site's status.

use std::sync::Arc;

use homeostat::{Action, BoxError, Context, Controller, ControllerHandle, Manager, Reconciler, Subscriber};
use homeostat_objects::{
    Api, Client, Condition, ConditionStatus, DynamicObject, EventRecorder, EventType, FieldOwner, Ignore,
    LabelSelector, Object, ObjectKey, ObjectMeta, ObjectWatch, Patch, PatchTarget, Query, ValueRef, owner_keys,
    with_finalizer,
};
use serde_json::{Value, json};

use crate::objects::{
    CONDITIONS, CONFIG_MAP, DEPLOYMENT, FINALIZER, INDEX, MANAGED_BY, NAME, Site, config_map, deployment,
};

/// Adds the controller of sites to a manager, with watches of sites and of the objects that it makes.
pub(crate) fn add_to(
    manager: &Manager,
    client: &Arc<dyn Client>,
    recorder: EventRecorder,
) -> Result<ControllerHandle<ObjectKey>, BoxError> {
    let sites = Api::<Site>::new(client.clone());
    let watch = manager.watch("all-sites", || ObjectWatch::new(sites.clone()).start())?;
    let reconciler = SiteReconciler { sites, client: client.clone(), recorder };
    let mut controller = Controller::builder("sites", reconciler).max_concurrent_reconciles(4);
    controller = controller.subscribe(&watch, Subscriber::to_itself);
    let ours = Query::all().labels(format!("{MANAGED_BY}={NAME}").parse::<LabelSelector>()?);
    for kind in [CONFIG_MAP, DEPLOYMENT] {
        let api = Api::<DynamicObject>::of_kind(client.clone(), kind);
        let children = manager.watch(&format!("{}-of-sites", api.kind().plural()), || {
            ObjectWatch::new(api.clone()).query(ours.clone()).start()
        })?;
        // A change of a child, even by others, runs its site.
        let owners = |_key: &ObjectKey, child: &DynamicObject| owner_keys(&child.meta(), &Site::KIND);
        controller = controller.subscribe(&children, move |queue| Subscriber::to_owner(queue, owners).secondary());
    }
    let controller = controller.build()?;
    let handle = controller.handle();
    manager.add(controller)?;
    Ok(handle)
}

struct SiteReconciler {
    sites: Api<Site>,
    client: Arc<dyn Client>,
    recorder: EventRecorder,
}

impl Reconciler<ObjectKey> for SiteReconciler {
    type Error = BoxError;

    fn reconcile(&self, cx: &Context, key: &ObjectKey) -> Result<Action, BoxError> {
        let Some(site) = self.sites.get(key).ignore_not_found()? else { return Ok(Action::await_change()) };
        // The config map and the deployment are deleted with their owner. The index has no owner.
        with_finalizer(&self.sites, site, FINALIZER, |site| self.publish(cx, site), |site| self.leave_index(site))
    }
}

impl SiteReconciler {
    fn publish(&self, cx: &Context, site: &mut Site) -> Result<Action, BoxError> {
        let before = site.status.clone();
        let now = cx.clock().time_of_day().try_into()?;
        let generation = site.metadata.generation;
        let condition = |kind: &str, holds: bool, reason: &str, message: &str| {
            let status = if holds { ConditionStatus::True } else { ConditionStatus::False };
            Condition::new(kind, status, reason).message(message).observed_generation(generation)
        };
        let is_new = before.observed_generation != generation;
        let status = &mut site.status;
        status.observed_generation = generation;
        status.selector = format!("site={}", site.metadata.name);
        CONDITIONS.initialize(&mut status.conditions, now);
        if site.spec.pages.is_empty() {
            let message = "the site has no pages: add one to spec.pages";
            CONDITIONS.set(&mut status.conditions, condition("Published", false, "NoPages", message), now);
            if is_new {
                self.recorder.action("Publish").event(&*site, EventType::Warning, "NoPages", message);
            }
        } else {
            let deployment = self.put_children(site)?;
            let available = deployment.pointer("/status/availableReplicas").and_then(ValueRef::as_u64);
            let (wanted, available) =
                (site.spec.replicas, available.and_then(|count| count.try_into().ok()).unwrap_or(0));
            let message = format!("pages: {}", site.spec.pages.len());
            let status = &mut site.status;
            CONDITIONS.set(&mut status.conditions, condition("Published", true, "Published", &message), now);
            let servers = format!("{available} of {wanted} web servers are available");
            let is_available = available >= wanted;
            let reason = if is_available { "Available" } else { "Waiting" };
            CONDITIONS.set(&mut status.conditions, condition("Available", is_available, reason, &servers), now);
            status.available = available;
            if is_new {
                self.recorder.action("Publish").event(&*site, EventType::Normal, "Published", &message);
            }
        }
        if site.status != before {
            self.sites.update_status(site)?;
        }
        Ok(Action::await_change())
    }

    /// Writes the index, the config map and the deployment of a site. Returns the deployment.
    fn put_children(&self, site: &Site) -> Result<DynamicObject, BoxError> {
        self.write_index(site, &site.spec.title.as_str().into())?;
        // The operator takes over these fields from every other writer.
        let owner = FieldOwner::new(NAME).force();
        self.client.apply(&CONFIG_MAP, config_map(site), &owner)?;
        let deployment = self.client.apply(&DEPLOYMENT, deployment(site), &owner)?;
        Ok(DynamicObject::from_shared(&deployment)?)
    }

    /// Sets the entry of a site in the index; `null` removes it.
    fn write_index(&self, site: &Site, entry: &Value) -> Result<(), BoxError> {
        let key = ObjectKey::new(&site.metadata.namespace, INDEX);
        let is_removal = entry.is_null();
        let data = json!({"data": {&*site.metadata.name: entry}});
        let patch = Patch::Merge(data.clone());
        if self.client.patch(&CONFIG_MAP, &key, &patch, PatchTarget::Object).ignore_not_found()?.is_none()
            && !is_removal
        {
            let index = DynamicObject::new(&CONFIG_MAP, key.namespace(), key.name()).with("data", data["data"].clone());
            // If another worker creates it at the same time, the run is repeated.
            self.client.create(&CONFIG_MAP, index.to_json()?)?;
        }
        Ok(())
    }

    fn leave_index(&self, site: &mut Site) -> Result<Action, BoxError> {
        self.write_index(site, &Value::Null)?;
        self.recorder.action("Remove").event(&*site, EventType::Normal, "Removed", "the site left the index");
        Ok(Action::await_change())
    }
}

/// Returns a new site.
pub(crate) fn site(namespace: &str, name: &str, pages: &[(&str, &str)]) -> Site {
    let pages = pages.iter().map(|(page, text)| ((*page).to_owned(), (*text).to_owned())).collect();
    let spec = crate::objects::SiteSpec { title: format!("The {name}"), pages, replicas: 2 };
    Site { metadata: ObjectMeta::new(namespace, name), spec, status: crate::objects::SiteStatus::default() }
}
