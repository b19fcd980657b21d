//! Each log line works with any logger: its text contains its data, and its fields have the names that the
//! documentation of the crate lists.
//!
//! The test reads the text of each call of a `log` macro in `src`, outside comments.

use std::fs;
use std::path::{Path, PathBuf};

use homeostat::{Action, Context, Enqueue, Exponential, WorkQueue, Workers};
use log::Level;

use crate::stages::logs::Logs;

/// Fields with whole objects, which are too long for the text.
const NOT_SHOWN: [&str; 2] = ["from", "to"];

#[test]
fn a_failure_says_its_controller_key_and_error_in_the_text_and_as_fields() {
    let logs = Logs::of("plain-text");
    let queue = WorkQueue::new();
    let fails = |_cx: &Context, _key: &&str| Err::<Action, _>(std::io::Error::other("no such disk"));
    let workers =
        Workers::new(fails).retry(Exponential::default().max_retries(0)).name("plain-text").start(&queue).unwrap();
    queue.enqueue("vm-1");
    let line = logs.wait_for(Level::Warn, "parked");
    drop(workers);
    assert_eq!(
        line.message,
        r#"plain-text: reconcile of "vm-1" failed, parked until its next request (failure 1): no such disk"#
    );
    let fields = ["controller", "key", "error", "failures"].map(|field| line.field(field));
    assert_eq!(fields, ["plain-text", "\"vm-1\"", "no such disk", "1"]);
}

#[test]
fn every_log_call_shows_its_fields_in_the_text_by_their_documented_names() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let page = fs::read_to_string(src.join("guide/observability.md")).unwrap();
    let documented = page.split("# Logs").nth(1).unwrap().split("\n# ").next().unwrap();
    let mut faults = Vec::new();
    let mut calls = 0;
    let crates = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("crates"));
    let crates = crates.into_iter().filter(|path| path.components().any(|part| part.as_os_str() == "src"));
    for path in files(&src).into_iter().chain(crates) {
        let text = fs::read_to_string(&path).unwrap();
        let code: String = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .map(|line| line.trim().to_owned() + " ")
            .collect();
        for macro_name in ["error", "warn", "info", "debug", "trace", "log"] {
            for call in code.split(&format!("log::{macro_name}!(")).skip(1) {
                calls += 1;
                faults.extend(fault(call, documented).map(|fault| {
                    format!("{}: {fault}: {}", path.display(), call.split(");").next().unwrap_or_default())
                }));
            }
        }
    }
    assert!(calls > 40, "only {calls} calls found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns the errors of a call: `level, field:% = value, …; "text"`.
fn fault(call: &str, documented: &str) -> Option<String> {
    let Some((fields, text)) = call.split_once("; \"").filter(|_| !call.trim_start().starts_with('"')) else {
        return Some("it has no field".to_owned());
    };
    let text = text.split('"').next().unwrap_or_default();
    for field in fields.trim().split(", ").filter(|field| *field != "level") {
        let (key, value) = field.split_once(" = ").unwrap_or((field, field));
        let [key, value] = [key, value].map(|name| name.split(':').next().unwrap_or_default().trim());
        // The name of a thread group is under the field of its kind.
        if key != "(field)" && !documented.contains(&format!("`{key}`")) {
            return Some(format!("the field {key} is not documented"));
        }
        if !NOT_SHOWN.contains(&key)
            && !text.contains(&format!("{{{value}}}"))
            && !text.contains(&format!("{{{value}:?}}"))
        {
            return Some(format!("the text does not show {key}"));
        }
    }
    None
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|ending| ending == "rs")).collect()
}
