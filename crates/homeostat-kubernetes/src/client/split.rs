//! Splits a JSON text into its parts without decoding them, so that an undecodable part does not affect the others.
//! Plain values.

use serde::de::IgnoredAny;

/// Returns the members of a JSON object as names and value texts. `None` if the text is not an object.
pub(super) fn members(text: &[u8]) -> Option<Vec<(String, &[u8])>> {
    let mut cursor = JsonCursor { text, at: 0 };
    let mut members = Vec::new();
    if !cursor.takes(b'{') {
        return None;
    }
    while !cursor.takes(b'}') {
        if !members.is_empty() && !cursor.takes(b',') {
            return None;
        }
        let name = serde_json::from_slice(cursor.value()?).ok()?;
        if !cursor.takes(b':') {
            return None;
        }
        members.push((name, cursor.value()?));
    }
    cursor.is_at_end().then_some(members)
}

/// Returns the texts of an array's elements. `None` if the text is not an array.
pub(super) fn elements(text: &[u8]) -> Option<Vec<&[u8]>> {
    let mut cursor = JsonCursor { text, at: 0 };
    let mut elements = Vec::new();
    if !cursor.takes(b'[') {
        return None;
    }
    while !cursor.takes(b']') {
        if !elements.is_empty() && !cursor.takes(b',') {
            return None;
        }
        elements.push(cursor.value()?);
    }
    cursor.is_at_end().then_some(elements)
}

/// A position in a JSON text.
struct JsonCursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> JsonCursor<'a> {
    /// Skips white space, then this byte if it follows. Returns whether it did.
    fn takes(&mut self, byte: u8) -> bool {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        let is_next = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Returns the text of the next value. Values are skipped without recursion, so they may be nested to any depth.
    fn value(&mut self) -> Option<&'a [u8]> {
        let rest = self.text.get(self.at..)?;
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<IgnoredAny>();
        values.next()?.ok()?;
        let value = rest.get(..values.byte_offset())?;
        self.at += value.len();
        Some(value)
    }

    fn is_at_end(&self) -> bool {
        self.text.get(self.at..).is_some_and(|rest| rest.trim_ascii().is_empty())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn texts(parts: Vec<&[u8]>) -> Vec<&str> {
        parts.into_iter().map(|part| str::from_utf8(part).unwrap_or("no text").trim()).collect()
    }

    #[test]
    fn parts_have_any_depth() {
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let text = format!(r#" [ 1,"a,]\"" , {{"b": [{{}}, 2]}},{deep} ,null , -1.5e3] "#);
        let found = texts(elements(text.as_bytes()).unwrap());
        assert_eq!(found, ["1", r#""a,]\"""#, r#"{"b": [{}, 2]}"#, &deep, "null", "-1.5e3"]);
        let text = format!(r#"{{"a\n" : {deep},"b":true }}"#);
        let (names, values): (Vec<_>, Vec<_>) = members(text.as_bytes()).unwrap().into_iter().unzip();
        assert_eq!((names, texts(values)), (vec!["a\n".to_owned(), "b".to_owned()], vec![&*deep, "true"]));
        assert_eq!((members(b"{ }"), elements(b"[\n]")), (Some(Vec::new()), Some(Vec::new())));
    }

    #[test]
    fn a_malformed_text_has_no_parts() {
        for text in ["", "1", "[", "[1", "[1,", "[1 2]", "[,1]", "[1,]", "[1]]", "[1] x", "[\"a]", "{}", "[01]"] {
            assert_eq!(elements(text.as_bytes()), None, "{text}");
        }
        for text in ["", "[]", "{", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,}", "{a:1}", "{1:1}", "{} {}"] {
            assert_eq!(members(text.as_bytes()), None, "{text}");
        }
    }
}
