//! JSON texts: parses texts that are nested too deep for `serde_json`, and finds integers that it would alter.

#[cfg(feature = "file-client")]
use serde_json::Map;
use serde_json::Value;

/// A token of a JSON text. Commas, colons and white space are not tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonToken<'a> {
    /// `{` or `[`.
    Open(u8),
    /// `}` or `]`.
    Close(u8),
    /// A string with its quotes, a number, or a word.
    Scalar(&'a [u8]),
}

/// Splits a JSON text into tokens. Does not check the syntax.
pub fn tokens(text: &[u8]) -> impl Iterator<Item = JsonToken<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].iter().position(|byte| !b" \t\r\n,:".contains(byte))?;
        let rest = &text[start..];
        let length = match rest[0] {
            b'"' => string(rest),
            b'{' | b'[' | b'}' | b']' => 1,
            _ => rest.iter().position(|byte| b" \t\r\n,:{}[]\"".contains(byte)).unwrap_or(rest.len()),
        };
        at = start + length;
        Some(match rest[0] {
            open @ (b'{' | b'[') => JsonToken::Open(open),
            close @ (b'}' | b']') => JsonToken::Close(close),
            _ => JsonToken::Scalar(&rest[..length]),
        })
    })
}

/// Returns the length of the string at the beginning of a text, including its quotes.
fn string(text: &[u8]) -> usize {
    let mut escaped = false;
    let end = text.iter().skip(1).position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

/// All integers with fewer digits fit into 64 bits.
const FEWEST_ALTERED_DIGITS: usize = 19;

/// Returns whether the text has `count` digits in a row. Where there are no digits, reads only one byte in `count`.
fn has_digits_in_a_row(text: &[u8], count: usize) -> bool {
    let mut at = count - 1;
    while at < text.len() {
        let (before, after) = text.split_at(at);
        let is_digit = |byte: &&u8| byte.is_ascii_digit();
        let behind = after.iter().take_while(is_digit).count();
        if behind > 0 && before.iter().rev().take_while(is_digit).count() + behind >= count {
            return true;
        }
        at += behind + count;
    }
    false
}

/// Returns the first integer that a [`Value`] would alter because it needs more than 64 bits.
#[must_use]
pub fn altered_integer(text: &[u8]) -> Option<&str> {
    if !has_digits_in_a_row(text, FEWEST_ALTERED_DIGITS) {
        return None;
    }
    let scalars = tokens(text).filter_map(|token| match token {
        JsonToken::Scalar(scalar) if scalar.len() >= FEWEST_ALTERED_DIGITS => std::str::from_utf8(scalar).ok(),
        _ => None,
    });
    scalars.into_iter().find(|scalar| {
        let digits = scalar.strip_prefix('-').unwrap_or(scalar);
        let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
        // If a program uses `serde_json` with `arbitrary_precision`, such an integer is not altered.
        let kept = || serde_json::from_str::<Value>(scalar).map_or_else(|_| String::new(), |value| value.to_string());
        is_integer && kept() != *scalar
    })
}

/// Parses a JSON text of any depth, without recursion. It accepts missing commas and colons, so use it only for texts
/// that `serde_json` has written.
#[cfg(feature = "file-client")]
pub(crate) fn parse_deep(text: &[u8]) -> Result<Value, serde_json::Error> {
    /// An unfinished array or object, and the name of its next field.
    struct Unclosed(Value, Option<String>);

    let mut open: Vec<Unclosed> = Vec::new();
    for token in tokens(text) {
        let value = match token {
            JsonToken::Open(b'[') => {
                open.push(Unclosed(Value::Array(Vec::new()), None));
                continue;
            }
            JsonToken::Open(_) => {
                open.push(Unclosed(Value::Object(Map::new()), None));
                continue;
            }
            JsonToken::Close(_) => match open.pop() {
                Some(Unclosed(value, None)) => value,
                _ => break,
            },
            JsonToken::Scalar(scalar) => match open.last_mut() {
                Some(Unclosed(Value::Object(_), name @ None)) => {
                    *name = Some(serde_json::from_slice(scalar)?);
                    continue;
                }
                _ => serde_json::from_slice(scalar)?,
            },
        };
        match open.last_mut() {
            Some(Unclosed(Value::Array(items), _)) => items.push(value),
            Some(Unclosed(Value::Object(fields), name)) => {
                fields.insert(name.take().unwrap_or_default(), value);
            }
            _ => return Ok(value),
        }
    }
    Err(serde::de::Error::custom("the text ends too early"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_into_tokens() {
        let scalar = |text: &'static str| JsonToken::Scalar(text.as_bytes());
        let text = br#"{"a{\"\\": [1, -2.5e3,null ,"x\\"]}true"#;
        let expected = [
            JsonToken::Open(b'{'),
            scalar(r#""a{\"\\""#),
            JsonToken::Open(b'['),
            scalar("1"),
            scalar("-2.5e3"),
            scalar("null"),
            scalar(r#""x\\""#),
            JsonToken::Close(b']'),
            JsonToken::Close(b'}'),
            scalar("true"),
        ];
        assert_eq!(tokens(text).collect::<Vec<_>>(), expected);
        for cut in 0..text.len() {
            assert!(tokens(&text[..cut]).count() <= expected.len());
        }
        assert_eq!(tokens(b" ").count(), 0);
    }

    #[cfg(feature = "file-client")]
    #[test]
    fn a_deep_text_is_parsed_like_any_other() {
        let values = [
            serde_json::json!({"a": [1, -2.5, "x\"]}", {}, [], [[]], {"b": null, "": true}], "c": {"d": {"e": 0.1}}}),
            serde_json::json!([]),
            serde_json::json!("x"),
            serde_json::json!(7),
        ];
        for value in values {
            let text = value.to_string();
            assert_eq!(parse_deep(text.as_bytes()).unwrap(), value);
            for cut in 0..text.len() {
                // A number that was cut off is still a number.
                assert!(parse_deep(&text.as_bytes()[..cut]).is_err() || value.is_number());
            }
        }
    }

    #[test]
    fn digits_in_a_row_are_found_wherever_they_are() {
        for length in 0..=14 {
            for bits in 0..1_u32 << length {
                let text: Vec<_> = (0..length).map(|bit| if bits >> bit & 1 == 1 { b'7' } else { b'x' }).collect();
                for count in 1..=5 {
                    let found = text.windows(count).any(|window| window.iter().all(u8::is_ascii_digit));
                    assert_eq!(has_digits_in_a_row(&text, count), found, "{count} in {text:?}");
                }
            }
        }
    }

    #[test]
    fn integers_beyond_64_bits_are_found() {
        for kept in [
            "[18446744073709551615, -9223372036854775808]",
            r#"["18446744073709551616"]"#,
            "123456789012345678901234.5",
            "1234567890123456789012e3",
            "-0",
        ] {
            assert_eq!(altered_integer(kept.as_bytes()), None, "{kept}");
        }
        for (text, found) in [
            ("[1, 18446744073709551616]", "18446744073709551616"),
            (r#"{"a":-9223372036854775809}"#, "-9223372036854775809"),
            (r#"{"\"": 123456789012345678901234567890}"#, "123456789012345678901234567890"),
        ] {
            assert_eq!(altered_integer(text.as_bytes()), Some(found), "{text}");
        }
    }
}
