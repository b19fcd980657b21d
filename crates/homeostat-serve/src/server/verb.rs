//! The verbs of requests in metrics, as Kubernetes names them.

use http::{Method, header};

use crate::http::{RequestHead, is_false};

/// Returns the verb of a request. Objects also have `LIST`, `WATCH`, `APPLY` and `DELETECOLLECTION`. The set is fixed,
/// so that clients cannot fill the memory with new verbs.
pub(super) fn metric_verb(head: &RequestHead) -> &'static str {
    let target = RequestedPart::of(head);
    match (&head.method, target) {
        (&Method::GET | &Method::HEAD, RequestedPart::Objects { is_watch: true, .. }) => "WATCH",
        (&Method::GET | &Method::HEAD, RequestedPart::Objects { is_one: false, .. }) => "LIST",
        (&Method::DELETE, RequestedPart::Objects { is_one: false, .. }) => "DELETECOLLECTION",
        (&Method::PATCH, RequestedPart::Objects { .. }) if is_apply(head) => "APPLY",
        (&Method::GET, _) => "GET",
        (&Method::HEAD, _) => "HEAD",
        (&Method::POST, _) => "POST",
        (&Method::PUT, _) => "PUT",
        (&Method::PATCH, _) => "PATCH",
        (&Method::DELETE, _) => "DELETE",
        _ => "other",
    }
}

enum RequestedPart {
    Objects {
        is_one: bool,
        is_watch: bool,
    },
    /// Any other page.
    Page,
}

impl RequestedPart {
    fn of(head: &RequestHead) -> Self {
        let segments: Vec<_> = head.target.segments.iter().map(String::as_str).collect();
        let (["api", _, path @ ..] | ["apis", _, _, path @ ..]) = &segments[..] else { return Self::Page };
        let path = match path {
            [] => return Self::Page,
            // The rest is inside a namespace.
            ["namespaces", _, rest @ ..] if !rest.is_empty() && rest[0] != "status" => rest,
            path => path,
        };
        let watch = head.target.query.iter().find(|(name, _)| name == "watch").map(|(_, value)| value.as_str());
        let is_watch = watch.is_some_and(|value| !is_false(value));
        Self::Objects { is_one: path.len() > 1, is_watch }
    }
}

fn is_apply(head: &RequestHead) -> bool {
    head.single(&header::CONTENT_TYPE).is_some_and(|media| media.starts_with("application/apply-patch"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

    use super::*;
    use crate::http::{HttpLimits, parse_request_head};

    #[test]
    fn verbs_are_those_of_kubernetes() {
        const SITES: &str = "/apis/example.com/v1/namespaces/default/sites";
        for (method, path, verb) in [
            ("GET", "/metrics", "GET"),
            ("HEAD", "/metrics", "HEAD"),
            ("GET", "/api/v1", "GET"),
            ("GET", "/api/v1/nodes", "LIST"),
            ("GET", "/api/v1/nodes?watch=true", "WATCH"),
            ("GET", "/api/v1/nodes?watch=0", "LIST"),
            ("GET", "/api/v1/nodes/a", "GET"),
            ("GET", "/api/v1/namespaces", "LIST"),
            ("GET", "/api/v1/namespaces/default", "GET"),
            ("GET", SITES, "LIST"),
            ("GET", &format!("{SITES}/a/status"), "GET"),
            ("POST", SITES, "POST"),
            ("PUT", &format!("{SITES}/a"), "PUT"),
            ("DELETE", &format!("{SITES}/a"), "DELETE"),
            ("DELETE", SITES, "DELETECOLLECTION"),
            ("OPTIONS", "/", "other"),
            ("BREW", SITES, "other"),
        ] {
            let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let head = parse_request_head(head.as_bytes(), &HttpLimits::default()).unwrap();
            assert_eq!(metric_verb(&head), verb, "{method} {path}");
        }
        for (media, verb) in [("application/apply-patch+yaml", "APPLY"), ("application/merge-patch+json", "PATCH")] {
            let head = format!("PATCH {SITES}/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\n\r\n");
            let head = parse_request_head(head.as_bytes(), &HttpLimits::default()).unwrap();
            assert_eq!(metric_verb(&head), verb);
        }
    }
}
