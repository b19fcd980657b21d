//! The external resources of a primary.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use homeostat::{BoxError, Context, Reasons, RequeueAfter};
use homeostat_objects::{DeleteOptions, External, Object, ObjectKey, PrimaryController, remove_finalizer};
use parking_lot::Mutex;

use super::world::{ALMOST, FINALIZER, RESYNC, SECOND, Site, World, key, site};
use crate::waits::until;

/// A signpost for each site, with the number of its pages.
#[derive(Clone, Default)]
struct Signs {
    up: Arc<Mutex<BTreeMap<ObjectKey, usize>>>,
    /// The calls in order, such as `observe a`.
    calls: Arc<Mutex<Vec<String>>>,
    /// The reasons of the runs that observed.
    reasons: Arc<Mutex<Vec<Reasons>>>,
    /// The method that fails.
    broken: Arc<Mutex<Option<&'static str>>>,
}

impl Signs {
    fn call(&self, verb: &'static str, name: &str) -> Result<(), BoxError> {
        self.calls.lock().push(format!("{verb} {name}"));
        match *self.broken.lock() {
            Some("later") if verb == "converge" => Err(RequeueAfter::new(SECOND, "the paint dries").into()),
            Some(broken) if broken == verb => Err("no paint".into()),
            _ => Ok(()),
        }
    }

    fn of(&self, name: &str) -> Option<usize> {
        self.up.lock().get(&key(name)).copied()
    }

    #[track_caller]
    fn until(&self, name: &str, sign: Option<usize>) {
        until!(if self.of(name) == sign { Ok(()) } else { Err(format!("{:?}", self.up.lock())) });
    }

    fn forget(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock())
    }
}

impl External<Site> for Signs {
    fn observe(&self, cx: &Context, site: &Site) -> Result<bool, BoxError> {
        self.reasons.lock().push(cx.reasons());
        self.call("observe", &site.metadata.name)?;
        Ok(self.up.lock().get(&site.key()) == Some(&site.pages.len()))
    }

    fn converge(&self, _: &Context, site: &Site) -> Result<(), BoxError> {
        self.call("converge", &site.metadata.name)?;
        self.up.lock().insert(site.key(), site.pages.len());
        Ok(())
    }

    fn list(&self, _: &Context) -> Result<Vec<ObjectKey>, BoxError> {
        self.call("list", "")?;
        Ok(self.up.lock().keys().cloned().collect())
    }

    fn remove(&self, _: &Context, owner: &ObjectKey) -> Result<bool, BoxError> {
        self.call("remove", owner.name())?;
        Ok(self.up.lock().remove(owner).is_some())
    }
}

fn with<'a>(
    world: &'a World,
    signs: &'a Signs,
) -> impl FnOnce(PrimaryController<Site>) -> PrimaryController<Site> + 'a {
    |settings| settings.external("signs", signs.clone()).recorder(world.recorder())
}

/// The events of a site about its signs.
fn of_signs(world: &World, name: &str) -> Vec<String> {
    world.recorded(name).into_iter().filter(|event| event.contains("signs")).collect()
}

#[test]
fn converges_a_resource_and_removes_it_with_its_primary() {
    for world in World::both() {
        let signs = Signs::default();
        let started = world.start(with(&world, &signs));
        let mut a = world.sites().create(&site("a", &[("x", "one")])).unwrap();
        signs.until("a", Some(1));
        a.pages.clear();
        world.sites().update(&a).unwrap();
        signs.until("a", Some(0));
        world.until_pages(&[]);
        started.handle.wait(&key("a"), SECOND).unwrap();
        signs.forget();
        started.handle.enqueue(key("a"));
        started.handle.wait(&key("a"), SECOND).unwrap();
        let calls = signs.forget();
        assert!(!calls.is_empty() && calls.iter().all(|call| call == "observe a"), "{calls:?}");

        world.sites().delete(&key("a"), &DeleteOptions::default()).unwrap();
        signs.until("a", None);
        world.until_called("gone delete a");
        // A second run finds nothing to remove, and records no event.
        started.handle.enqueue(key("a"));
        started.handle.wait(&key("a"), SECOND).unwrap();
        let expected = ["converged", "removed"].map(|done| format!("Normal Synced signs is {done}: in step"));
        assert_eq!(of_signs(&world, "a"), expected);
        started.stop();
    }
}

#[test]
fn finds_drift_by_a_resync() {
    for world in World::both() {
        let signs = Signs::default();
        let started = world.start(with(&world, &signs));
        world.sites().create(&site("a", &[])).unwrap();
        signs.until("a", Some(0));
        started.handle.wait(&key("a"), SECOND).unwrap();
        signs.up.lock().insert(key("a"), 77);
        world.clock.advance(ALMOST);
        started.handle.wait(&key("a"), SECOND).unwrap();
        assert_eq!(signs.of("a"), Some(77));
        world.clock.advance(SECOND);
        signs.until("a", Some(0));
        started.handle.wait(&key("a"), SECOND).unwrap();
        // An existing primary does not count as gone.
        signs.reasons.lock().clear();
        for _ in 0..5 {
            signs.up.lock().insert(key("a"), 77);
            world.clock.advance(RESYNC);
            signs.until("a", Some(0));
            started.handle.wait(&key("a"), SECOND).unwrap();
        }
        assert!(signs.reasons.lock().iter().all(|reasons| *reasons == Reasons::RESYNC), "{:?}", signs.reasons);
        started.stop();
    }
}

#[test]
fn finds_resources_of_missing_primaries_at_the_start_and_by_a_resync() {
    for world in World::both() {
        let signs = Signs::default();
        world.sites().create(&site("b", &[])).unwrap();
        signs.up.lock().extend([(key("a"), 1), (key("b"), 0)]);
        let started = world.start(with(&world, &signs));
        signs.until("a", None);
        world.until_called("gone resync a");
        signs.up.lock().insert(key("c"), 1);
        assert_eq!(signs.of("c"), Some(1));
        world.clock.advance(RESYNC);
        signs.until("c", None);
        world.until_called("gone resync c");
        assert_eq!(signs.of("b"), Some(0));
        started.stop();
    }
}

/// A failed resource does not stop the others.
#[test]
fn a_failure_names_the_resource_and_does_not_stop_the_others() {
    for world in World::both() {
        for broken in ["observe", "converge"] {
            let [bad, good] = [Signs::default(), Signs::default()];
            *bad.broken.lock() = Some(broken);
            let started = world
                .start(|settings| settings.external("bad signs", bad.clone()).external("good signs", good.clone()));
            world.sites().create(&site("a", &[])).unwrap();
            let trouble = started.failing("a");
            assert_eq!(trouble, "bad signs of Site default/a: no paint", "{broken}");
            good.until("a", Some(0));
            assert_eq!(bad.of("a"), None);
            *bad.broken.lock() = None;
            world.clock.advance(60 * SECOND);
            bad.until("a", Some(0));

            *bad.broken.lock() = Some("remove");
            world.forget();
            world.sites().delete(&key("a"), &DeleteOptions::default()).unwrap();
            good.until("a", None);
            assert_eq!(started.failing("a"), "bad signs of Site default/a: no paint");
            assert!(!world.forget().iter().any(|call| call.starts_with("gone")));
            *bad.broken.lock() = None;
            world.clock.advance(60 * SECOND);
            bad.until("a", None);
            until!({
                if world.forget().iter().any(|call| call.starts_with("gone")) {
                    Ok(())
                } else {
                    Err("not gone".to_owned())
                }
            });
            started.stop();
        }
    }
}

#[test]
fn a_resource_can_ask_for_another_run() {
    let world = World::new(2);
    let signs = Signs::default();
    *signs.broken.lock() = Some("later");
    let started = world.start(with(&world, &signs));
    world.sites().create(&site("a", &[])).unwrap();
    until!(if signs.calls.lock().contains(&"converge a".to_owned()) { Ok(()) } else { Err("not tried".to_owned()) });
    started.handle.wait(&key("a"), SECOND).unwrap();
    assert!(started.handle.failing().is_empty());
    *signs.broken.lock() = None;
    world.clock.advance(SECOND);
    signs.until("a", Some(0));
    started.stop();
}

#[test]
fn a_failed_listing_does_not_stop_the_others() {
    let world = World::new(2);
    let [bad, good] = [Signs::default(), Signs::default()];
    for signs in [&bad, &good] {
        signs.up.lock().insert(key("gone"), 1);
    }
    *bad.broken.lock() = Some("list");
    let started =
        world.start(|settings| settings.external("bad signs", bad.clone()).external("good signs", good.clone()));
    good.until("gone", None);
    // Once a primary is known to be gone, all its resources are removed.
    bad.until("gone", None);
    started.stop();
}

#[test]
fn a_resource_that_cannot_be_listed_is_a_failing_source() {
    let world = World::new(1);
    let signs = Signs::default();
    let started = world.start(with(&world, &signs));
    let source = started.handle.sources().into_iter().find(|source| source.name() == "signs").unwrap();
    let failures = |count| {
        until!(match source.status() {
            status if status.failures_in_a_row == count && status.listing_for.is_none() => Ok(()),
            status => Err(status.to_string()),
        });
    };
    assert_eq!(source.status().to_string(), "signs: ok");
    *signs.broken.lock() = Some("list");
    world.clock.advance(RESYNC);
    failures(1);
    assert_eq!(started.manager.ready().to_string(), "ok");
    // A failed listing is repeated before the next resync.
    for count in 2..=6 {
        world.clock.advance(30 * SECOND);
        failures(count);
    }
    let expected = "signs: failing for 150s (6 in a row): no paint";
    assert_eq!(source.status().to_string(), expected);
    assert_eq!(started.manager.ready().to_string(), format!("sites: {expected}"));
    *signs.broken.lock() = None;
    world.clock.advance(30 * SECOND);
    failures(0);
    assert_eq!(started.manager.ready().to_string(), "ok");
    // The first listing, six failures, and the success.
    assert_eq!(source.status().listings, 8);
    started.stop();
}

#[test]
fn converges_nothing_for_a_primary_being_deleted() {
    for world in World::both() {
        let signs = Signs::default();
        let mut held = site("held", &[]);
        held.metadata.finalizers.push(FINALIZER.into());
        world.sites().create(&held).unwrap();
        let deleting = world.sites().delete(&key("held"), &DeleteOptions::default()).unwrap().into_object().unwrap();
        let started = world.start(with(&world, &signs));
        world.until_called("delete held");
        started.handle.wait(&key("held"), SECOND).unwrap();
        assert!(!signs.forget().iter().any(|call| call.ends_with("held")));
        remove_finalizer(&world.sites(), &deleting, FINALIZER).unwrap();
        world.until_called("gone delete held");
        assert!(signs.forget().contains(&"remove held".to_owned()));
        started.stop();
    }
}

/// External resources depend on the result of `sync`.
#[test]
fn observes_only_after_a_successful_sync() {
    let world = World::new(1);
    let signs = Signs::default();
    world.bare_pages().create(&super::world::page("a-x", "here first")).unwrap();
    let started = world.start(|settings| with(&world, &signs)(settings).reconcile_timeout(Duration::from_secs(3600)));
    world.sites().create(&site("a", &[("x", "one")])).unwrap();
    assert!(started.failing("a").contains("Page pages/a-x"));
    assert_eq!(signs.forget(), ["list "]);
    started.stop();
}
