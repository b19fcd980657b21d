//! What is other than it was expected, for people to read.

use std::fmt::Write as _;

use serde_json::Value;
use similar::{Algorithm, ChangeTag, DiffOp, TextDiff, capture_diff_slices};

use crate::objects::{Kind, ObjectKey};

/// One thing that is not as a case says: in one line, and what there is to see of it.
#[derive(Debug, PartialEq)]
pub(super) struct Fault {
    what: String,
    detail: String,
}

impl Fault {
    pub(super) fn new(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { what: what.into(), detail: detail.into() }
    }

    /// Two texts that should be the same, if they are not.
    pub(super) fn differs(what: &str, expected: &str, actual: &str) -> Option<Self> {
        (expected != actual).then(|| Self::new(format!("{what} differs (-expected +actual)"), lines(expected, actual)))
    }

    pub(super) fn within(self, place: &str) -> Self {
        Self { what: format!("{place}: {}", self.what), ..self }
    }

    pub(super) fn print(&self, text: &mut String) {
        let _ = writeln!(text, "  {}", self.what);
        for line in self.detail.lines() {
            let _ = writeln!(text, "      {line}");
        }
    }
}

/// The lines in which two texts differ, and three around each.
fn lines(expected: &str, actual: &str) -> String {
    let diff = TextDiff::from_lines(expected, actual);
    let mut text = String::new();
    for (number, group) in diff.grouped_ops(3).iter().enumerate() {
        if number > 0 {
            text.push_str(" ...\n");
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            let _ = writeln!(text, "{sign}{}", change.value().trim_end_matches('\n'));
        }
    }
    text
}

/// JSON to be compared and read: its fields in one order, whatever order they have.
pub(super) fn pretty(json: &Value) -> String {
    let mut sorted = json.clone();
    sorted.sort_all_objects();
    format!("{sorted:#}")
}

/// An object for people to read: its kind with its group, whatever version.
pub(super) fn name_of(kind: &Kind, key: &ObjectKey) -> String {
    match kind.group() {
        "" => format!("{} {key}", kind.name()),
        group => format!("{}.{group} {key}", kind.name()),
    }
}

/// What of two lists belongs together.
#[derive(Debug, PartialEq)]
pub(super) enum Pair {
    Both(usize, usize),
    Missing(usize),
    Unexpected(usize),
}

/// Which entries of what happened are those that were expected: those that are called the same in the same order, and between them one
/// after the other.
pub(super) fn align(expected: &[String], actual: &[String]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, expected, actual) {
        let (old, new) = (op.old_range(), op.new_range());
        let both =
            if matches!(op, DiffOp::Delete { .. } | DiffOp::Insert { .. }) { 0 } else { old.len().min(new.len()) };
        pairs.extend(old.clone().zip(new.clone()).take(both).map(|(one, other)| Pair::Both(one, other)));
        pairs.extend(old.skip(both).map(Pair::Missing));
        pairs.extend(new.skip(both).map(Pair::Unexpected));
    }
    pairs
}

/// The faults of a list in which each entry is all in its text.
pub(super) fn of_texts(what: &str, expected: &[String], actual: &[String], faults: &mut Vec<Fault>) {
    for pair in align(expected, actual) {
        match pair {
            Pair::Both(one, other) => faults.extend(Fault::differs(what, &expected[one], &actual[other])),
            Pair::Missing(one) => faults.push(Fault::new(format!("missing {what}"), &expected[one])),
            Pair::Unexpected(other) => faults.push(Fault::new(format!("unexpected {what}"), &actual[other])),
        }
    }
}
