//! Checks the manifests and licences of the published crates, beyond the checks of `cargo publish`.

use std::fs;
use std::path::Path;

#[test]
fn each_published_crate_has_its_licences_and_documents_all_features() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut faults = Vec::new();
    for folder in crates.chain([root.to_owned()]) {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let docs = manifest.split("[package.metadata.docs.rs]\n").nth(1).unwrap_or_default();
        let docs = docs.split("\n[").next().unwrap();
        let mut needs = |is_met: bool, need: &str| {
            if !is_met {
                faults.push(format!("{}: {need}", folder.display()));
            }
        };
        needs(docs.contains("all-features = true"), "docs.rs must show all features");
        needs(docs.contains(r#"rustdoc-args = ["--cfg", "docsrs"]"#), "docs.rs must name the feature of each item");
        let library = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        needs(library.contains("#![cfg_attr(docsrs, feature(doc_cfg))]"), "lib.rs must enable `doc_cfg` on docs.rs");
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let text = fs::read_to_string(folder.join(licence)).unwrap_or_default();
            needs(text == fs::read_to_string(root.join(licence)).unwrap(), licence);
        }
        for inherited in ["version", "edition", "rust-version", "license"] {
            needs(manifest.contains(&format!("\n{inherited}.workspace = true\n")), inherited);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
