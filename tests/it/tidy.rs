//! The architecture, as far as a test can read it out of the source: who may use whom, and what only one file may do.
//!
//! Reads text, not syntax: what stands in comments and in test modules does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The floors: a unit (a file, or a folder with all in it) may use units of its own floor and of those below. Units of
/// one floor may not use each other in a circle.
const FLOORS: [&[&str]; 9] = [
    // Plain values, and what everything stands on. The queue's know no lock, no clock and no thread.
    &[
        "error",
        "sync",
        "thread",
        "time",
        "text",
        "cancel",
        "backoff",
        "queue/state",
        "queue/request",
        "queue/report",
        "queue/wheel",
        "queue/lists",
        "queue/lanes",
        "queue/slab",
        "queue/records",
        "watch/event",
        "watch/backlog",
        "watch/predicate",
    ],
    &["clock", "stage", "wait"],
    &["queue", "crew"],
    &["reconcile", "source", "poller", "store", "watch"],
    &["run", "workers", "pool", "elector"],
    &["controller"],
    &["manager"],
    &["objects", "sub"],
    &["embedded", "testing"],
];

/// The one unit that may use all others: it declares them and names what is public.
const ROOT: &str = "lib";

/// What only one unit may name, and how it is found in a line.
const RESERVED: [(&str, &str); 7] = [
    ("thread::spawn", "thread"),
    ("thread::scope", "thread"),
    ("thread::Builder", "thread"),
    ("Instant::now", "clock"),
    ("SystemTime::now", "clock"),
    ("thread::sleep", "clock"),
    ("parking_lot", "sync"),
];

/// Units of floor 0 that must not know of locks, clocks and threads, so not of these either.
const PURE: [&str; 11] = [
    "queue/state",
    "queue/request",
    "queue/report",
    "queue/wheel",
    "queue/lists",
    "queue/lanes",
    "queue/slab",
    "queue/records",
    "watch/event",
    "watch/backlog",
    "watch/predicate",
];
const NOT_PURE: [&str; 3] = ["sync", "thread", "cancel"];

const MOST_LINES: usize = 450;

/// A source file: its path under `src` without the ending, and its lines as far as they count.
struct Source {
    path: String,
    total: usize,
    lines: Vec<(usize, String)>,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        let mut lines = Vec::new();
        let mut test_follows = false;
        for (number, line) in (1..).zip(text.lines()) {
            let code = line.split("//").next().unwrap_or_default().trim_end();
            let trimmed = code.trim_start();
            if test_follows && trimmed.starts_with("mod ") && trimmed.ends_with('{') {
                // By habit the last item of a file.
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

    /// Whether all of it is test code.
    fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "models")
    }

    /// The module the file holds.
    fn module(&self) -> Vec<&str> {
        let mut module: Vec<_> = self.path.split('/').collect();
        if matches!(module.last(), Some(&"mod" | &"lib")) {
            module.pop();
        }
        module
    }

    /// The paths within the crate that its lines name: line number, and the path from the crate's root.
    fn paths(&self) -> Vec<(usize, String)> {
        let mut paths = Vec::new();
        // What is only named here for others to see is not used.
        let used = self.lines.iter().enumerate().filter(|(_, (_, line))| !line.starts_with("pub use crate::"));
        for (at, (number, line)) in used {
            for start in ["crate::", "super::", "self::"] {
                for (offset, _) in line.match_indices(start) {
                    let before = line[..offset].chars().next_back();
                    if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$') {
                        continue;
                    }
                    // A group of names may go on over the next lines.
                    let rest: String =
                        self.lines[at..].iter().map(|(_, line)| line.trim()).collect::<Vec<_>>().join(" ");
                    let from = rest.find(&line[offset..]).unwrap_or(0);
                    paths.extend(self.resolve(&rest[from..]).into_iter().map(|path| (*number, path)));
                }
            }
        }
        paths
    }

    /// The paths that a text starts with, written out from the crate's root.
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

/// The paths that a text starts with, each as `a/b/c`, groups written out: `a::{b, c::d}` is `a/b` and `a/c/d`.
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

/// The unit that a path belongs to, and its floor: the longest that it starts with.
fn unit(path: &str) -> Option<(&'static str, usize)> {
    let units = FLOORS.iter().enumerate().flat_map(|(floor, units)| units.iter().map(move |unit| (*unit, floor)));
    units
        .filter(|(unit, _)| path.strip_prefix(unit).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        .max_by_key(|(unit, _)| unit.len())
}

/// What is wrong with the sources, a line each.
fn faults(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in sources {
        let Source { path, total, lines } = source;
        let own = unit(path);
        if own.is_none() && path != ROOT {
            faults.push(format!("src/{path}.rs: is on no floor; put it into the table of tests/it/tidy.rs"));
        }
        if source.is_test() {
            continue;
        }
        if *total > MOST_LINES {
            faults.push(format!("src/{path}.rs: has {total} lines, of at most {MOST_LINES}"));
        }
        for (number, line) in lines {
            for (what, by) in RESERVED {
                if line.contains(what) && own.is_none_or(|(own, _)| own != by) {
                    faults.push(format!("src/{path}.rs:{number}: names `{what}`, which only {by} may"));
                }
            }
        }
        let Some((own, floor)) = own else { continue };
        for (number, used) in source.paths() {
            let fault = match unit(&used) {
                None => "which is on no floor (name the module, not the crate's root)".to_owned(),
                Some((other, _)) if other == own => continue,
                Some((other, above)) if above > floor => format!("and {other} is on floor {above}, {own} on {floor}"),
                Some((other, _)) if PURE.contains(&own) && NOT_PURE.contains(&other) => {
                    format!("but {own} is a plain value and must know nothing of {other}")
                }
                Some((other, _)) => {
                    uses.entry(own).or_default().insert(other);
                    continue;
                }
            };
            faults.push(format!("src/{path}.rs:{number}: uses `{}`, {fault}", used.replace('/', "::")));
        }
    }
    faults.extend(circle(&uses));
    faults
}

/// Units that use each other in a circle.
fn circle(uses: &BTreeMap<&str, BTreeSet<&str>>) -> Option<String> {
    let mut left = uses.clone();
    // What uses nothing that is left is in no circle, and neither is what uses only such.
    while let Some(free) =
        left.iter().find(|(_, used)| !used.iter().any(|used| left.contains_key(used))).map(|(u, _)| *u)
    {
        left.remove(free);
    }
    let units = left.into_keys().collect::<Vec<_>>().join(", ");
    (!units.is_empty()).then(|| format!("units that use each other in a circle are among: {units}"))
}

/// All Rust files under a folder of the project, by path without the ending.
fn read(folder: &str) -> Vec<(String, String)> {
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

fn assert_tidy(faults: &[String]) {
    let mut text = String::new();
    for fault in faults {
        let _ = writeln!(text, "  {fault}");
    }
    assert!(faults.is_empty(), "{} faults:\n{text}", faults.len());
}

#[test]
fn every_file_keeps_to_its_floor() {
    let sources: Vec<_> = read("src").iter().map(|(path, text)| Source::new(path, text)).collect();
    assert!(sources.len() > 20, "the walk found {} files", sources.len());
    assert_tidy(&faults(&sources));
}

#[test]
fn no_test_is_switched_off() {
    let mark = concat!("#[", "ignore");
    let mut found = Vec::new();
    for folder in ["src", "tests", "examples", "benches"] {
        for (path, text) in read(folder) {
            let lines = (1..).zip(text.lines()).filter(|(_, line)| line.contains(mark));
            found.extend(lines.map(|(number, _)| format!("{folder}/{path}.rs:{number}: switches a test off")));
        }
    }
    assert_tidy(&found);
}

/// The rules find what breaks them, and say where.
#[test]
fn broken_rules_are_found() {
    let long = "fn f() {}\n".repeat(MOST_LINES + 1);
    let cases: [(&str, &str, &[&str]); 15] = [
        ("queue/state", "use super::request::Verb;\nuse crate::time::Nanos;\n", &[]),
        (
            "queue/state",
            "\nuse super::shared::Shared;",
            &["src/queue/state.rs:2: uses `queue::shared::Shared`, and queue is on floor 2, queue/state on 0"],
        ),
        (
            "queue/wheel",
            "use crate::sync::Mutex;",
            &[
                "src/queue/wheel.rs:1: uses `sync::Mutex`, but queue/wheel is a plain value and must know nothing of sync",
            ],
        ),
        (
            "clock",
            "use crate::{\n    sync::Mutex,\n    queue::{Key, WorkQueue},\n};",
            &[
                "src/clock.rs:1: uses `queue::Key`, and queue is on floor 2, clock on 1",
                "src/clock.rs:1: uses `queue::WorkQueue`, and queue is on floor 2, clock on 1",
            ],
        ),
        (
            "queue/feed",
            "fn f() { crate::workers::go(); }",
            &["src/queue/feed.rs:1: uses `workers::go`, and workers is on floor 4, queue on 2"],
        ),
        (
            "poller",
            "use crate::WorkQueue;",
            &["src/poller.rs:1: uses `WorkQueue`, which is on no floor (name the module, not the crate's root)"],
        ),
        ("extra", "", &["src/extra.rs: is on no floor; put it into the table of tests/it/tidy.rs"]),
        (
            "workers/mod",
            "// thread::spawn\nfn f() { std::thread::spawn(|| {}); }",
            &["src/workers/mod.rs:2: names `thread::spawn`, which only thread may"],
        ),
        ("queue/mod", "let now = Instant::now();", &["src/queue/mod.rs:1: names `Instant::now`, which only clock may"]),
        ("wait", "use parking_lot::Condvar;", &["src/wait.rs:1: names `parking_lot`, which only sync may"]),
        ("wait", "#[cfg(test)]\nmod tests {\n    use std::thread::spawn;\n    use crate::queue::Key;\n}", &[]),
        ("cancel/tests/callbacks", "use std::thread::scope;\nuse crate::workers::Workers;", &[]),
        ("workers/pool", "//! `crate::nothing`\nuse super::Workers;\nuse crate::poller::Poller;", &[]),
        (
            "objects/mod",
            "pub use crate::embedded::MemoryClient;\nuse crate::embedded::Server;",
            &["src/objects/mod.rs:2: uses `embedded::Server`, and embedded is on floor 8, objects on 7"],
        ),
        ("error", &long, &["src/error.rs: has 451 lines, of at most 450"]),
    ];
    for (path, text, expected) in cases {
        assert_eq!(faults(&[Source::new(path, text)]), expected, "{path}: {text:.80}");
    }
    let there = Source::new("poller", "use crate::reconcile::Context;");
    assert!(faults(&[Source::new("reconcile/mod", "use crate::poller::Poller;")]).is_empty());
    assert_eq!(
        faults(&[there, Source::new("reconcile/mod", "use crate::poller::Poller;")]),
        ["units that use each other in a circle are among: poller, reconcile",]
    );
}

/// The commands of the README, and what of `.ci/run` runs them. The supervisor and the mirror are driven by tests of their own too.
#[test]
fn the_readmes_commands_are_those_that_are_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let ci = fs::read_to_string(root.join(".ci/run")).unwrap();
    let run = [
        (
            "cargo run --example supervisor -- examples/services.toml",
            "cargo run --locked --example supervisor -- --for 2s examples/services.toml",
        ),
        (
            "cargo run --example mirror -- examples /tmp/examples-mirrored",
            "cargo run --locked --example mirror -- --once examples target/mirrored",
        ),
        ("cargo test", "cargo test"),
        ("cargo run --features objects --example function", "cargo run --locked --features objects --example function"),
        // Tests of examples are among those of all features.
        ("cargo test --features testing --example function", "cargo nextest run --locked --workspace --all-features"),
    ];
    let blocks = readme.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let commands: Vec<_> = blocks.flat_map(str::lines).collect();
    assert_eq!(commands, run.map(|(command, _)| command), "the README has commands that nothing runs");
    for (command, step) in run {
        let is_run =
            |line: &str| line.split_once(step).is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with(' '));
        assert!(ci.lines().any(is_run), "CI does not run {command}");
    }
    assert!(root.join("examples/services.toml").exists() && root.join("tests/supervisor/main.rs").exists());
}
