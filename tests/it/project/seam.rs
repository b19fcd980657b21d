//! The seams between rooms that are to be crates: upper rooms use public items of the core, which include its kit `rt`,
//! and of the objects, which include their kit `store`.

use std::collections::BTreeSet;

use super::tidy::{Source, assert_tidy, is_in, read_crates, room};

/// The rooms of the core.
const CORE: [&str; 6] = ["base", "queue", "run", "watch", "controller", "manager"];

/// The most names in the kit.
const MOST_NAMES: usize = 35;

/// Private items of the core that rooms above it use.
const BORROWED: [&str; 1] = [
    // Locks and atomics that the model checker and the check of the order of locks can follow.
    "base/sync",
];

/// The most names in the kit for authors of back ends.
const MOST_STORE_NAMES: usize = 20;

/// Returns the uses of private items of some rooms (`below`) in rooms above them, one line each.
fn faults(sources: &[Source], below: &[&str]) -> Vec<String> {
    let modules: BTreeSet<_> = sources.iter().map(|source| source.module().join("/")).collect();
    let roots = || sources.iter().filter(|source| below.contains(&source.module().join("/").as_str()));
    let hidden = roots().flat_map(|source| source.re_exports(&["pub(crate) use "]));
    let hidden: BTreeSet<_> = hidden.map(|(name, _)| name).collect();
    let public: BTreeSet<_> = roots().flat_map(Source::public_modules).collect();
    let mut faults = Vec::new();
    for source in sources {
        let own = room(&source.path);
        if below.contains(&own)
            || ["base", "queue", "run", "watch", "controller", "manager", "rt", "lib"].contains(&own)
        {
            continue;
        }
        if source.is_test() {
            continue;
        }
        for (number, used) in source.paths() {
            let item: Vec<_> = used.split('/').take(2).collect();
            let item = item.join("/");
            let is_private =
                item.contains('/') && (modules.contains(&item) || hidden.contains(&item)) && !public.contains(&item);
            if below.contains(&room(&used)) && is_private && !BORROWED.iter().any(|borrowed| is_in(&used, borrowed)) {
                let used = used.replace('/', "::");
                faults.push(format!("src/{}.rs:{number}: uses `{used}`, which is private to its room", source.path));
            }
        }
    }
    faults
}

fn sources() -> Vec<Source> {
    read_crates().iter().map(|(path, text)| Source::new(path, text)).collect()
}

#[test]
fn rooms_above_the_core_use_its_public_items() {
    assert_tidy(&faults(&sources(), &CORE));
}

#[test]
fn rooms_above_the_objects_use_their_public_items() {
    assert_tidy(&faults(&sources(), &["objects", "sub"]));
}

#[test]
fn the_kit_has_few_names_and_no_items_of_its_own() {
    let sources = sources();
    let kit: Vec<_> = sources.iter().filter(|source| room(&source.path) == "rt").collect();
    let names: Vec<_> = kit.iter().flat_map(|source| source.re_exports(&["pub use "])).collect();
    assert!((20..=MOST_NAMES).contains(&names.len()), "{} names, of at most {MOST_NAMES}: {names:?}", names.len());
    for source in kit {
        assert_eq!(source.definitions().collect::<Vec<_>>(), [], "src/{}.rs defines items", source.path);
        assert_eq!(source.re_exports(&["pub(crate) use ", "pub(super) use "]), [], "src/{}.rs", source.path);
    }
}

#[test]
fn the_kit_for_back_ends_has_few_names_and_no_items_of_its_own() {
    let sources = sources();
    let kit = sources.iter().find(|source| source.path == "objects/store").unwrap();
    let names = kit.re_exports(&["pub use "]);
    assert!((10..=MOST_STORE_NAMES).contains(&names.len()), "{} names, of at most {MOST_STORE_NAMES}", names.len());
    assert_eq!(kit.definitions().collect::<Vec<_>>(), [], "src/objects/store.rs defines items");
}

#[test]
fn uses_of_private_items_are_found() {
    let core = |path: &str, text: &str| Source::new(path, text);
    let sources = [
        core("queue/mod", "mod shared;\npub use self::shared::WorkQueue;\npub(crate) use self::shared::Locked;"),
        core("queue/shared", "pub struct WorkQueue;\npub(crate) struct Locked;"),
        core("base/sync", ""),
        core("run/mod", "use crate::queue::Locked;\nuse crate::queue::shared::WorkQueue;"),
        core("objects/one", "use crate::base::sync::Mutex;\nuse crate::queue::{Locked, WorkQueue};"),
        core("objects/two", "use crate::queue::shared::{self, WorkQueue};\nuse super::one::Thing;"),
    ];
    let expected = [
        "src/objects/one.rs:2: uses `queue::Locked`, which is private to its room",
        "src/objects/two.rs:1: uses `queue::shared::self`, which is private to its room",
        "src/objects/two.rs:1: uses `queue::shared::WorkQueue`, which is private to its room",
    ];
    assert_eq!(faults(&sources, &CORE), expected);

    let sources = [
        core("objects/mod", "mod client;\npub mod store;\npub use self::client::Client;"),
        core("objects/client", ""),
        core("objects/store", ""),
        core("nats/one", "use crate::objects::{Client, client::Delete, store::Location};"),
    ];
    assert_eq!(
        faults(&sources, &["objects"]),
        ["src/nats/one.rs:1: uses `objects::client::Delete`, which is private to its room"]
    );
}
