//! Checks that the pages of the guide, which are in several crates, form the one order that the index lists.

use std::fs;
use std::path::Path;

/// A page: its crate and its name.
type Page = (String, String);

/// Returns the page that a link of a page in the crate `own` leads to.
fn target(link: &str, own: &str) -> Page {
    if let Some(path) = link.strip_prefix("https://docs.rs/") {
        let [name, "latest", library, "guide", page, "index.html"] = path.split('/').collect::<Vec<_>>()[..] else {
            panic!("{link} leads to no page of the guide");
        };
        assert_eq!(name.replace('-', "_"), library, "{link}");
        return (name.to_owned(), page.to_owned());
    }
    let (library, page) = link.split_once("::guide::").unwrap_or_else(|| panic!("{link} leads to no page"));
    (if library == "crate" { own.to_owned() } else { library.replace('_', "-") }, page.to_owned())
}

/// Returns the link after a word in the last line of a page.
fn link<'a>(last: &'a str, word: &str) -> Option<&'a str> {
    last.split_once(&format!("{word}: ["))?.1.split_once("](")?.1.split(')').next()
}

#[test]
fn the_pages_of_the_guide_form_the_order_of_its_index() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let index = fs::read_to_string(root.join("src/guide/mod.rs")).unwrap();
    let rows = index.lines().filter_map(|line| line.strip_prefix("//! | [`")?.split_once("`] | `"));
    let pages: Vec<Page> =
        rows.map(|(page, rest)| (rest.split('`').next().unwrap().to_owned(), page.to_owned())).collect();
    let folder = |name: &str| match name {
        "homeostat" => root.join("src/guide"),
        upper => root.join("crates").join(upper).join("src/guide"),
    };

    for (at, (name, page)) in pages.iter().enumerate() {
        let text = fs::read_to_string(folder(name).join(page).with_extension("md"));
        let text = text.unwrap_or_else(|error| panic!("{page} of {name}: {error}"));
        let last = text.lines().next_back().unwrap();
        let neighbour = |word| link(last, word).map(|link| target(link, name));
        assert_eq!(neighbour("Previous"), at.checked_sub(1).map(|at| pages[at].clone()), "before {page}");
        assert_eq!(neighbour("Next"), pages.get(at + 1).cloned(), "after {page}");
    }

    let crates = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src/guide"));
    let files = crates.chain([root.join("src/guide")]).filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let files = files.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|kind| kind == "md"));
    assert_eq!(files.count(), pages.len(), "the index lists each page");
}

#[test]
fn the_pages_name_the_versions_of_the_clients_in_the_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let installed = read(".ci/clients.txt");
    let pages = read("crates/homeostat-serve/src/guide/clients.md") + &read("crates/homeostat-nats/src/guide/nats.md");
    let pages = pages.replace('`', "");
    let python = ["kubernetes", "kopf", "kr8s", "lightkube", "easykube", "nats-py"].map(|name| (name, "=="));
    for (name, sign) in python.into_iter().chain([("@kubernetes/client-node", "@")]) {
        let version = installed.lines().find_map(|line| line.split_once(&format!(" {name}{sign}")));
        let (_, version) = version.unwrap_or_else(|| panic!("{name} is not installed"));
        let (short, _) = version.rsplit_once('.').unwrap();
        assert!(pages.contains(&format!("{name} {short} ")), "no page names {name} {short}");
    }
}
