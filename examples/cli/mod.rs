//! Shared parts of the examples' command lines.

use std::io::Write;
use std::time::Duration;

/// Parses a whole number with a unit, as in `500ms`, `10s`, `2m` or `1h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    // This many hours can be added to any instant, and counted in milliseconds.
    let count = digits.parse().ok().filter(|count: &u64| *count <= 1_000_000_000);
    let millis = match &text[digits.len()..] {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let length = count.zip(millis).map(|(count, millis)| Duration::from_millis(count * millis));
    length.ok_or_else(|| format!("{text:?} is not a duration (as in \"500ms\", \"10s\", \"2m\" or \"1h\")"))
}

/// Parses a duration longer than zero.
pub(crate) fn parse_period(text: &str) -> Result<Duration, String> {
    let length = parse_duration(text)?;
    if length.is_zero() { Err("must be longer than zero".to_owned()) } else { Ok(length) }
}

/// Writes text, and ignores errors: the program continues without its pipe or terminal.
pub(crate) fn say(to: &mut impl Write, text: &str) {
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}
