//! Numbers and times for people.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

/// Formats a duration with its unit: `38 ms`, `1.2 s`, `12 s`, `4 m 10 s`, `3 h 12 m`, `2 d 4 h`.
pub(super) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.is_zero() => "0 s".to_owned(),
        0 if duration < Duration::from_millis(1) => format!("{} µs", duration.as_micros().max(1)),
        0 if duration < Duration::from_millis(10) => format!("{:.1} ms", duration.as_secs_f64() * 1e3),
        0 => format!("{} ms", duration.as_millis()),
        1..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} m {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Formats a duration that someone has set, without a part that is zero: `5 s`, `1 h`, `1 m 30 s`.
pub(super) fn set_span(duration: Duration) -> String {
    let text = span(duration);
    let is_whole = duration.subsec_nanos() == 0 && duration.as_secs() < 10;
    let shown = [" 0 s", " 0 m", " 0 h"].iter().find_map(|zero| text.strip_suffix(zero)).unwrap_or(&text);
    if is_whole { format!("{} s", duration.as_secs()) } else { shown.to_owned() }
}

/// Formats a count with commas between thousands: `18,231`.
pub(super) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a size like [`count`].
pub(super) fn size(size: usize) -> String {
    count(u64::try_from(size).unwrap_or(u64::MAX))
}

/// Formats a rate with one or two digits: `0.4`, `12`.
pub(super) fn rate(per_second: f64) -> String {
    if per_second < 9.95 && per_second > 0.0 { format!("{per_second:.1}") } else { format!("{per_second:.0}") }
}

/// Formats `part` of `whole` as percent, such as `2.4 %`. Returns an en dash if `whole` is zero.
#[expect(clippy::cast_precision_loss, reason = "a ratio of counts, shown with two digits")]
pub(super) fn percent(part: u64, whole: u64) -> String {
    match (part, whole) {
        (_, 0) => "–".to_owned(),
        (0, _) => "0 %".to_owned(),
        _ => {
            let percent = part as f64 * 100.0 / whole as f64;
            if percent < 0.1 { "< 0.1 %".to_owned() } else { format!("{percent:.1} %") }
        }
    }
}

/// Formats the time of day in UTC: `07:03:22`.
pub(super) fn time_of_day(time: SystemTime) -> String {
    stamp(time).get(11..19).unwrap_or_default().to_owned()
}

/// Formats the date in UTC: `2026-01-30`.
pub(super) fn date(time: SystemTime) -> String {
    stamp(time).get(..10).unwrap_or_default().to_owned()
}

/// Formats the hour and minute in UTC: `07:03`.
pub(super) fn minute(time: SystemTime) -> String {
    stamp(time).get(11..16).unwrap_or_default().to_owned()
}

/// Formats the date and time in UTC: `2026-01-30T07:03:22Z`.
pub(super) fn stamp(time: SystemTime) -> String {
    Timestamp::try_from(time).map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default()
}

/// Returns the time of day as HTML that shows the date as a tooltip.
pub(super) fn time(time: SystemTime) -> String {
    let stamp = stamp(time);
    format!("<time datetime=\"{stamp}\" title=\"{stamp}\">{} UTC</time>", time_of_day(time))
}

/// Returns an age as HTML that shows the time of its begin as a tooltip.
pub(super) fn ago(now: SystemTime, age: Duration) -> String {
    titled(now.checked_sub(age), age)
}

/// Returns the rest of a wait as HTML that shows the time of its end as a tooltip.
pub(super) fn ahead(now: SystemTime, rest: Duration) -> String {
    titled(now.checked_add(rest), rest)
}

fn titled(time: Option<SystemTime>, duration: Duration) -> String {
    let stamp = time.map(stamp).unwrap_or_default();
    format!("<span title=\"{stamp}\">{}</span>", span(duration))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_parts_at_most() {
        for (millis, text) in [
            (0, "0 s"),
            (5, "5.0 ms"),
            (38, "38 ms"),
            (1_234, "1.2 s"),
            (59_999, "59 s"),
            (250_000, "4 m 10 s"),
            (11_520_000, "3 h 12 m"),
            (187_200_000, "2 d 4 h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
        assert_eq!(span(Duration::from_nanos(7)), "1 µs");
        assert_eq!(span(Duration::MAX), format!("{} d 7 h", u64::MAX / 86_400));
    }

    #[test]
    fn durations_that_someone_has_set_have_no_zero_part() {
        for (millis, text) in [
            (0, "0 s"),
            (250, "250 ms"),
            (5_000, "5 s"),
            (1_500, "1.5 s"),
            (30_000, "30 s"),
            (60_000, "1 m"),
            (90_000, "1 m 30 s"),
            (600_000, "10 m"),
            (3_600_000, "1 h"),
            (172_800_000, "2 d"),
        ] {
            assert_eq!(set_span(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(["7", "999", "1,000", "18,231", "1,234,567"], [7, 999, 1000, 18_231, 1_234_567].map(count));
        assert_eq!(["0", "0.4", "9.9", "10", "120"], [0.0, 0.41, 9.94, 9.96, 120.2].map(rate));
        assert_eq!(
            ["–", "0 %", "< 0.1 %", "2.4 %"],
            [(0, 0), (0, 9), (1, 9999), (24, 1000)].map(|(a, b)| percent(a, b))
        );
    }

    #[test]
    fn times_are_in_utc() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!((stamp(time).as_str(), time_of_day(time).as_str()), ("2023-11-14T22:13:20Z", "22:13:20"));
        assert_eq!((date(time).as_str(), minute(time).as_str()), ("2023-11-14", "22:13"));
        let rest = Duration::from_secs(60);
        assert_eq!(ago(time, rest), "<span title=\"2023-11-14T22:12:20Z\">1 m 0 s</span>");
        assert_eq!(ahead(time, rest), "<span title=\"2023-11-14T22:14:20Z\">1 m 0 s</span>");
        assert_eq!(ago(time, Duration::MAX), format!("<span title=\"\">{}</span>", span(Duration::MAX)));
    }
}
