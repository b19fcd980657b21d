//! `ExternalReconciler`: a resource outside all clients. A finalizer keeps the object while it
//! exists.

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat::{BoxError, Context};
use homeostat_objects::sub::ExternalReconciler;
use homeostat_objects::{External, Object, ObjectKey};
use parking_lot::Mutex;

use crate::pages::Site;
use crate::support::Thing;
use homeostat::rt::Chain;

const FINALIZER: &str = "example.com/sign";
const PATCH: &str = "patch Thing default/web";
const PATCHED: &str = "Normal FinalizerPatched Patched finalizer \"example.com/sign\"";

/// A sign for each thing that shows its spec.
#[derive(Clone, Default)]
struct Signs {
    up: Arc<Mutex<BTreeMap<ObjectKey, BTreeMap<String, String>>>>,
    calls: Arc<Mutex<Vec<&'static str>>>,
    /// The method that fails.
    broken: Arc<Mutex<Option<&'static str>>>,
}

impl Signs {
    fn call(&self, method: &'static str) -> Result<(), BoxError> {
        self.calls.lock().push(method);
        if *self.broken.lock() == Some(method) { Err("no paint".into()) } else { Ok(()) }
    }

    #[track_caller]
    fn called(&self, expected: &[&str]) {
        assert_eq!(std::mem::take(&mut *self.calls.lock()), expected);
    }

    fn is_up(&self, site: &Site) -> bool {
        self.up.lock().contains_key(&site.web.key())
    }
}

impl External<Thing> for Signs {
    fn observe(&self, _: &Context, thing: &Thing) -> Result<bool, BoxError> {
        self.call("observe")?;
        Ok(self.up.lock().get(&thing.key()) == Some(&thing.spec))
    }

    fn converge(&self, _: &Context, thing: &Thing) -> Result<(), BoxError> {
        self.call("converge")?;
        self.up.lock().insert(thing.key(), thing.spec.clone());
        Ok(())
    }

    fn list(&self, _: &Context) -> Result<Vec<ObjectKey>, BoxError> {
        unreachable!("only a PrimaryController lists")
    }

    fn remove(&self, _: &Context, owner: &ObjectKey) -> Result<bool, BoxError> {
        self.call("remove")?;
        Ok(self.up.lock().remove(owner).is_some())
    }
}

fn sign(signs: &Signs) -> ExternalReconciler<Thing> {
    ExternalReconciler::new("sign", FINALIZER, signs.clone())
}

#[test]
fn converges_behind_the_finalizer_and_only_if_not_in_step() {
    let (mut site, signs) = (Site::new(), Signs::default());
    site.go(&sign(&signs));
    signs.called(&["observe", "converge"]);
    site.did(&[PATCH], &[PATCHED, "Normal Synced sign is converged: in step"]);
    assert!(site.web.metadata.has_finalizer(FINALIZER) && signs.is_up(&site));

    site.go(&sign(&signs));
    signs.called(&["observe"]);
    site.did(&[], &[]);

    site.web.spec.insert("a".to_owned(), "b".to_owned());
    site.go(&sign(&signs));
    signs.called(&["observe", "converge"]);
    site.did(&[], &["Normal Synced sign is converged: in step"]);
}

#[test]
fn creates_nothing_without_the_finalizer() {
    let (mut site, signs) = (Site::new(), Signs::default());
    site.client.before(|verb, object| (verb == "patch").then(|| crate::pages::out_of_luck(object)));
    assert_eq!(
        Chain(&*site.step(&sign(&signs)).unwrap_err()).to_string(),
        "Thing default/web: the call failed: out of luck"
    );
    signs.called(&[]);
}

#[test]
fn removes_the_resource_and_then_the_finalizer() {
    let (mut site, signs) = (Site::new(), Signs::default());
    site.go(&sign(&signs));
    site.delete_web("example.com/other");
    signs.called(&["observe", "converge"]);
    site.did(&[PATCH], &[PATCHED, "Normal Synced sign is converged: in step"]);

    site.go(&sign(&signs));
    signs.called(&["remove"]);
    site.did(&[PATCH], &[PATCHED, "Normal Synced sign is removed: in step"]);
    assert_eq!((site.web.metadata.finalizers.join(" "), signs.is_up(&site)), ("example.com/other".to_owned(), false));

    site.go(&sign(&signs));
    signs.called(&[]);
    site.did(&[], &[]);
}

#[test]
fn releases_an_object_whose_resource_is_gone() {
    let (mut site, signs) = (Site::new(), Signs::default());
    site.delete_web(FINALIZER);
    site.go(&sign(&signs));
    signs.called(&["remove"]);
    site.did(&[PATCH], &[PATCHED]);
}

#[test]
fn failures_name_the_resource_and_keep_the_finalizer() {
    for (broken, calls) in [("observe", &["observe"][..]), ("converge", &["observe", "converge"])] {
        let (mut site, signs) = (Site::new(), Signs::default());
        *signs.broken.lock() = Some(broken);
        let error = site.step(&sign(&signs)).unwrap_err();
        let texts = [error.to_string(), error.source().unwrap().to_string()];
        assert_eq!(texts, ["sign of Thing default/web", "no paint"]);
        signs.called(calls);
    }
    let (mut site, signs) = (Site::new(), Signs::default());
    site.go(&sign(&signs));
    site.delete_web(FINALIZER);
    *signs.broken.lock() = Some("remove");
    assert!(site.step(&sign(&signs)).is_err());
    assert!(site.web.metadata.has_finalizer(FINALIZER) && signs.is_up(&site));
    *signs.broken.lock() = None;
    site.go(&sign(&signs));
    assert!(!site.web.metadata.has_finalizer(FINALIZER) && !signs.is_up(&site));
}
