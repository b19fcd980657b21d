//! The events that run a primary, and the calls of its reconciler.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use homeostat::{Action, BoxError, Context, Enqueue, EnqueueOutcome, Exponential, Manager};
use homeostat_objects::{
    Api, ClientError, DeleteOptions, Object, Operation, Ownership, PrimaryContext, PrimaryController,
    PrimaryReconciler, remove_finalizer,
};
use parking_lot::Mutex;

use super::world::{ALMOST, FINALIZER, RESYNC, SECOND, Site, World, cx, key, page, page_key, site, theme};
use crate::hooked_client::unreachable;
use crate::waits::until;

#[test]
fn follows_a_primary_from_creation_to_deletion() {
    for world in World::both() {
        let started = world.start(|settings| settings);
        let mut a = world.sites().create(&site("a", &[("x", "one"), ("y", "two")])).unwrap();
        world.until_pages(&[("a-x", "one"), ("a-y", "two")]);
        a.pages = site("", &[("y", "two!"), ("z", "three")]).pages;
        world.sites().update(&a).unwrap();
        world.until_pages(&[("a-y", "two!"), ("a-z", "three")]);
        started.handle.wait(&key("a"), SECOND).unwrap();
        let calls = world.forget();
        assert!(calls.iter().all(|call| ["put a", "secondary a"].contains(&&**call)), "{calls:?}");

        world.sites().delete(&key("a"), &DeleteOptions::default()).unwrap();
        world.until_called("gone delete a");
        assert!(world.texts().is_empty());
        let says = |page: &str, done: &str| format!("Normal Synced Page pages/a-{page} is {done}: in step");
        let mut expected: Vec<_> = [
            ("x", "created"),
            ("x", "deleted"),
            ("y", "created"),
            ("y", "deleted"),
            ("y", "updated"),
            ("z", "created"),
            ("z", "deleted"),
        ]
        .map(|(page, done)| says(page, done))
        .into();
        expected.sort();
        assert_eq!(world.recorded("a"), expected);
        started.stop();
    }
}

#[test]
fn restores_a_secondary_deleted_or_changed_by_hand() {
    for world in World::both() {
        let started = world.start(|settings| settings);
        world.sites().create(&site("a", &[("x", "one")])).unwrap();
        world.until_pages(&[("a-x", "one")]);
        world.until_echoed(&started, &["a"]);

        world.bare_pages().purge(&page_key("a-x")).unwrap();
        world.until_called("secondary a");
        world.until_pages(&[("a-x", "one")]);
        let mut by_hand = world.bare_pages().get(&page_key("a-x")).unwrap();
        by_hand.text = "by hand".into();
        world.bare_pages().update(&by_hand).unwrap();
        world.until_called("secondary a");
        world.until_pages(&[("a-x", "one")]);
        started.stop();
    }
}

#[test]
fn refuses_an_existing_object_until_it_is_gone() {
    for world in World::both() {
        world.bare_pages().create(&page("a-x", "here first")).unwrap();
        let started = world.start(|settings| settings);
        world.sites().create(&site("a", &[("x", "one")])).unwrap();
        let error = started.failing("a");
        assert!(
            error.starts_with("Page pages/a-x is invalid: metadata.annotations: must name Site default/a"),
            "{error}"
        );
        world.until_pages(&[("a-x", "here first")]);
        let warning = "Warning ErrResourceExists Page pages/a-x already exists, and this controller does not manage it";
        assert_eq!(world.recorded("a"), [warning]);
        // No watch reports this deletion to the site: the backoff retries.
        world.bare_pages().purge(&page_key("a-x")).unwrap();
        world.clock.advance(60 * SECOND);
        world.until_pages(&[("a-x", "one")]);
        started.stop();
    }
}

#[test]
fn a_secondary_without_marks_has_no_owner() {
    for world in World::both() {
        let started = world.start(|settings| settings);
        world.sites().create(&site("a", &[("x", "one")])).unwrap();
        world.until_echoed(&started, &["a"]);
        let mut bare = world.bare_pages().get(&page_key("a-x")).unwrap();
        bare.text = "set free".into();
        assert!(Ownership::new().unmark(&mut bare));
        world.bare_pages().update(&bare).unwrap();
        let error = started.failing("a");
        assert!(error.contains("Page pages/a-x") && error.contains("Site default/a"), "{error}");
        assert!(world.recorded("a").iter().any(|event| event.starts_with("Warning ErrResourceExists")));
        world.sites().delete(&key("a"), &DeleteOptions::default()).unwrap();
        world.clock.advance(60 * SECOND);
        world.until_called("gone delete a");
        world.until_pages(&[("a-x", "set free")]);
        started.stop();
    }
}

#[test]
fn distinguishes_deletion_purge_and_finalizer() {
    for world in World::both() {
        let started = world.start(|settings| settings);
        let mut held = site("held", &[("x", "one")]);
        held.metadata.finalizers.push(FINALIZER.into());
        world.sites().create(&held).unwrap();
        let mut gone = site("gone", &[("x", "two")]);
        gone.metadata.finalizers.push(FINALIZER.into());
        world.sites().create(&gone).unwrap();
        world.sites().create(&site("free", &[("x", "three")])).unwrap();
        world.until_pages(&[("free-x", "three"), ("gone-x", "two"), ("held-x", "one")]);

        // Without finalizers, the last state shows no deletion.
        world.sites().delete(&key("free"), &DeleteOptions::default()).unwrap();
        let calls = world.until_called("gone delete free");
        assert!(!calls.contains(&"gone purge free".to_owned()), "{calls:?}");
        world.until_pages(&[("gone-x", "two"), ("held-x", "one")]);

        let deleting = world.sites().delete(&key("held"), &DeleteOptions::default()).unwrap().into_object().unwrap();
        world.until_called("delete held");
        world.until_pages(&[("gone-x", "two"), ("held-x", "one")]);
        remove_finalizer(&world.sites(), &deleting, FINALIZER).unwrap();
        world.until_called("gone delete held");
        world.until_pages(&[("gone-x", "two")]);

        world.sites().purge(&key("gone")).unwrap();
        let calls = world.until_called("gone purge gone");
        assert!(!calls.contains(&"gone delete gone".to_owned()), "{calls:?}");
        world.until_pages(&[]);
        started.stop();
    }
}

#[test]
fn collects_orphans_from_before_the_start() {
    for world in World::both() {
        let (a, b) = (site("a", &[("x", "one")]), site("b", &[("x", "two")]));
        let started = world.start(|settings| settings);
        world.sites().create(&a).unwrap();
        world.sites().create(&b).unwrap();
        world.until_pages(&[("a-x", "one"), ("b-x", "two")]);
        started.stop();
        world.sites().delete(&key("a"), &DeleteOptions::default()).unwrap();
        // Its annotations still name its owner.
        let mut bald = world.pages().ensure(&cx(), &a, page("a-z", "bald")).unwrap().object().clone();
        bald.metadata.labels.clear();
        world.bare_pages().update(&bald).unwrap();
        world.bare_pages().create(&page("c", "nobody's")).unwrap();
        world.forget();

        let started = world.start(|settings| settings);
        world.until_pages(&[("b-x", "two"), ("c", "nobody's")]);
        world.until_called("gone secondary a");
        started.stop();
    }
}

#[test]
fn prunes_a_secondary_that_has_lost_its_labels() {
    for world in World::both() {
        let a = world.sites().create(&site("a", &[("x", "one")])).unwrap();
        let mut bald = world.pages().ensure(&cx(), &a, page("a-y", "bald")).unwrap().object().clone();
        bald.metadata.labels.clear();
        world.bare_pages().update(&bald).unwrap();

        let started = world.start(|settings| settings);
        world.until_pages(&[("a-x", "one")]);
        started.stop();
    }
}

#[test]
fn a_secondary_that_cannot_get_its_labels_back_stops_nothing_else() {
    for world in World::both() {
        let a = world.sites().create(&site("a", &[("x", "one")])).unwrap();
        let mut bald = world.pages().ensure(&cx(), &a, page("a-y", "bald")).unwrap().object().clone();
        bald.metadata.labels.clear();
        world.bare_pages().update(&bald).unwrap();
        world
            .of_pages
            .before(|verb, object| (verb == "patch").then(|| ClientError::forbidden(object.clone(), "not this one")));

        let started = world.start(|settings| settings);
        world.until_pages(&[("a-x", "one"), ("a-y", "bald")]);
        assert!(started.failing("a").contains("not this one"));
        started.stop();
    }
}

/// A watch may lag: an object that is an orphan there may have a new owner.
#[test]
fn does_not_collect_an_object_that_has_a_new_owner() {
    for world in World::both() {
        let (a, b) = (site("a", &[]), world.sites().create(&site("b", &[("x", "two")])).unwrap());
        let mut bald = world.pages().ensure(&cx(), &a, page("b-x", "one")).unwrap().object().clone();
        bald.metadata.labels.clear();
        world.bare_pages().update(&bald).unwrap();
        let bare = world.bare_pages();
        let mut once = Some(());
        world.of_pages.before(move |verb, object| {
            if verb == "get" && *object.key() == page_key("b-x") && once.take().is_some() {
                let mut page = bare.get(&page_key("b-x")).unwrap();
                Ownership::new().unmark(&mut page);
                Ownership::new().mark(&b.object_ref(), &mut page).unwrap();
                page.text = "given".into();
                bare.update(&page).unwrap();
            }
            None
        });
        // `b` runs only after `a`, which reads the page first.
        let manager = Manager::builder().clock(world.clock.clock()).build().unwrap();
        let handle = world.controller().add_to(&manager).unwrap();
        handle.suspend(key("b"));
        let running = manager.start().unwrap();
        until!(if world.texts()["b-x"] == "given" { Ok(()) } else { Err(format!("{:?}", world.texts())) });
        handle.wait(&key("a"), SECOND).unwrap();
        world.until_pages(&[("b-x", "given")]);
        let uid = world.bare_pages().get(&page_key("b-x")).unwrap().metadata.uid;
        handle.resume(&key("b"));
        world.until_pages(&[("b-x", "two")]);
        assert_eq!((uid, world.recorded("a").len()), (bald.metadata.uid, 1));
        manager.stop();
        running.join().unwrap();
    }
}

#[test]
fn a_change_of_a_tertiary_enqueues_its_primaries() {
    for world in World::both() {
        let started = world.start(|settings| settings);
        let mut dark = world.themes().create(&theme("dark", "black", &["a"])).unwrap();
        for name in ["a", "b"] {
            let mut site = site(name, &[("x", "one")]);
            site.theme = "dark".into();
            world.sites().create(&site).unwrap();
        }
        world.until_pages(&[("a-x", "one in black"), ("b-x", "one in black")]);
        world.until_echoed(&started, &["a", "b"]);
        dark.colour = "grey".into();
        let mut dark = world.themes().update(&dark).unwrap();
        world.until_pages(&[("a-x", "one in grey"), ("b-x", "one in black")]);
        // A site that no longer reads it is enqueued too.
        (dark.colour, dark.sites) = ("blue".into(), vec!["b".into()]);
        world.themes().update(&dark).unwrap();
        world.until_pages(&[("a-x", "one in blue"), ("b-x", "one in blue")]);
        world.forget();
        world.themes().delete(&key("dark"), &DeleteOptions::default()).unwrap();
        let calls = world.until_called("secondary b");
        assert!(calls.iter().all(|call| call.starts_with("secondary ")), "{calls:?}");
        until!(if world.texts()["b-x"] == "one" { Ok(()) } else { Err(format!("{:?}", world.texts())) });
        started.stop();
    }
}

/// The deletion events of its secondaries do not call `gone` again.
#[test]
fn calls_gone_once() {
    for world in World::both() {
        let started = world.start(|settings| settings);
        world.sites().create(&site("a", &[("x", "one")])).unwrap();
        world.until_echoed(&started, &["a"]);
        let mut held = world.bare_pages().get(&page_key("a-x")).unwrap();
        held.metadata.finalizers.push(FINALIZER.into());
        world.bare_pages().update(&held).unwrap();
        world.until_echoed(&started, &["a"]);
        let runs = || started.handle.metrics().runs.runs();
        let until_runs = |count| {
            until!(if runs() >= count { Ok(()) } else { Err(format!("{} runs, not {count}", runs())) });
            started.handle.wait(&key("a"), SECOND).unwrap();
        };
        let before = runs();
        world.sites().delete(&key("a"), &DeleteOptions::default()).unwrap();
        until_runs(before + 2);
        assert_eq!(world.forget(), ["gone delete a"]);
        // A resync finds the page still being deleted.
        world.clock.advance(RESYNC);
        until_runs(before + 3);
        let held = world.bare_pages().get(&page_key("a-x")).unwrap();
        remove_finalizer(&world.bare_pages(), &held, FINALIZER).unwrap();
        until_runs(before + 4);
        assert!(world.forget().is_empty());
        // A request calls `gone` again, also without a reason.
        for queue in [None, Some(started.handle.queue())] {
            let outcome = queue.map_or_else(|| started.handle.enqueue(key("a")), |queue| queue.enqueue(key("a")));
            assert_eq!(outcome, EnqueueOutcome::Queued);
            started.handle.wait(&key("a"), SECOND).unwrap();
            assert_eq!(world.forget(), ["gone other a"]);
        }
        started.stop();
    }
}

/// A theme that names no sites is found only by a resync.
#[test]
fn a_resync_runs_all_primaries() {
    for world in World::both() {
        let started = world.start(|settings| settings);
        for name in ["a", "b"] {
            let mut site = site(name, &[("x", "one")]);
            site.theme = "dark".into();
            world.sites().create(&site).unwrap();
        }
        world.until_pages(&[("a-x", "one"), ("b-x", "one")]);
        world.until_echoed(&started, &["a", "b"]);
        world.themes().create(&theme("dark", "black", &[])).unwrap();
        world.clock.advance(ALMOST);
        world.until_pages(&[("a-x", "one"), ("b-x", "one")]);
        world.forget();
        world.clock.advance(SECOND);
        world.until_pages(&[("a-x", "one in black"), ("b-x", "one in black")]);
        let calls = world.forget();
        assert!(["resync a", "resync b"].iter().all(|call| calls.contains(&(*call).to_owned())), "{calls:?}");
        started.stop();
    }
}

/// A failing client does not mean that an object is gone.
#[test]
fn only_the_client_says_that_a_primary_is_gone() {
    for world in World::both() {
        let started = world.start(|settings| settings);
        world.sites().create(&site("a", &[("x", "one")])).unwrap();
        world.until_pages(&[("a-x", "one")]);
        started.handle.wait(&key("a"), SECOND).unwrap();
        world
            .of_sites
            .before(|verb, object| (verb == "get" && object.kind() == &Site::KIND).then(|| unreachable(object)));
        started.handle.enqueue(key("a"));
        assert_eq!(started.failing("a"), "Site default/a: the call failed: no answer");
        world.until_pages(&[("a-x", "one")]);
        world.of_sites.before(|_, _| None);
        world.clock.advance(60 * SECOND);
        until!(if started.handle.failing().is_empty() { Ok(()) } else { Err("it still fails".to_owned()) });
        assert!(!world.forget().iter().any(|call| call.starts_with("gone")));
        started.stop();
    }
}

#[test]
fn a_recreated_primary_keeps_its_secondaries() {
    for world in World::both() {
        let started = world.start(|settings| settings);
        world.sites().create(&site("a", &[("x", "one")])).unwrap();
        world.until_pages(&[("a-x", "one")]);
        let uid = || world.bare_pages().get(&page_key("a-x")).unwrap().metadata.uid;
        let first = uid();
        started.handle.suspend_all();
        world.sites().delete(&key("a"), &DeleteOptions::default()).unwrap();
        world.sites().create(&site("a", &[("x", "one"), ("y", "two")])).unwrap();
        started.handle.resume_all();
        world.until_pages(&[("a-x", "one"), ("a-y", "two")]);
        started.handle.wait(&key("a"), SECOND).unwrap();
        assert_eq!(uid(), first);
        started.stop();
    }
}

#[test]
fn clean_up_runs_last() {
    let world = World::new(2);
    let (calls, seen) = (Arc::clone(&world.calls), Arc::new(Mutex::new(Vec::new())));
    let at_end = Arc::clone(&seen);
    let started = world.start(|settings| settings.clean_up(move || at_end.lock().push(calls.lock().len())));
    world.sites().create(&site("a", &[("x", "one")])).unwrap();
    world.until_pages(&[("a-x", "one")]);
    assert!(seen.lock().is_empty());
    started.stop();
    assert_eq!(*seen.lock(), [world.calls.lock().len()]);
}

/// Watches are shared by client and type, so each client is listed once.
#[test]
fn controllers_share_the_watches_of_each_client() {
    let world = World::new(2);
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    world.of_sites.before(move |verb, _| {
        counted.fetch_add(usize::from(verb == "list"), Ordering::SeqCst);
        None
    });
    let manager = Manager::builder().clock(world.clock.clock()).build().unwrap();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noting = |controller: &'static str| {
        let seen = Arc::clone(&seen);
        move |_: &PrimaryContext<'_>, site: &Site| {
            seen.lock().push(format!("{controller} {}", site.metadata.name));
            Ok::<_, BoxError>(Action::await_change())
        }
    };
    let sites = world.sites();
    let elsewhere = Api::<Site>::new(world.of_pages.clone());
    PrimaryController::new("one", sites.clone(), noting("one")).add_to(&manager).unwrap();
    PrimaryController::new("two", sites.clone(), noting("two")).add_to(&manager).unwrap();
    sites.create(&site("here", &[])).unwrap();
    elsewhere.create(&site("there", &[])).unwrap();
    let running = manager.start().unwrap();
    PrimaryController::new("three", elsewhere.clone(), noting("three")).add_to(&manager).unwrap();
    let sorted = || {
        let mut seen = seen.lock().clone();
        seen.sort();
        seen.dedup();
        seen
    };
    until!(if sorted().len() == 3 { Ok(()) } else { Err(sorted().join(", ")) });
    assert_eq!(sorted(), ["one here", "three there", "two here"]);
    assert_eq!(lists.load(Ordering::SeqCst), 1);
    manager.stop();
    running.join().unwrap();
}

#[test]
fn refuses_invalid_settings() {
    let world = World::new(1);
    let manager = Manager::builder().clock(world.clock.clock()).build().unwrap();
    let add =
        |settings: PrimaryController<Site>| settings.add_to(&manager).map(drop).map_err(|error| error.to_string());
    let zero = add(world.controller().resync(std::time::Duration::ZERO));
    assert_eq!(zero.unwrap_err(), "resync is 0ns, but must be longer than zero");
    let none = add(world.controller().max_concurrent_reconciles(0));
    assert_eq!(none.unwrap_err(), "max_concurrent_reconciles is 0, but must be at least 1");
    let never = add(world.controller().reconcile_timeout(std::time::Duration::ZERO));
    assert_eq!(never.unwrap_err(), "reconcile_timeout is 0ns, but must be longer than zero");
    add(world.controller()).unwrap();
    let twice = add(world.controller());
    assert_eq!(twice.unwrap_err(), "name \"sites\" is the name of another component of the manager");
    assert_eq!(manager.controller::<homeostat_objects::ObjectKey>("sites").unwrap().name(), "sites");
}

#[test]
fn the_retry_policy_decides_after_a_failure() {
    let world = World::new(2);
    world.bare_pages().create(&page("a-x", "here first")).unwrap();
    world.sites().create(&site("a", &[("x", "one")])).unwrap();
    let started = world.start(|settings| settings);
    started.failing("a");
    // The backoff has a floor.
    assert_eq!(started.handle.enqueue(key("a")), EnqueueOutcome::Held);
    started.stop();
    let started = world.start(|settings| settings.retry(Exponential::default().max_retries(0)));
    until!(if started.handle.parked().len() == 1 { Ok(()) } else { Err("it is not given up".to_owned()) });
    started.stop();
}

#[test]
fn a_reconciler_can_be_called_in_a_test() {
    let cx = Context::detached();
    let cx = PrimaryContext::new(&cx, Operation::Put);
    let reconciler = |cx: &PrimaryContext<'_>, _: &Site| -> Result<Action, BoxError> {
        assert_eq!((cx.operation(), cx.attempt()), (Operation::Put, 1));
        Ok(Action::await_change())
    };
    let called = PrimaryReconciler::sync(&reconciler, &cx, &site("a", &[])).unwrap();
    assert_eq!(called, Action::await_change());
    PrimaryReconciler::<Site>::gone(&reconciler, &cx, &key("a")).unwrap();
    let names = [
        Operation::Put,
        Operation::Delete,
        Operation::Purge,
        Operation::Secondary,
        Operation::Resync,
        Operation::Other,
    ];
    assert_eq!(names.map(|name| name.to_string()).join(" "), "put delete purge secondary resync other");
    let world = World::new(1);
    assert!(
        format!("{:?} {:?} {cx:?}", world.controller(), world.pages())
            .starts_with("PrimaryController { name: \"sites\"")
    );
    assert!(world.pages().api().client().get(&Site::KIND, &site("a", &[]).key()).is_err());
}

/// Another writer changes a page between read and write, twice.
#[test]
fn a_conflict_is_retried_promptly_and_is_not_a_failure() {
    for world in World::both() {
        let started = world.start(|settings| settings);
        let mut a = world.sites().create(&site("a", &[("x", "one")])).unwrap();
        world.until_pages(&[("a-x", "one")]);
        world.until_echoed(&started, &["a"]);
        let mut left = 2;
        world.of_pages.before(move |verb, object| {
            let conflicts = verb == "update" && *object.key() == page_key("a-x") && left > 0;
            left -= i32::from(conflicts);
            let reason = "it has changed".to_owned();
            conflicts.then(|| ClientError::conflict(object.clone(), reason))
        });
        a.pages = site("", &[("x", "two")]).pages;
        world.sites().update(&a).unwrap();
        for conflicts in 1..=2 {
            until!(if started.handle.metrics().runs.requeues == conflicts {
                Ok(())
            } else {
                Err("no requeue".to_owned())
            });
            until!(if started.handle.queue().metrics().delayed == 1 {
                Ok(())
            } else {
                Err("it does not wait".to_owned())
            });
            world.until_pages(&[("a-x", "one")]);
            world.clock.advance(SECOND);
        }
        world.until_pages(&[("a-x", "two")]);
        assert_eq!((started.handle.metrics().runs.errors(), started.handle.failing()), (0, vec![]));
        started.stop();
    }
}
