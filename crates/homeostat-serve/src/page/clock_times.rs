//! Clock times beside durations: a phone shows no tooltips.

use std::time::{Duration, SystemTime};

use super::units::{ago, ahead, date, time};

/// Returns a clock time as HTML, with its date if `now` is on another day.
pub(super) fn clock_time(now: SystemTime, at: SystemTime) -> String {
    let day = if date(at) == date(now) { String::new() } else { date(at) + " " };
    format!("{day}{}", time(at))
}

/// Returns how long something lasts, and the time of its begin, as HTML.
pub(super) fn lasts(now: SystemTime, age: Duration) -> String {
    let begin = now.checked_sub(age).map(|begin| format!(" <small>since {}</small>", clock_time(now, begin)));
    ago(now, age) + &begin.unwrap_or_default()
}

/// Returns the time of something that has happened, and how long ago that was, as HTML.
pub(super) fn happened(now: SystemTime, age: Duration) -> String {
    let at = now.checked_sub(age).map(|at| clock_time(now, at) + " ").unwrap_or_default();
    format!("{at}<small>{} ago</small>", ago(now, age))
}

/// Returns when something will happen, as HTML: the rest of the wait and the time of its end.
pub(super) fn happens(now: SystemTime, rest: Duration) -> String {
    let end = now.checked_add(rest).map(|end| format!(" <small>at {}</small>", clock_time(now, end)));
    format!("in {}{}", ahead(now, rest), end.unwrap_or_default())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::page::tests::visible as text;

    #[test]
    fn clock_times_are_in_the_text_and_have_a_date_on_other_days_only() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let [minute, day] = [60, 86_400].map(Duration::from_secs);
        assert_eq!(text(&lasts(now, minute)), "1 m 0 s since 22:12:20 UTC");
        assert_eq!(text(&lasts(now, day)), "1 d 0 h since 2023-11-13 22:13:20 UTC");
        assert_eq!(text(&happened(now, minute)), "22:12:20 UTC 1 m 0 s ago");
        assert_eq!(text(&happened(now, day)), "2023-11-13 22:13:20 UTC 1 d 0 h ago");
        assert_eq!(text(&happens(now, minute)), "in 1 m 0 s at 22:14:20 UTC");
        assert_eq!(text(&happens(now, day)), "in 1 d 0 h at 2023-11-15 22:13:20 UTC");
    }

    #[test]
    fn times_beyond_the_clock_have_only_a_duration() {
        let now = SystemTime::UNIX_EPOCH;
        for html in [lasts(now, Duration::MAX), happened(now, Duration::MAX), happens(now, Duration::MAX)] {
            assert!(!html.contains("UTC"), "{html}");
        }
    }
}
