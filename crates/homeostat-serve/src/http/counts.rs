//! The counts of a server.

use std::collections::BTreeMap;

use http::StatusCode;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counts that the threads of a server share.
#[derive(Debug, Default)]
pub(crate) struct HttpCounts {
    pub(crate) accepted: AtomicU64,
    /// Connections refused because the server had too many, or could not start a thread.
    pub(crate) refused_by_server: AtomicU64,
    /// Connections refused because their address had too many.
    pub(crate) refused_by_client: AtomicU64,
    /// Streams that ended because there was no memory for their next part.
    pub(crate) dropped_streams: AtomicU64,
    /// Connections that ended before TLS was established.
    pub(crate) failed_handshakes: AtomicU64,
    /// Requests with valid credentials.
    pub(crate) authenticated: AtomicU64,
    /// Requests with wrong credentials.
    pub(crate) unauthenticated: AtomicU64,
    /// Replies that told a failed health check. They are not among the other replies, because the server works.
    pub(crate) failed_checks: AtomicU64,
    /// Other replies by verb and status.
    replies: Mutex<BTreeMap<(&'static str, u16), ReplyCount>>,
}

/// The replies of one verb and status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplyCount {
    pub(crate) count: u64,
    /// The path of the last reply with an error. An object is shown as `…`, because its name may be secret.
    pub(crate) path: String,
}

/// Returns the number of replies with a status of this class, such as 5 for 500 to 599.
pub(crate) fn of_class(replies: &BTreeMap<(&'static str, u16), ReplyCount>, class: u16) -> u64 {
    replies.iter().filter(|((_, code), _)| code / 100 == class).map(|(_, of)| of.count).sum()
}

/// How much of a path is kept, in characters.
const KEPT: usize = 200;

impl HttpCounts {
    /// Counts a reply to a request with this verb and path.
    pub(super) fn reply(&self, verb: &'static str, path: &str, status: StatusCode) {
        let mut replies = self.replies.lock();
        let of_kind = replies.entry((verb, status.as_u16())).or_default();
        of_kind.count += 1;
        if status.is_client_error() || status.is_server_error() {
            of_kind.path = without_object(path);
        }
    }

    /// Returns the replies by verb and status.
    pub(crate) fn replies(&self) -> BTreeMap<(&'static str, u16), ReplyCount> {
        self.replies.lock().clone()
    }
}

/// Returns a path with `…` in place of an object's name and what follows.
pub(super) fn without_object(path: &str) -> String {
    let segments: Vec<_> = path.split('/').collect();
    let kind = match segments[..] {
        [_, "api", _, "namespaces", _, _, ..] => 6,
        [_, "apis", _, _, "namespaces", _, _, ..] => 7,
        [_, "api", _, _, ..] => 4,
        [_, "apis", _, _, _, ..] => 5,
        _ => segments.len(),
    };
    let end = if kind < segments.len() { "/…" } else { "" };
    let shown = segments[..kind].join("/") + end;
    if shown.chars().count() > KEPT { shown.chars().take(KEPT).chain(['…']).collect() } else { shown }
}

/// Adds one to a count.
pub(crate) fn increment(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}

/// Reads a count.
pub(crate) fn value(count: &AtomicU64) -> u64 {
    count.load(Relaxed)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_path_with_an_error_is_kept_without_the_name_of_an_object() {
        let counts = HttpCounts::default();
        counts.reply("GET", "/fine", StatusCode::OK);
        for path in ["/first", "/last"] {
            counts.reply("GET", path, StatusCode::NOT_FOUND);
        }
        let of = |count, path: &str| ReplyCount { count, path: path.to_owned() };
        assert_eq!(counts.replies(), [(("GET", 200), of(1, "")), (("GET", 404), of(2, "/last"))].into());
        for (path, shown) in [
            ("/", "/"),
            ("/objects/a/b/c", "/objects/a/b/c"),
            ("/api/v1/secrets", "/api/v1/secrets"),
            ("/api/v1/nodes/one", "/api/v1/nodes/…"),
            ("/api/v1/namespaces/default", "/api/v1/namespaces/…"),
            ("/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/secrets"),
            ("/api/v1/namespaces/default/secrets/key", "/api/v1/namespaces/default/secrets/…"),
            ("/apis/example.com/v1/sites/home/status", "/apis/example.com/v1/sites/…"),
            ("/apis/example.com/v1/namespaces/a/sites/b", "/apis/example.com/v1/namespaces/a/sites/…"),
        ] {
            assert_eq!(without_object(path), shown);
        }
        assert_eq!(without_object(&"é".repeat(300)).chars().count(), KEPT + 1);
    }
}
