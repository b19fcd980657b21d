//! The size of the core: its lines, the features that it names, and the files that a key and a stop pass.
//!
//! The bounds may only fall. `.ci/core` prints the figures, and those that need a build.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use super::tidy::{Source, read, room};

const ROOMS: [&str; 7] = ["base", "queue", "run", "watch", "controller", "manager", "rt"];

/// The most lines of code that a build without features compiles.
const MOST_LINES: usize = 14_816;

/// The most public types and traits, with all features. Aliases of other types do not count.
const MOST_TYPES: usize = 119;

/// The most files that a section of `ARCHITECTURE.md` about a path names.
const MOST_FILES: [(&str, usize); 2] = [("The path of a key", 29), ("The path of a stop", 29)];

/// The feature of the core itself.
const CORE_FEATURES: [&str; 1] = ["signals"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the text without line comments, and with `"…"` in place of each string.
fn without_comments(text: &str) -> String {
    let (mut code, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            code.push_str("\"…\"");
            let mut is_escaped = false;
            let end = rest.char_indices().skip(1).find(|(_, c)| {
                let ends = *c == '"' && !is_escaped;
                is_escaped = *c == '\\' && !is_escaped;
                ends
            });
            end.map_or(rest.len(), |(at, _)| at + 1)
        } else if let Some(length) = ["'\"'", "'{'", "'}'", "'('", "')'", "'['", "']'"]
            .iter()
            .find_map(|quoted| rest.starts_with(quoted).then_some(3))
        {
            length
        } else {
            code.push(first);
            first.len_utf8()
        };
        rest = &rest[skipped..];
    }
    code
}

/// Returns whether an attribute excludes its item from a default build: a test, a model or a feature.
fn excludes(line: &str) -> bool {
    let condition = line.trim_start().strip_prefix("#[cfg(").unwrap_or_default();
    let condition = condition.strip_prefix("all(").or(condition.strip_prefix("any(")).unwrap_or(condition);
    ["test", "loom", "feature", "doc"].iter().any(|name| condition.starts_with(name))
}

/// Counts the lines of code that a build without features compiles.
fn count_lines(text: &str) -> usize {
    let code = without_comments(text);
    let mut lines = code.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        if !excludes(line) {
            count += 1;
            continue;
        }
        while lines.next_if(|line| line.starts_with("#[")).is_some() {}
        let (mut depth, mut has_body) = (0, false);
        for line in lines.by_ref() {
            has_body |= line.contains('{');
            let count = |brackets: &[char]| i32::try_from(line.matches(brackets).count()).unwrap();
            depth += count(&['(', '[', '{']) - count(&[')', ']', '}']);
            if depth <= 0 && (has_body || line.ends_with([';', ','])) {
                break;
            }
        }
    }
    count
}

fn count_features(text: &str) -> usize {
    let names = text.split("feature = \"").skip(1).filter_map(|rest| rest.split('"').next());
    names.filter(|name| !CORE_FEATURES.contains(name)).count()
}

/// Returns the source files that a section of `ARCHITECTURE.md` names.
fn files_in_section(title: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, section) = text.split_once(&format!("\n## {title}\n")).unwrap_or_else(|| panic!("no section {title:?}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    section
        .split('`')
        .filter(|word| Path::new(word).extension().is_some_and(|extension| extension == "rs"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_core_stays_within_its_bounds() {
    let (mut lines, mut features) = (0, 0);
    let mut out = io::stdout().lock();
    let sources: Vec<_> = read("src").into_iter().filter(|(path, text)| !Source::new(path, text).is_test()).collect();
    for name in ROOMS {
        let (mut room_lines, mut room_features) = (0, 0);
        for (_, text) in sources.iter().filter(|(path, _)| room(path) == name) {
            room_lines += count_lines(text);
            room_features += count_features(text);
        }
        writeln!(out, "{name}: {room_lines} lines, {room_features} names of other features").unwrap();
        (lines, features) = (lines + room_lines, features + room_features);
    }
    writeln!(out, "core: {lines} lines, {features} names of other features").unwrap();
    assert!(lines > 5_000, "the files of the core were not found");
    assert!(lines <= MOST_LINES, "{lines} lines of the core, the bound is {MOST_LINES}");
    assert_eq!(features, 0, "the core names features of other rooms");
}

#[test]
fn the_core_has_few_public_types() {
    let sources: Vec<_> = read("src").into_iter().map(|(path, text)| Source::new(&path, &text)).collect();
    let is_face = |source: &&Source| {
        let (room, file) = source.path.split_once('/').unwrap_or_default();
        (ROOMS.contains(&room) || room == "export") && file == "mod"
    };
    let types = |source: &Source, keywords: &[&str]| -> BTreeSet<String> {
        let public = source.lines().filter_map(|line| line.strip_prefix("pub ")?.split_once(' '));
        let names = public.filter(|(keyword, _)| keywords.contains(keyword));
        names.filter_map(|(_, rest)| rest.split(|c: char| !c.is_alphanumeric()).next().map(str::to_owned)).collect()
    };
    let mut names = BTreeSet::new();
    for source in sources.iter().filter(is_face) {
        names.extend(types(source, &["struct", "enum", "trait"]));
        let re_exports = source.re_exports(&["pub use "]).into_iter();
        names.extend(re_exports.filter_map(|(_, path)| path.rsplit('/').next().map(str::to_owned)));
    }
    for source in &sources {
        let aliases = types(source, &["type"]);
        names.retain(|name| !aliases.contains(name));
    }
    // Functions and constants.
    names.retain(|name| name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase));
    writeln!(io::stdout().lock(), "public types: {}", names.len()).unwrap();
    assert!(names.contains("WorkQueue") && names.contains("Gate"), "the public types were not found");
    assert!(names.len() <= MOST_TYPES, "{} public types, the bound is {MOST_TYPES}: {names:?}", names.len());
}

#[test]
fn a_key_and_a_stop_pass_few_files() {
    let mut out = io::stdout().lock();
    for (title, most) in MOST_FILES {
        let files = files_in_section(title);
        for file in &files {
            assert!(root().join("src").join(file).is_file(), "{title:?} names src/{file}, which does not exist");
        }
        writeln!(out, "{title}: {} files", files.len()).unwrap();
        assert!(!files.is_empty() && files.len() <= most, "{title:?} names {} files: {files:#?}", files.len());
    }
}

#[test]
fn only_code_of_a_default_build_is_counted() {
    let text = "
        // A comment.
        fn counted() { // 1
            let text = \"// { not a comment\"; // 2
        } // 3
        #[cfg(feature = \"serve\")]
        #[expect(dead_code)]
        fn of_a_feature(
            argument: u8,
        ) -> u8 {
            argument
        }
        #[cfg(test)]
        mod tests;
        struct Counted { // 4
            #[cfg(any(test, feature = \"testing\"))]
            field: Vec<(u8, u8)>,
            other: u8, // 5
        } // 6
        #[cfg(unix)] // 7
        fn portable() {} // 8
    ";
    assert_eq!(count_lines(text), 8);
    assert_eq!(count_features(text), 2);
    assert_eq!(count_features("#[cfg(feature = \"signals\")]"), 0);
}
