//! The rules of the architecture: the layers of rooms, circles of files, names reserved to one file, the length of
//! files, and names that no file may have.
//!
//! The test reads text, not syntax. Comments and test modules do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The floors: a room (a folder of `src`) may use rooms of lower floors. Rooms of one floor do not use each other.
const FLOORS: [&[&str]; 10] = [
    &["base"],
    &["queue"],
    &["run"],
    &["watch"],
    &["controller"],
    // The room `rt` re-exports names of lower rooms for higher ones.
    &["manager", "rt"],
    &["export", "host", "objects", "net"],
    &["sub", "kubernetes", "nats", "serve"],
    &["testing"],
    &["guide"],
];

/// The root of the crate. It may use all rooms.
const ROOT: &str = "lib";

/// Names that only one file or folder may use, and that file or folder.
const RESERVED: [(&str, &str); 7] = [
    ("thread::spawn", "base/thread"),
    ("thread::scope", "base/thread"),
    ("thread::Builder", "base/thread"),
    ("Instant::now", "base/clock"),
    ("SystemTime::now", "base/clock"),
    ("thread::sleep", "base/clock"),
    ("parking_lot", "base/sync"),
];

/// Files and folders of plain values. They must not use the modules of `NOT_PURE`: locks, clocks and threads.
const PURE: [&str; 33] = [
    "queue/state",
    "queue/request",
    "queue/report",
    "queue/wheel",
    "queue/index",
    "queue/lists",
    "queue/levels",
    "queue/slab",
    "queue/records",
    "watch/event",
    "watch/event_buffer",
    "watch/predicate",
    "objects/lease/machine",
    "objects/lease/timing",
    "objects/persistent",
    "objects/rules",
    "objects/memory/labels",
    "objects/memory/state",
    "kubernetes/http/answer",
    "kubernetes/client/decode",
    "kubernetes/http/path",
    "kubernetes/http/retry",
    "kubernetes/config/proxy",
    "objects/watch/machine",
    "nats/protocol",
    "nats/connection/state",
    "nats/connection/pool",
    "nats/kv/ordered",
    "nats/objects/delivered",
    "serve/http/head",
    "serve/http/parser",
    "serve/http/target",
    "serve/server/hosts",
];
const NOT_PURE: [&str; 7] =
    ["base/sync", "base/thread", "base/cancel", "base/clock", "base/wait", "base/group", "queue/shared"];

/// The beginnings of re-exports.
const RE_EXPORTS: [&str; 3] = ["pub use ", "pub(crate) use ", "pub(super) use "];

const MOST_LINES: usize = 450;

/// A source file: its path under `src` without `.rs`, and its lines without comments and tests.
pub(crate) struct Source {
    pub(crate) path: String,
    total: usize,
    lines: Vec<(usize, String)>,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let mut lines = Vec::new();
        let mut test_follows = false;
        for (number, line) in (1..).zip(text.lines()) {
            let code = line.split("//").next().unwrap_or_default().trim_end();
            let trimmed = code.trim_start();
            if test_follows && trimmed.starts_with("mod ") && trimmed.ends_with('{') {
                // Tests are the last item of a file.
                break;
            }
            test_follows = (test_follows && trimmed.is_empty())
                || (trimmed.starts_with("#[cfg(") && trimmed.contains("test") && !trimmed.contains("not(test"));
            if !trimmed.is_empty() {
                lines.push((number, code.to_owned()));
            }
        }
        Self { path: path.to_owned(), total: text.lines().count(), lines }
    }

    /// Returns the lines without comments and tests.
    pub(crate) fn code(&self) -> Vec<&str> {
        self.lines.iter().map(|(_, line)| line.as_str()).collect()
    }

    /// Returns whether the file has test code only.
    pub(crate) fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "models")
    }

    /// Returns the module of the file.
    pub(crate) fn module(&self) -> Vec<&str> {
        let mut module: Vec<_> = self.path.split('/').collect();
        if matches!(module.last(), Some(&"mod" | &"lib")) {
            module.pop();
        }
        module
    }

    /// Returns the lines without comments and tests.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|(_, line)| line.as_str())
    }

    /// Returns the paths of the crate that the file uses, with their line numbers.
    pub(crate) fn paths(&self) -> Vec<(usize, String)> {
        let mut paths = Vec::new();
        // A re-export is not a use.
        let is_re_export = |line: &str| line.starts_with("pub") && line.contains(" use ");
        let used = self.lines.iter().enumerate().filter(|(_, (_, line))| !is_re_export(line));
        for (at, (number, line)) in used {
            for start in ["crate::", "super::", "self::"] {
                for (offset, _) in line.match_indices(start) {
                    let before = line[..offset].chars().next_back();
                    if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$') {
                        continue;
                    }
                    // A group of names may continue on the next lines.
                    let rest: String =
                        self.lines[at..].iter().map(|(_, line)| line.trim()).collect::<Vec<_>>().join(" ");
                    let from = rest.find(&line[offset..]).unwrap_or(0);
                    paths.extend(self.resolve(&rest[from..]).into_iter().map(|path| (*number, path)));
                }
            }
        }
        paths
    }

    /// Returns the names of the types and traits that the file defines, with their line numbers.
    pub(crate) fn definitions(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines.iter().filter_map(|(number, line)| {
            let item = line.trim_start();
            let item =
                item.strip_prefix("pub").map_or(item, |rest| rest.split_once(' ').map_or(rest, |(_, item)| item));
            let (keyword, rest) = item.split_once(' ')?;
            // An indented `type` belongs to a trait.
            let defines = ["struct", "enum", "trait", "union"].contains(&keyword)
                || (keyword == "type" && !line.starts_with(' '));
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            defines.then_some((*number, &rest[..end]))
        })
    }

    /// Returns the re-exports of the file that begin with one of these texts: the new path of each name, and its
    /// target.
    pub(crate) fn re_exports(&self, starts: &[&str]) -> Vec<(String, String)> {
        let module = self.module().join("/");
        let mut found = Vec::new();
        for (at, (_, line)) in self.lines.iter().enumerate() {
            let Some(start) = starts.iter().find_map(|text| line.strip_prefix(text)) else {
                continue;
            };
            let rest = self.lines[at + 1..].iter().map(|(_, line)| line.trim());
            let text = std::iter::once(start).chain(rest).collect::<Vec<_>>().join(" ");
            found.extend(self.resolve(&text).into_iter().map(|path| {
                let name = path.rsplit('/').next().unwrap_or_default();
                (format!("{module}/{name}").trim_start_matches('/').to_owned(), path)
            }));
        }
        found
    }

    /// Returns the paths at the start of a text, from the root of the crate.
    fn resolve(&self, text: &str) -> Vec<String> {
        let (mut base, mut rest) = (self.module(), text);
        loop {
            if let Some(after) = rest.strip_prefix("crate::") {
                (base, rest) = (Vec::new(), after);
            } else if let Some(after) = rest.strip_prefix("super::") {
                base.pop();
                rest = after;
            } else if let Some(after) = rest.strip_prefix("self::") {
                rest = after;
            } else {
                break;
            }
        }
        let base = base.join("/");
        names(rest).into_iter().map(|name| format!("{base}/{name}").trim_start_matches('/').to_owned()).collect()
    }
}

/// Returns the paths at the start of a text, with groups expanded: `a::{b, c::d}` is `a/b` and `a/c/d`.
fn names(text: &str) -> Vec<String> {
    if let Some(group) = text.strip_prefix('{') {
        let (mut depth, mut parts, mut part) = (1, Vec::new(), String::new());
        for c in group.chars() {
            depth += match c {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            match c {
                _ if depth == 0 => break,
                ',' if depth == 1 => parts.push(std::mem::take(&mut part)),
                c => part.push(c),
            }
        }
        parts.push(part);
        return parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()).flat_map(names).collect();
    }
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    match rest.strip_prefix("::") {
        Some(rest) => match names(rest) {
            empty if empty.is_empty() => vec![name.to_owned()],
            deeper => deeper.into_iter().map(|deeper| format!("{name}/{deeper}")).collect(),
        },
        None if name.is_empty() => Vec::new(),
        None => vec![name.to_owned()],
    }
}

/// Returns the floor of a room.
fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

/// Returns the room of a path: its first part.
pub(crate) fn room(path: &str) -> &str {
    path.split('/').next().unwrap_or_default()
}

/// Returns whether a path is this file or folder, or is in it.
pub(crate) fn is_in(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The modules of the crate and their re-exports.
struct Modules {
    modules: BTreeSet<String>,
    re_exports: BTreeMap<String, String>,
}

impl Modules {
    fn new(sources: &[Source]) -> Self {
        let modules = sources.iter().map(|source| source.module().join("/")).collect();
        let re_exports = sources.iter().filter(|source| !source.is_test());
        let re_exports = re_exports.flat_map(|source| source.re_exports(&RE_EXPORTS)).collect();
        Self { modules, re_exports }
    }

    /// Returns the module that defines the item of a path. Follows re-exports.
    fn definition(&self, path: &str) -> Option<String> {
        let mut path = path.to_owned();
        for _ in 0..20 {
            let parts: Vec<_> = path.split('/').collect();
            let length = (0..=parts.len()).rev().find(|&n| self.modules.contains(&parts[..n].join("/")))?;
            let named = parts[..parts.len().min(length + 1)].join("/");
            match self.re_exports.get(&named) {
                Some(target) if *target != named => {
                    path = [target.as_str()]
                        .into_iter()
                        .chain(parts[(length + 1).min(parts.len())..].iter().copied())
                        .collect::<Vec<_>>()
                        .join("/");
                }
                _ => return Some(parts[..length].join("/")),
            }
        }
        None
    }
}

/// Returns the file of a path that `read_crates` has made.
fn file(path: &str) -> String {
    let own_room = if room(path) == "sub" { "objects" } else { room(path) };
    let Some((name, room)) = CRATES.iter().find(|(_, room)| *room == own_room) else {
        return format!("src/{path}.rs");
    };
    let rest = match path.strip_prefix(room) {
        Some("/mod") => "lib",
        Some(rest) => &rest[1..],
        None => path,
    };
    format!("crates/{}/src/{rest}.rs", name.replace('_', "-"))
}

/// Returns the violations in these sources, one line each.
fn faults(sources: &[Source]) -> Vec<String> {
    let modules = Modules::new(sources);
    let mut faults = Vec::new();
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        let Source { path, total, lines } = source;
        let file = file(path);
        let own_floor = floor(room(path));
        if own_floor.is_none() && path != ROOT {
            faults.push(format!("{file}: is in no room; put it into a folder of FLOORS in tests/it/project/tidy.rs"));
        }
        if source.is_test() {
            continue;
        }
        if *total > MOST_LINES {
            faults.push(format!("{file}: has {total} lines, of at most {MOST_LINES}"));
        }
        for (number, line) in lines {
            for (name, owner) in RESERVED {
                let own_locks = name == "parking_lot" && path.ends_with("/sync");
                if line.contains(name) && !is_in(path, owner) && !own_locks {
                    faults.push(format!("{file}:{number}: names `{name}`, which only {owner} may"));
                }
            }
        }
        let Some(own_floor) = own_floor else { continue };
        let own = source.module().join("/");
        let is_pure = PURE.iter().any(|pure| is_in(path, pure));
        for (number, used) in source.paths() {
            let mut fault = |text: String| {
                faults.push(format!("{file}:{number}: uses `{}`, {text}", used.replace('/', "::")));
            };
            let other = room(&used);
            let Some(other_floor) = floor(other) else {
                fault("which is in no room (name the module, not the crate's root)".to_owned());
                continue;
            };
            if other_floor > own_floor || (other_floor == own_floor && other != room(path)) {
                fault(format!("and {other} is on floor {other_floor}, {} on {own_floor}", room(path)));
                continue;
            }
            if is_pure && NOT_PURE.iter().any(|place| is_in(&used, place)) {
                fault(format!("but {own} is a plain value and knows no lock, clock or thread"));
                continue;
            }
            if let Some(definition) = modules.definition(&used)
                && definition != own
                && room(&definition) == room(path)
            {
                uses.entry(own.clone()).or_default().insert(definition);
            }
        }
    }
    faults.extend(circles(uses));
    faults.extend(namesakes(sources));
    faults
}

/// Returns the types that have the same name as a type in another file.
fn namesakes(sources: &[Source]) -> Vec<String> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut faults = Vec::new();
    for source in sources.iter().filter(|source| !source.is_test() && !source.path.ends_with("/sync")) {
        let path = &source.path;
        for (number, name) in source.definitions() {
            // One file may define a type once for each platform. Each crate has its README.
            let other = *first.entry(name).or_insert(path);
            if other != path && name != "Readme" {
                faults.push(format!("{}:{number}: defines `{name}`, and so does {}", file(path), file(other)));
            }
        }
    }
    faults
}

/// Returns the circles between files, one line for each room.
fn circles(mut graph: BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    // A file that uses no other file, or that no other file uses, is in no circle.
    loop {
        let used: BTreeSet<_> = graph.values().flatten().cloned().collect();
        let before = graph.len();
        let users: BTreeSet<_> = graph.keys().cloned().collect();
        graph.retain(|file, others| {
            others.retain(|other| users.contains(other));
            !others.is_empty() && used.contains(file)
        });
        if graph.len() == before {
            break;
        }
    }
    let mut rooms: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, others) in &graph {
        let others = others.iter().cloned().collect::<Vec<_>>().join(", ");
        rooms.entry(room(file).to_owned()).or_default().push(format!("{file} uses {others}"));
    }
    rooms
        .into_iter()
        .map(|(room, uses)| format!("room {room}: files use each other in a circle: {}", uses.join("; ")))
        .collect()
}

/// The crates above the core, and their rooms.
const CRATES: [(&str, &str); 7] = [
    ("homeostat_host", "host"),
    ("homeostat_objects", "objects"),
    ("homeostat_net", "net"),
    ("homeostat_kubernetes", "kubernetes"),
    ("homeostat_nats", "nats"),
    ("homeostat_serve", "serve"),
    ("homeostat_testing", "testing"),
];

/// Reads the sources of all crates as if they were one: `homeostat_nats::kv` is `crate::nats::kv`.
pub(crate) fn read_crates() -> Vec<(String, String)> {
    let mut files = read("src");
    for (name, room) in CRATES {
        for (path, text) in read(&format!("crates/{}/src", name.replace('_', "-"))) {
            let path = match path.as_str() {
                "lib" => format!("{room}/mod"),
                path if path.starts_with("sub/") => path.to_owned(),
                path if path.starts_with("guide/") => continue,
                path => format!("{room}/{path}"),
            };
            let mut text = text
                .replace("crate::sub::", "\u{1}sub::")
                .replace("$crate::", "\u{2}")
                .replace("crate::", &format!("\u{1}{room}::"));
            for (other, room) in CRATES {
                text = text
                    .replace(&format!("{other}::sub::"), "\u{1}sub::")
                    .replace(&format!("{other}::"), &format!("\u{1}{room}::"));
            }
            files.push((
                path,
                text.replace("homeostat::", "\u{1}").replace('\u{1}', "crate::").replace('\u{2}', "$crate::"),
            ));
        }
    }
    files
}

/// Reads all Rust files of a folder. The paths have no `.rs`.
pub(crate) fn read(folder: &str) -> Vec<(String, String)> {
    fn walk(folder: &Path, prefix: &str, files: &mut Vec<(String, String)>) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_dir() && name != "target" {
                walk(&entry.path(), &format!("{prefix}{name}/"), files);
            } else if let Some(stem) = name.strip_suffix(".rs") {
                files.push((format!("{prefix}{stem}"), fs::read_to_string(entry.path()).unwrap()));
            }
        }
    }
    let mut files = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), "", &mut files);
    files.sort();
    files
}

pub(crate) fn assert_tidy(faults: &[String]) {
    let mut text = String::new();
    for fault in faults {
        let _ = writeln!(text, "  {fault}");
    }
    assert!(faults.is_empty(), "{} faults:\n{text}", faults.len());
}

#[test]
fn every_file_keeps_to_its_floor() {
    let sources: Vec<_> = read_crates().iter().map(|(path, text)| Source::new(path, text)).collect();
    assert!(sources.len() > 20, "the walk found {} files", sources.len());
    assert_tidy(&faults(&sources));
}

#[test]
fn no_test_is_switched_off() {
    let mark = concat!("#[", "ignore");
    let mut found = Vec::new();
    for folder in ["src", "tests", "examples", "benches", "crates"] {
        for (path, text) in read(folder) {
            let lines = (1..).zip(text.lines()).filter(|(_, line)| line.contains(mark));
            found.extend(lines.map(|(number, _)| format!("{folder}/{path}.rs:{number}: switches a test off")));
        }
    }
    assert_tidy(&found);
}

/// Hosts of package registries. Scripts ask the machine for the registries that it uses: `.ci/debian-archive`.
const REGISTRIES: [&str; 9] = [
    concat!("debian", ".org"),
    concat!("archive.", "ubuntu.com"),
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("pypi", ".org"),
    concat!("python", "hosted.org"),
    concat!("proxy.", "golang.org"),
    concat!("registry.", "npmjs.org"),
    concat!("static.rust", "-lang.org"),
];

/// Returns the lines of a file that name the address of a package registry.
fn registries(path: &str, text: &str) -> Vec<String> {
    let named = (1..).zip(text.lines()).filter_map(|(number, line)| {
        let host = REGISTRIES.iter().find(|host| line.contains(**host))?;
        Some(format!("{path}:{number}: names the package registry {host}; ask the machine for it"))
    });
    named.collect()
}

#[test]
fn no_file_names_a_package_registry() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut folders, mut found, mut files) = (vec![root.to_path_buf()], Vec::new(), 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
            if path.is_dir() {
                // Built files, and the repository itself.
                folders.extend(Some(path).filter(|_| name != "target" && name != ".git"));
            } else if let Ok(text) = fs::read_to_string(&path) {
                found.extend(registries(&path.strip_prefix(root).unwrap().to_string_lossy(), &text));
                files += 1;
            }
        }
    }
    assert!(files > 100, "the walk found {files} files");
    found.sort();
    assert_tidy(&found);
    let script = format!("set -e\necho deb http://deb.{}/debian sid main\n", REGISTRIES[0]);
    let fault = format!(".ci/x:2: names the package registry {}; ask the machine for it", REGISTRIES[0]);
    assert_eq!(registries(".ci/x", &script), [fault]);
}

/// Each rule finds its violations, and names file and line.
#[test]
fn broken_rules_are_found() {
    let long = "fn f() {}\n".repeat(MOST_LINES + 1);
    let cases: [(&str, &str, &[&str]); 15] = [
        ("queue/state", "use super::request::EnqueueMethod;\nuse crate::base::time::Nanos;\n", &[]),
        (
            "queue/state",
            "\nuse super::shared::Shared;",
            &[
                "src/queue/state.rs:2: uses `queue::shared::Shared`, but queue/state is a plain value and knows no lock, clock or thread",
            ],
        ),
        (
            "base/clock/mod",
            "use crate::{\n    base::sync::Mutex,\n    queue::{Key, WorkQueue},\n};",
            &[
                "src/base/clock/mod.rs:1: uses `queue::Key`, and queue is on floor 1, base on 0",
                "src/base/clock/mod.rs:1: uses `queue::WorkQueue`, and queue is on floor 1, base on 0",
            ],
        ),
        (
            "queue/feed",
            "fn f() { crate::run::workers::go(); }",
            &["src/queue/feed.rs:1: uses `run::workers::go`, and run is on floor 2, queue on 1"],
        ),
        (
            "watch/poller/mod",
            "use crate::WorkQueue;",
            &[
                "src/watch/poller/mod.rs:1: uses `WorkQueue`, which is in no room (name the module, not the crate's root)",
            ],
        ),
        ("extra", "", &["src/extra.rs: is in no room; put it into a folder of FLOORS in tests/it/project/tidy.rs"]),
        (
            "run/workers/mod",
            "// thread::spawn\nfn f() { std::thread::spawn(|| {}); }",
            &["src/run/workers/mod.rs:2: names `thread::spawn`, which only base/thread may"],
        ),
        (
            "queue/mod",
            "let now = Instant::now();",
            &["src/queue/mod.rs:1: names `Instant::now`, which only base/clock may"],
        ),
        (
            "base/wait/mod",
            "use parking_lot::Condvar;",
            &["src/base/wait/mod.rs:1: names `parking_lot`, which only base/sync may"],
        ),
        ("base/wait/mod", "#[cfg(test)]\nmod tests {\n    use std::thread::spawn;\n    use crate::queue::Key;\n}", &[]),
        ("base/cancel/tests/callbacks", "use std::thread::scope;\nuse crate::run::Workers;", &[]),
        ("run/pool/mod", "//! `crate::nothing`\nuse super::Workers;\nuse crate::queue::WorkQueue;", &[]),
        (
            "objects/mod",
            "pub use crate::sub::Stash;\nuse crate::testing::Simulation;",
            &[
                "crates/homeostat-objects/src/lib.rs:2: uses `testing::Simulation`, and testing is on floor 8, objects on 6",
            ],
        ),
        (
            "sub/steps/mod",
            "use crate::kubernetes::client::Client;",
            &[
                "crates/homeostat-objects/src/sub/steps/mod.rs:1: uses `kubernetes::client::Client`, and kubernetes is on floor 7, sub on 7",
            ],
        ),
        ("base/error", &long, &["src/base/error.rs: has 451 lines, of at most 450"]),
    ];
    for (path, text, expected) in cases {
        assert_eq!(faults(&[Source::new(path, text)]), expected, "{path}: {text:.80}");
    }
}

#[test]
fn types_of_one_name_are_found() {
    let text = "pub(crate) struct Node<K> {\n}\nimpl Iterator for Node {\n    type Item = u8;\n}\ntype Item = u8;\nenum Side { A }\n";
    let platforms = "mod unix {\n    struct Side;\n}\nmod others {\n    struct Side;\n}\n#[cfg(test)]\nmod tests {\n    struct Node;\n}";
    let sources =
        [Source::new("base/a", text), Source::new("base/b", platforms), Source::new("queue/c", "pub type Item = u8;")];
    let expected = [
        "src/base/b.rs:2: defines `Side`, and so does src/base/a.rs",
        "src/base/b.rs:5: defines `Side`, and so does src/base/a.rs",
        "src/queue/c.rs:1: defines `Item`, and so does src/base/a.rs",
    ];
    assert_eq!(namesakes(&sources), expected);
}

#[test]
fn circles_are_found_through_re_exports() {
    let room = |claim: &str| {
        [
            Source::new("queue/mod", "mod claim;\nmod shared;\npub use self::shared::{\n    NoClaim,\n    Shared,\n};"),
            Source::new("queue/shared", "use super::claim::Claim;"),
            Source::new("queue/claim", claim),
            Source::new("queue/slab", "use super::Shared;"),
        ]
    };
    assert!(faults(&room("use crate::base::sync::Mutex;")).is_empty());
    for claim in ["use super::shared::Shared;", "use super::Shared;", "use crate::queue::{Key, Shared};"] {
        assert_eq!(
            faults(&room(claim)),
            [
                "room queue: files use each other in a circle: queue/claim uses queue/shared; queue/shared uses queue/claim"
            ],
            "{claim}"
        );
    }
}

/// Returns the numbers of the lines of comments that are wider than 120 columns. Tables and code cannot be wrapped.
fn wide_comments(text: &str) -> Vec<usize> {
    let (mut in_code, mut wide) = (false, Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            in_code = false;
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']).trim_start();
        in_code ^= comment.starts_with("```");
        if !in_code && line.chars().count() > 120 && !comment.starts_with('|') && comment.contains(' ') {
            wide.push(number);
        }
    }
    wide
}

#[test]
fn no_comment_is_wider_than_120_columns() {
    let wide = format!("/// {}", "word ".repeat(24));
    assert_eq!(wide_comments(&format!("/// ```\n{wide}\n/// ```\n{wide}\n/// | {wide}\n{wide}")), [4, 6]);
    let mut found = Vec::new();
    for folder in ["src", "tests", "examples", "benches", "crates"] {
        for (path, text) in read(folder) {
            let lines = wide_comments(&text).into_iter();
            found.extend(lines.map(|line| format!("{folder}/{path}.rs:{line}: a comment is wider than 120 columns")));
        }
    }
    assert_tidy(&found);
}
