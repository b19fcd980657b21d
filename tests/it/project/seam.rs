//! The kits that other crates build on: `homeostat::rt` for authors of engines and sources, `homeostat_objects::store`
//! for authors of back ends. They re-export a few names, and define none. The compiler checks that a crate uses only
//! public items of others.

use super::tidy::{Source, read};

/// Checks a kit, which is one file.
fn check(folder: &str, file: &str, names: std::ops::RangeInclusive<usize>) {
    let (path, text) = read(folder).into_iter().find(|(path, _)| path == file).unwrap();
    let kit = Source::new(&path, &text);
    let exported = kit.re_exports(&["pub use "]);
    assert!(names.contains(&exported.len()), "{folder}/{file}: {} names, not {names:?}: {exported:?}", exported.len());
    assert_eq!(kit.definitions().collect::<Vec<_>>(), [], "{folder}/{file} defines items");
    assert_eq!(kit.re_exports(&["pub(crate) use ", "pub(super) use "]), [], "{folder}/{file}");
}

#[test]
fn the_kit_for_engines_has_few_names_and_no_items_of_its_own() {
    check("src", "rt/mod", 20..=35);
}

#[test]
fn the_kit_for_back_ends_has_few_names_and_no_items_of_its_own() {
    check("crates/homeostat-objects/src", "store", 10..=20);
}
