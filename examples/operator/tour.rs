//! Some changes of sites on the embedded store, and the effect of each.

use std::sync::Arc;

use homeostat::{BoxError, Context};
use homeostat_objects::{
    Api, Client, DeleteOptions, DynamicObject, Ignore, Object, ObjectKey, Patch, PatchTarget, Query,
};
use serde_json::json;

use crate::objects::{CONDITIONS, CONFIG_MAP, DEPLOYMENT, INDEX, Site, SiteStatus, pages_of};
use crate::reconcile::site;
use crate::until::until;

const NAMESPACE: &str = "default";

pub(crate) struct Tour {
    pub(crate) client: Arc<dyn Client>,
    pub(crate) cx: Context,
}

impl Tour {
    pub(crate) fn go(&self) -> Result<(), BoxError> {
        let sites = Api::<Site>::new(self.client.clone());
        println!("A site is created.");
        let garden = sites.create(&site(NAMESPACE, "garden", &[("index", "Roses"), ("paths", "Gravel")]))?.key();
        self.until(&garden, |status| status.conditions.iter().any(|condition| condition.reason == "Waiting"))?;

        println!("A cluster would start web servers. Here the tour says that both of them work.");
        let ready = Patch::Merge(json!({"status": {"availableReplicas": 2}}));
        self.client.patch(&DEPLOYMENT, &garden, &ready, PatchTarget::Status)?;
        self.until(&garden, |status| CONDITIONS.is_happy(&status.conditions))?;

        println!("The config map with the pages is deleted by hand. It comes back.");
        let pages = Api::<DynamicObject>::of_kind(self.client.clone(), CONFIG_MAP);
        let key = ObjectKey::new(NAMESPACE, &pages_of(garden.name()));
        let uid = pages.get(&key)?.meta().uid.clone();
        pages.delete(&key, &DeleteOptions::default())?;
        until(&self.cx, || Ok(pages.get(&key).ignore_not_found()?.is_some_and(|pages| pages.meta().uid != uid)))?;

        println!("All pages are removed from the site.");
        sites.patch(&garden, &Patch::Json(json!([{"op": "replace", "path": "/spec/pages", "value": {}}])))?;
        self.until(&garden, |status| status.conditions.iter().any(|condition| condition.reason == "NoPages"))?;

        println!("The site is deleted, with everything that belongs to it.");
        sites.delete(&garden, &DeleteOptions::default())?;
        let index = ObjectKey::new(NAMESPACE, INDEX);
        until(&self.cx, || {
            let is_listed = pages.get(&index)?.pointer("/data/garden").is_some();
            Ok(!is_listed && self.client.list(&DEPLOYMENT, &Query::all())?.items.is_empty())
        })
    }

    /// Waits until the site's status is in this state, and shows its conditions.
    fn until(&self, key: &ObjectKey, holds: impl Fn(&SiteStatus) -> bool) -> Result<(), BoxError> {
        let sites = Api::<Site>::new(self.client.clone());
        until(&self.cx, || Ok(holds(&sites.get(key)?.status)))?;
        for condition in sites.get(key)?.status.conditions {
            println!("  {} is {:?}: {} {}", condition.kind, condition.status, condition.reason, condition.message);
        }
        Ok(())
    }
}
