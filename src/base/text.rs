//! Text from errors, names and keys, as a part of one line.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The number of bytes that are kept and shown.
pub(crate) const MOST: usize = 1024;

/// Returns `text`, truncated to [`MOST`] bytes. The end shows how many bytes are missing.
pub(crate) fn bounded(mut text: String) -> String {
    if let Some((kept, rest)) = cut(&text) {
        let (kept, more) = (kept.len(), rest.len());
        text.truncate(kept);
        text.push_str(&missing(more));
        text.shrink_to_fit();
    }
    text
}

/// Splits a text that is too long, between two characters.
fn cut(text: &str) -> Option<(&str, &str)> {
    (text.len() > MOST).then(|| text.split_at(boundary(text, MOST)))
}

/// Returns the last boundary between two characters within the first `most` bytes.
pub(crate) fn boundary(text: &str, most: usize) -> usize {
    (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default()
}

fn missing(bytes: usize) -> String {
    format!("… ({bytes} more bytes)")
}

/// Returns `text` as a part of one line: truncated, and with escaped control characters.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(MOST));
    let (kept, rest) = cut(text).unwrap_or((text, ""));
    for character in kept.chars() {
        if breaks_a_line(character) {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    if !rest.is_empty() {
        line.push_str(&missing(rest.len()));
    }
    line
}

/// Returns whether a terminal or log collector may misread a character. These are control characters, line separators, and marks
/// of text direction.
fn breaks_a_line(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Displays another value like [`one_line`].
pub(crate) struct OneLine<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&one_line(&self.0.to_string()))
    }
}

/// Shows a key by its `Debug`. A `Debug` that panics is caught, and the text says so.
pub(crate) struct ShownKey<'a, K: ?Sized>(pub(crate) &'a K);

impl<K: fmt::Debug + ?Sized> fmt::Debug for ShownKey<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = catch_unwind(AssertUnwindSafe(|| self.0.fmt(f)));
        shown.unwrap_or_else(|_| f.write_str("(a key whose Debug panics)"))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_other_text_is_not() {
        assert_eq!(one_line("no such file: \"größe\" 空"), "no such file: \"größe\" 空");
        assert_eq!(one_line("one\ntwo\r\x1b[31m\0\u{2028}\u{202e}"), "one\\ntwo\\r\\u{1b}[31m\\u{0}\\u{2028}\\u{202e}");
        assert_eq!(format!("{:>6}|", OneLine("a\tb")), "  a\\tb|");
    }

    #[test]
    fn long_text_is_truncated_at_a_character_and_shows_the_missing_bytes() {
        let short = "x".repeat(MOST);
        assert_eq!((bounded(short.clone()), one_line(&short)), (short.clone(), short));
        let long = format!("{}äöü", "x".repeat(MOST - 1));
        let expected = format!("{}… (6 more bytes)", "x".repeat(MOST - 1));
        assert_eq!((bounded(long.clone()), one_line(&long)), (expected.clone(), expected));
    }
}
