//! Escapes text from users in HTML: keys, names and errors.

use std::fmt::{self, Write};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use homeostat::rt::one_line;

/// Displays a value as HTML text, or as an attribute value in double quotes. Every text on a page that this crate does
/// not write itself must pass through here.
pub(super) struct Escaped<T>(pub(super) T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '&' => self.0.write_str("&amp;")?,
                '<' => self.0.write_str("&lt;")?,
                '>' => self.0.write_str("&gt;")?,
                '"' => self.0.write_str("&quot;")?,
                '\'' => self.0.write_str("&#39;")?,
                other => self.0.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// Escapes a name or an error for a single line. Control characters and text direction marks become visible.
pub(super) fn line(text: &str) -> Escaped<String> {
    Escaped(one_line(text))
}

/// Escapes a text of several lines. Control characters within the lines become visible.
pub(super) fn lines(text: &str) -> Escaped<String> {
    Escaped(text.lines().map(one_line).collect::<Vec<_>>().join("\n"))
}

/// Escapes a key for people. Removes the quotes that `Debug` puts around a plain text.
pub(super) fn key(shown: &str) -> Escaped<String> {
    let inner = shown.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let plain = inner.filter(|inner| !inner.is_empty() && !inner.contains(['"', '\\']));
    line(plain.unwrap_or(shown))
}

/// The characters that need no escape in a path segment.
const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Returns the path of a key's page. It needs no further escape in HTML.
pub(super) fn key_path(controller: &str, shown: &str) -> String {
    format!("/keys/{}/{}", utf8_percent_encode(controller, PART), utf8_percent_encode(shown, PART))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_place() {
        assert_eq!(
            Escaped("<b a='1' b=\"2\">&</b>").to_string(),
            "&lt;b a=&#39;1&#39; b=&quot;2&quot;&gt;&amp;&lt;/b&gt;"
        );
        assert_eq!(line("a\n<\u{202e}").to_string(), "a\\n&lt;\\u{202e}");
        assert_eq!(lines("a\r\n\0<\nb").to_string(), "a\n\\u{0}&lt;\nb");
    }

    #[test]
    fn plain_keys_lose_their_quotes() {
        for (shown, text) in [
            (r#""vm-1""#, "vm-1"),
            ("default/web", "default/web"),
            (r#""a\"b""#, r"&quot;a\&quot;b&quot;"),
            (r#""""#, "&quot;&quot;"),
            (r#"("a", "b")"#, "(&quot;a&quot;, &quot;b&quot;)"),
        ] {
            assert_eq!(key(shown).to_string(), text);
        }
    }

    #[test]
    fn the_path_of_a_key_needs_no_escape() {
        assert_eq!(key_path("v m", "\"a/../<b>?#\""), "/keys/v%20m/%22a%2F..%2F%3Cb%3E%3F%23%22");
    }
}
