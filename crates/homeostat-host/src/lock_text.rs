//! The text of a lock file: it names the leader for people. A process leads by its lock, not by this text.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use homeostat::manager::Holder;

/// The first line of a lock file. A file that begins otherwise belongs to another program, and is not written.
const HEAD: &str = "homeostat leader\n";

/// Parses the content of a lock file. Returns an empty value for a file of another program.
pub(crate) fn parse(content: &[u8]) -> Holder {
    let text = String::from_utf8_lossy(content);
    let lines = text.strip_prefix(HEAD).unwrap_or_default();
    let mut holder = Holder::default();
    // An incomplete last line does not count.
    for line in lines.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        match line.split_once(": ") {
            Some(("name", name)) => holder.name = Some(name.to_owned()),
            Some(("pid", pid)) => holder.pid = pid.parse().ok(),
            Some(("since", since)) => holder.since = since.parse().ok().and_then(time),
            _ => {}
        }
    }
    holder
}

fn time(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Returns the text of a lock file.
pub(crate) fn text(name: &str, pid: u32, since: SystemTime) -> String {
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("{HEAD}name: {name}\npid: {pid}\nsince: {since}\n")
}

/// Returns whether a file with this content may be written: it is empty, or a lock file of this crate.
pub(crate) fn is_ours(content: &[u8]) -> bool {
    content.is_empty() || content.starts_with(HEAD.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_its_own_text() {
        let text = text("a: b", 77, UNIX_EPOCH + Duration::from_millis(1_999));
        assert_eq!(text, "homeostat leader\nname: a: b\npid: 77\nsince: 1\n");
        let holder = parse(text.as_bytes());
        assert_eq!((holder.name.as_deref(), holder.pid, holder.since), (Some("a: b"), Some(77), time(1)));
        assert_eq!(holder.to_string(), "a: b (pid 77)");
    }

    #[test]
    fn ignores_incomplete_lines_and_foreign_files() {
        let cut = parse(b"homeostat leader\nname: a\npid: 7");
        assert_eq!((cut.name.as_deref(), cut.pid, cut.since), (Some("a"), None, None));
        assert_eq!(parse(format!("{HEAD}pid: x\nsince: {}\n", u64::MAX).as_bytes()), Holder::default());
        for other in [&b""[..], b"homeostat", b"name: a\n", b"\xff\xfe", b"\0\0\0"] {
            assert_eq!(parse(other), Holder::default());
        }
        assert_eq!(Holder::default().to_string(), "somebody unknown");
    }

    #[test]
    fn only_empty_files_and_lock_files_are_ours() {
        for ours in [&b""[..], b"homeostat leader\n", b"homeostat leader\nname: a"] {
            assert!(is_ours(ours), "{ours:?}");
        }
        for other in [&b"1234\n"[..], b"homeostat leader of another kind\n", b"\0\0"] {
            assert!(!is_ours(other), "{other:?}");
        }
    }
}
