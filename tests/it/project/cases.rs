//! Checks that `peers/cases.md` names tests that exist.

use std::fs;
use std::path::Path;

#[test]
fn the_table_of_peers_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names =
        include_str!("../peers/cases.md").split('`').skip(1).step_by(2).filter_map(|name| name.split_once("::"));
    let mut count = 0;
    for (file, test) in names {
        let source = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(source.contains(&format!("fn {test}(")), "{file} has no test {test}");
        count += 1;
    }
    assert!(count > 40, "the table has lost its tests: {count}");
}
