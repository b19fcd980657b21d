//! Differences between expected and actual results, as text.

use std::fmt::Write as _;

use serde_json::Value;
use similar::{Algorithm, ChangeTag, DiffOp, TextDiff, capture_diff_slices};

use homeostat_objects::{Kind, ObjectKey};

/// A difference from the expectations of a case: a title and details.
#[derive(Debug, PartialEq)]
pub(super) struct Mismatch {
    what: String,
    detail: String,
}

impl Mismatch {
    pub(super) fn new(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { what: what.into(), detail: detail.into() }
    }

    /// Returns a mismatch with a diff, unless both texts are equal.
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

/// A diff with three lines of context.
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

/// Formats JSON with sorted fields.
pub(super) fn pretty(json: &Value) -> String {
    let mut sorted = json.clone();
    sorted.sort_all_objects();
    format!("{sorted:#}")
}

/// Formats an object as kind, group and key, without the version.
pub(super) fn name_of(kind: &Kind, key: &ObjectKey) -> String {
    match kind.group() {
        "" => format!("{} {key}", kind.name()),
        group => format!("{}.{group} {key}", kind.name()),
    }
}

/// An entry of each of two lists that are compared with each other.
#[derive(Debug, PartialEq)]
pub(super) enum Pair {
    Both(usize, usize),
    Missing(usize),
    Unexpected(usize),
}

/// Aligns the actual entries with the expected ones: first equal entries, then the entries between them one by one.
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

/// Adds the mismatches of two lists of texts.
pub(super) fn of_texts(what: &str, expected: &[String], actual: &[String], mismatches: &mut Vec<Mismatch>) {
    for pair in align(expected, actual) {
        match pair {
            Pair::Both(one, other) => mismatches.extend(Mismatch::differs(what, &expected[one], &actual[other])),
            Pair::Missing(one) => mismatches.push(Mismatch::new(format!("missing {what}"), &expected[one])),
            Pair::Unexpected(other) => mismatches.push(Mismatch::new(format!("unexpected {what}"), &actual[other])),
        }
    }
}
