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

/// The longest name that is shown in full, in characters.
const LONGEST: usize = 80;
/// How much of a longer name is shown: its beginning and its end.
const KEPT: (usize, usize) = (48, 28);
/// How much of a longer name its tooltip shows.
const IN_TOOLTIP: usize = 500;

/// Escapes a name for one or two lines of a page. A long name keeps its beginning and its end, and its tooltip shows
/// more. The direction of its letters does not change the text around it.
pub(super) fn name(text: &str) -> String {
    let text = one_line(text);
    match shortened(&text) {
        None => format!("<bdi>{}</bdi>", Escaped(&text)),
        Some(short) => {
            let more: String = text.chars().take(IN_TOOLTIP).collect();
            format!("<bdi title=\"{}\">{}</bdi>", Escaped(more), Escaped(short))
        }
    }
}

/// Returns beginning and end of a text that is too long.
fn shortened(text: &str) -> Option<String> {
    let length = text.chars().count();
    let part = |from: usize, count: usize| text.chars().skip(from).take(count).collect::<String>();
    (length > LONGEST).then(|| format!("{}…{}", part(0, KEPT.0), part(length - KEPT.1, KEPT.1)))
}

/// Returns a key for a tooltip, which is not escaped yet.
pub(super) fn short_key(shown: &str) -> String {
    let text = plain(shown);
    shortened(text).unwrap_or_else(|| text.to_owned())
}

/// Escapes a key for people, like a [`name`].
pub(super) fn key(shown: &str) -> String {
    name(plain(shown))
}

/// Removes the quotes that `Debug` puts around a plain text.
pub(super) fn plain(shown: &str) -> &str {
    let inner = shown.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.filter(|inner| !inner.is_empty() && !inner.contains(['"', '\\'])).unwrap_or(shown)
}

/// Escapes the name of a source. The name of a watch of objects ends with a hash, which has a muted colour.
pub(super) fn source_name(text: &str) -> String {
    let is_hash = |end: &str| end.len() == 16 && end.bytes().all(|byte| b"0123456789abcdef".contains(&byte));
    match text.rsplit_once('-') {
        Some((stem, end)) if !stem.is_empty() && is_hash(end) => {
            format!("{}<small>-{end}</small>", name(stem))
        }
        _ => name(text),
    }
}

/// The characters that need no escape in a path segment.
const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Escapes a text for one segment of a path, or for a query. It needs no further escape in HTML.
pub(super) fn segment(text: &str) -> String {
    utf8_percent_encode(text, PART).to_string()
}

/// Returns the path of these segments. It needs no further escape in HTML.
pub(super) fn path(segments: &[&str]) -> String {
    segments.iter().fold(String::new(), |path, text| format!("{path}/{}", segment(text)))
}

/// Returns the path of a key's page.
pub(super) fn key_path(controller: &str, shown: &str) -> String {
    path(&["keys", controller, shown])
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
            assert_eq!(key(shown), format!("<bdi>{text}</bdi>"));
        }
    }

    #[test]
    fn a_long_name_keeps_its_beginning_and_its_end() {
        let long = format!("{}<é{}", "a".repeat(400), "z".repeat(400));
        let shown = name(&long);
        assert!(shown.contains(&format!(">{}…{}</bdi>", "a".repeat(48), "z".repeat(28))), "{shown}");
        assert!(shown.starts_with(&format!("<bdi title=\"{}&lt;é{}\">", "a".repeat(400), "z".repeat(98))), "{shown}");
        assert_eq!(name(&"é".repeat(80)), format!("<bdi>{}</bdi>", "é".repeat(80)));
    }

    #[test]
    fn the_name_of_a_source_has_a_muted_hash() {
        assert_eq!(source_name("shares-12f2c21bee4b8612"), "<bdi>shares</bdi><small>-12f2c21bee4b8612</small>");
        for other in ["shares", "a-12f2c21bee4b861", "a-12f2c21bee4b861g", "-12f2c21bee4b8612"] {
            assert_eq!(source_name(other), format!("<bdi>{other}</bdi>"));
        }
    }

    #[test]
    fn the_path_of_a_key_needs_no_escape() {
        assert_eq!(key_path("v m", "\"a/../<b>?#\""), "/keys/v%20m/%22a%2F..%2F%3Cb%3E%3F%23%22");
    }
}
