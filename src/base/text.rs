//! Text from errors, names and keys, as a part of one line.

use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The number of bytes that are kept and shown.
const MOST: usize = 1024;

/// Returns `text`, truncated to 1024 bytes. The end says how many bytes are missing.
///
/// # Examples
///
/// ```
/// let text = homeostat::rt::bounded("x".repeat(2000));
/// assert!(text.ends_with("x… (976 more bytes)"));
/// ```
#[must_use]
pub fn bounded(mut text: String) -> String {
    if text.len() > MOST {
        let kept = (0..=MOST).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
        let missing = text.len() - kept;
        text.truncate(kept);
        let _ = write!(text, "… ({missing} more bytes)");
        text.shrink_to_fit();
    }
    text
}

/// Returns `text` as a part of one line: [truncated](bounded), and with escaped control characters.
///
/// # Examples
///
/// ```
/// assert_eq!(homeostat::rt::one_line("no such file:\n/etc/vms"), "no such file:\\n/etc/vms");
/// ```
#[must_use]
pub fn one_line(text: impl fmt::Display) -> String {
    let text = bounded(text.to_string());
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if breaks_a_line(character) {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

/// Returns whether a terminal or log collector may misread a character. These are control characters, line separators,
/// and marks of text direction.
fn breaks_a_line(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Displays another value like [`one_line`], without work if nothing shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneLine<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&one_line(&self.0))
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
