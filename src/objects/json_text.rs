//! JSON as text, for what a parser does not tell: how deep it is, and which of its integers a program cannot hold.

use serde_json::Value;

/// A part of a JSON text. Commas, colons and spaces are left out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// `{` or `[`.
    Open(u8),
    /// `}` or `]`.
    Close(u8),
    /// A string with its quotes, a number, or a word.
    Scalar(&'a [u8]),
}

/// Splits a JSON text into its tokens. A text that is no JSON gives tokens too.
pub(crate) fn tokens(text: &[u8]) -> impl Iterator<Item = Token<'_>> {
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
            open @ (b'{' | b'[') => Token::Open(open),
            close @ (b'}' | b']') => Token::Close(close),
            _ => Token::Scalar(&rest[..length]),
        })
    })
}

/// The length of the string that a text begins with, quotes included.
fn string(text: &[u8]) -> usize {
    let mut escaped = false;
    let end = text.iter().skip(1).position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

/// The first integer of a JSON text that a [`Value`] would alter, because it needs more than 64 bits.
pub(crate) fn altered_integer(text: &[u8]) -> Option<&str> {
    let scalars = tokens(text).filter_map(|token| match token {
        Token::Scalar(scalar) if scalar.len() > 18 => std::str::from_utf8(scalar).ok(),
        _ => None,
    });
    scalars.into_iter().find(|scalar| {
        let digits = scalar.strip_prefix('-').unwrap_or(scalar);
        let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
        // With `arbitrary_precision` of `serde_json`, which a program may have asked for, it is kept.
        let kept = || serde_json::from_str::<Value>(scalar).map_or_else(|_| String::new(), |value| value.to_string());
        is_integer && kept() != *scalar
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_into_tokens() {
        let scalar = |text: &'static str| Token::Scalar(text.as_bytes());
        let text = br#"{"a{\"\\": [1, -2.5e3,null ,"x\\"]}true"#;
        let expected = [
            Token::Open(b'{'),
            scalar(r#""a{\"\\""#),
            Token::Open(b'['),
            scalar("1"),
            scalar("-2.5e3"),
            scalar("null"),
            scalar(r#""x\\""#),
            Token::Close(b']'),
            Token::Close(b'}'),
            scalar("true"),
        ];
        assert_eq!(tokens(text).collect::<Vec<_>>(), expected);
        for cut in 0..text.len() {
            assert!(tokens(&text[..cut]).count() <= expected.len());
        }
        assert_eq!(tokens(b" ").count(), 0);
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
