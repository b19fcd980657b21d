//! What the examples' command lines have in common.

use std::io::Write;
use std::time::Duration;

/// A whole number with a unit, as in `500ms`, `10s`, `2m` or `1h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    // So many hours can still be added to any instant, and counted in milliseconds.
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

/// The same, but not zero.
pub(crate) fn parse_period(text: &str) -> Result<Duration, String> {
    let length = parse_duration(text)?;
    if length.is_zero() { Err("must be longer than zero".to_owned()) } else { Ok(length) }
}

/// Writes as much as can be written: a closed pipe or terminal is no reason to leave the work alone.
pub(crate) fn say(to: &mut impl Write, text: &str) {
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}
