//! The seam between the core and the rooms above it: they use public items of the core, which include its kit `rt`.

use std::collections::BTreeSet;

use super::tidy::{Source, assert_tidy, is_in, read, room};

/// The rooms of the core.
const CORE: [&str; 6] = ["base", "queue", "run", "watch", "controller", "manager"];

/// The most names in the kit.
const MOST_NAMES: usize = 35;

/// Private items of the core that rooms above it use.
const BORROWED: [&str; 1] = [
    // Locks and atomics that the model checker and the check of the order of locks can follow.
    "base/sync",
];

/// Returns the uses of private items of the core in rooms above it, one line each.
fn faults(sources: &[Source]) -> Vec<String> {
    let modules: BTreeSet<_> = sources.iter().map(|source| source.module().join("/")).collect();
    let of_core = |source: &&Source| CORE.contains(&source.module().join("/").as_str());
    let hidden = sources.iter().filter(of_core).flat_map(|source| source.re_exports(&["pub(crate) use "]));
    let hidden: BTreeSet<_> = hidden.map(|(name, _)| name).collect();
    let mut faults = Vec::new();
    for source in sources {
        let own = room(&source.path);
        if CORE.contains(&own) || ["rt", "lib"].contains(&own) || source.is_test() {
            continue;
        }
        for (number, used) in source.paths() {
            let item: Vec<_> = used.split('/').take(2).collect();
            let item = item.join("/");
            let is_private = item.contains('/') && (modules.contains(&item) || hidden.contains(&item));
            if CORE.contains(&room(&used)) && is_private && !BORROWED.iter().any(|borrowed| is_in(&used, borrowed)) {
                let used = used.replace('/', "::");
                faults.push(format!("src/{}.rs:{number}: uses `{used}`, which is private to the core", source.path));
            }
        }
    }
    faults
}

fn sources() -> Vec<Source> {
    read("src").iter().map(|(path, text)| Source::new(path, text)).collect()
}

#[test]
fn rooms_above_the_core_use_its_public_items() {
    assert_tidy(&faults(&sources()));
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
        "src/objects/one.rs:2: uses `queue::Locked`, which is private to the core",
        "src/objects/two.rs:1: uses `queue::shared::self`, which is private to the core",
        "src/objects/two.rs:1: uses `queue::shared::WorkQueue`, which is private to the core",
    ];
    assert_eq!(faults(&sources), expected);
}
