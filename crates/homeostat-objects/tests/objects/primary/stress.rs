//! Threads change, delete and purge sites, pages and themes while a controller runs. At the end everything matches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use homeostat::{Action, BoxError, Exponential, Manager};
use homeostat_objects::{
    Api, DeleteOptions, ObjectMeta, Ownership, PrimaryContext, PrimaryController, Query, Secondary,
};
use parking_lot::Mutex;

use super::world::{Page, Site, World, key, page, page_key, site};
use crate::waits::until;

const SITES: [&str; 4] = ["a", "b", "c", "d"];
const STEPS: usize = 60;

/// Pseudo-random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }
}

/// The desired pages of all sites.
fn wanted(sites: &Api<Site>) -> BTreeMap<String, String> {
    let sites = sites.list(&Query::all()).unwrap().items;
    let pages = sites.iter().flat_map(|site| site.pages.iter().map(move |page| (&site.metadata.name, page)));
    pages.map(|(site, (page, text))| (format!("{site}-{page}"), text.clone())).collect()
}

fn change_sites(sites: &Api<Site>, names: &[&str], dice: &mut Dice) {
    for step in 0..STEPS {
        let name = names[dice.below(names.len())];
        let text = format!("text {step}");
        let pages: Vec<_> =
            ["x", "y", "z"].into_iter().filter(|_| dice.below(2) == 0).map(|page| (page, &*text)).collect();
        let desired = site(name, &pages);
        // Other threads do the same: the site may be gone or exist again.
        let _ = match (dice.below(4), sites.get(&key(name))) {
            (0, Ok(_)) => sites.delete(&key(name), &DeleteOptions::default()).map(drop),
            (1, Ok(_)) => sites.purge(&key(name)),
            (_, Ok(known)) => sites.update(&Site { metadata: known.metadata, ..desired }).map(drop),
            (_, Err(_)) => sites.create(&desired).map(drop),
        };
    }
}

fn meddle(pages: &Api<Page>, dice: &mut Dice) {
    for step in 0..STEPS {
        let items = pages.list(&Query::all()).unwrap().items;
        if items.is_empty() {
            thread::yield_now();
            continue;
        }
        let mut found = items[dice.below(items.len())].clone();
        if found.metadata.name == "foreign" {
            continue;
        }
        let at = found.metadata.key();
        let _ = match dice.below(4) {
            0 => pages.delete(&at, &DeleteOptions::default()).map(drop),
            1 => pages.purge(&at),
            2 => {
                found.text = format!("by hand {step}");
                pages.update(&found).map(drop)
            }
            _ => {
                found.metadata.labels.clear();
                pages.update(&found).map(drop)
            }
        };
    }
}

/// Checks that no two runs of a site overlap.
#[derive(Default)]
struct Alone(Mutex<BTreeMap<String, bool>>);

impl Alone {
    fn enter(&self, name: &str) {
        assert!(!self.0.lock().insert(name.to_owned(), true).unwrap_or(false), "two runs of {name}");
    }

    fn leave(&self, name: &str) {
        self.0.lock().insert(name.to_owned(), false);
    }
}

fn storm(clients: usize, seed: u64) {
    let world = World::new(clients);
    let (sites, pages) = (world.sites(), world.bare_pages());
    pages.create(&page("foreign", "nobody's")).unwrap();
    let secondary = Secondary::new(pages.clone());
    let (of_sync, alone) = (secondary.clone(), Arc::new(Alone::default()));
    let watched = Arc::clone(&alone);
    let sync = move |cx: &PrimaryContext<'_>, site: &Site| -> Result<Action, BoxError> {
        watched.enter(&site.metadata.name);
        let made = site.pages.iter().try_fold(Vec::new(), |mut keep, (name, text)| {
            let page = page(&format!("{}-{name}", site.metadata.name), text);
            keep.push(of_sync.ensure(cx, site, page)?.object().metadata.key());
            Ok::<_, BoxError>(keep)
        });
        let pruned = made.and_then(|keep| Ok(of_sync.prune(cx, site, keep)?));
        watched.leave(&site.metadata.name);
        pruned.map(|_| Action::await_change())
    };
    // On the system's clock, with short retries and without a resync.
    let manager = Manager::builder().threads(3).build().unwrap();
    let handle = PrimaryController::new("sites", sites.clone(), sync)
        .secondary(&secondary)
        .max_concurrent_reconciles(3)
        .retry(Exponential::new(Duration::from_millis(1), Duration::from_millis(20)))
        .resync(Duration::from_secs(3600))
        .add_to(&manager)
        .unwrap();
    let running = manager.start().unwrap();
    thread::scope(|scope| {
        for thread in 0..3 {
            let (sites, pages) = (&sites, &pages);
            scope.spawn(move || {
                let mut dice = Dice(seed * 10 + thread);
                match thread {
                    0 => change_sites(sites, &SITES[..3], &mut dice),
                    1 => change_sites(sites, &SITES[1..], &mut dice),
                    _ => meddle(pages, &mut dice),
                }
            });
        }
    });
    // Watches deliver in order: after this change, all earlier ones have arrived.
    sites.create(&site("last", &[("x", "the last")])).unwrap();
    let last = page_key("last-x");
    let is_made = || pages.get(&last).ok();
    until!(is_made().map(drop).ok_or_else(|| format!("no last page; {:?}", handle.status())));
    let made = pages.get(&last).unwrap();
    pages.purge(&last).unwrap();
    let is_new = || is_made().filter(|page| page.metadata.uid != made.metadata.uid);
    until!(is_new().map(drop).ok_or_else(|| format!("no new last page; {:?}", handle.status())));
    for name in SITES {
        handle.wait(&key(name), Duration::from_secs(60)).unwrap();
    }
    let mut expected = wanted(&sites);
    expected.insert("foreign".to_owned(), "nobody's".to_owned());
    assert_eq!(world.texts(), expected, "seed {seed}");
    for page in pages.list(&Query::all()).unwrap().items {
        let owner = Ownership::new().owner_key(&page.metadata, &<Site as homeostat_objects::Object>::KIND);
        let name = owner.map_or_else(|| "foreign".to_owned(), |owner| owner.name().to_owned());
        assert!(page.metadata.name.starts_with(&name), "{name}: {page:?}");
    }
    let foreign = pages.get(&homeostat_objects::ObjectKey::new("pages", "foreign")).unwrap();
    assert_eq!(foreign.metadata.labels, ObjectMeta::default().labels);
    manager.stop();
    running.join().unwrap();
    // If two runs of one site overlap, they panic.
    assert_eq!(handle.metrics().runs.panics, 0);
}

#[test]
fn all_is_in_step_after_a_storm_in_one_client() {
    storm(1, 1);
}

#[test]
fn all_is_in_step_after_a_storm_in_two_clients() {
    storm(2, 2);
}
