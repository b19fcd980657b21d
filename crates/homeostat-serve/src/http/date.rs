//! The time in HTTP headers.

use std::time::SystemTime;

use jiff::Timestamp;

/// Formats a time for HTTP, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn http_date(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::http_date;

    #[test]
    fn a_date_has_the_form_of_http() {
        assert_eq!(http_date(UNIX_EPOCH + Duration::from_secs(784_111_777)), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
