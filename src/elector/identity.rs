//! What stands in a lock file: who leads, for people to read. Decides nothing: only the lock does.

use std::fmt::{self, Write};
use std::time::Duration;

/// How the text begins. A file that begins otherwise is somebody else's, and is not written to.
const HEAD: &str = "homeostat leader\n";

/// Who leads, as far as the lock file tells: what [`FileElector::holder`](crate::FileElector::holder) returns. Prints as a
/// line for a status page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    name: Option<String>,
    pid: Option<u32>,
    since: Option<String>,
}

impl Holder {
    pub(super) fn new(name: &str, pid: u32, since_1970: Duration) -> Self {
        Self { name: Some(name.to_owned()), pid: Some(pid), since: Some(utc(since_1970.as_secs())) }
    }

    /// The [name](crate::FileElectorBuilder::name) that its elector was given.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The id of its process, as that process sees it: in a container it may be another one outside.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// When it was elected, by the clock on the wall, as in `2025-11-30T09:05:00Z`.
    #[must_use]
    pub fn since(&self) -> Option<&str> {
        self.since.as_deref()
    }

    /// The text of the file.
    pub(super) fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (key, value) in
            [("name", &self.name), ("pid", &self.pid.map(|pid| pid.to_string())), ("since", &self.since)]
        {
            if let Some(value) = value {
                let _ = writeln!(text, "{key}: {value}");
            }
        }
        text
    }

    /// What can be read out of a file, which is nothing if it is somebody else's.
    pub(super) fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let lines = text.strip_prefix(HEAD).unwrap_or_default();
        // The last line counts only if it is whole.
        let lines = lines.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.split_once(": "));
        lines.fold(Self::default(), |mut holder, (key, value)| {
            match key {
                "name" => holder.name = Some(value.to_owned()),
                "pid" => holder.pid = value.parse().ok(),
                "since" => holder.since = Some(value.to_owned()),
                _ => {}
            }
            holder
        })
    }
}

/// Whether a file with this content is a lock file of this crate, or was going to be one when the machine went down.
pub(super) fn is_ours(content: &[u8]) -> bool {
    content.starts_with(HEAD.as_bytes())
        || HEAD.as_bytes().starts_with(content)
        || content.iter().all(|byte| *byte == 0)
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("somebody unknown"))?;
        if let Some(pid) = self.pid {
            write!(f, " (pid {pid})")?;
        }
        match &self.since {
            Some(since) => write!(f, " since {since}"),
            None => Ok(()),
        }
    }
}

/// Seconds since 1970 as a date and a time, by the proleptic Gregorian calendar (Howard Hinnant's `civil_from_days`: years that
/// begin in March, in cycles of 400).
fn utc(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = cycle * 400 + year + u64::from(month <= 2);
    let (hours, minutes, seconds) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}Z")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// As `date -u -d @<seconds>` has them.
    #[test]
    fn seconds_become_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (86_399, "1970-01-01T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_764_493_500, "2025-11-30T09:05:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), date);
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let holder = Holder::new("a: b", 77, Duration::from_millis(1_999));
        assert_eq!(holder.text(), "homeostat leader\nname: a: b\npid: 77\nsince: 1970-01-01T00:00:01Z\n");
        assert_eq!(Holder::parse(holder.text().as_bytes()), holder);
        assert_eq!(holder.to_string(), "a: b (pid 77) since 1970-01-01T00:00:01Z");
    }

    #[test]
    fn what_is_not_whole_or_not_ours_is_not_read() {
        let cut = Holder::parse(b"homeostat leader\nname: a\npid: 7");
        assert_eq!((cut.name(), cut.pid()), (Some("a"), None));
        for other in [&b""[..], b"homeostat", b"name: a\n", b"\xff\xfe", b"\0\0\0"] {
            assert_eq!(Holder::parse(other), Holder::default());
        }
        assert_eq!(Holder::default().to_string(), "somebody unknown");
    }

    #[test]
    fn a_file_is_ours_if_we_may_have_written_it() {
        for ours in [&b""[..], b"homeo", b"homeostat leader\n", b"homeostat leader\nname: a", b"\0\0\0\0"] {
            assert!(is_ours(ours), "{ours:?}");
        }
        for other in [&b"1234\n"[..], b"homeostat leader of another kind\n", b"\0x"] {
            assert!(!is_ours(other), "{other:?}");
        }
    }
}
