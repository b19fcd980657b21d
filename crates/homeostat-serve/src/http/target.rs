//! The target of a request: its path and query, decoded once.

use percent_encoding::percent_decode_str;

/// The target of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestTarget {
    /// The host and port of an absolute target, such as `http://host:port/path`.
    pub(crate) authority: Option<String>,
    /// The path as sent. Begins with `/`.
    pub(crate) path: String,
    pub(crate) segments: Vec<String>,
    pub(crate) query: Vec<(String, String)>,
}

/// Parses a target. An error describes the fault.
pub(crate) fn parse_target(target: &str) -> Result<RequestTarget, &'static str> {
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the target has characters that must be percent-encoded");
    }
    if target.contains('#') {
        return Err("the target has a fragment");
    }
    let (authority, rest) = split_authority(target)?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = if path.is_empty() && authority.is_some() { "/" } else { path };
    let Some(inner) = path.strip_prefix('/') else {
        return Err("the path does not begin with a slash");
    };
    // People type a final slash.
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    let segments = match inner {
        "" if path.len() > 1 => return Err("the path has an empty segment"),
        "" => Vec::new(),
        inner => inner.split('/').map(segment).collect::<Result<_, _>>()?,
    };
    let query = query.split('&').filter(|pair| !pair.is_empty()).map(parameter).collect::<Result<_, _>>()?;
    Ok(RequestTarget { authority: authority.map(str::to_ascii_lowercase), path: path.to_owned(), segments, query })
}

/// Returns the single canonical path for these segments. A slash within a segment is written as `%2F`.
pub(crate) fn canonical_path(segments: &[String]) -> String {
    if segments.is_empty() {
        return "/".to_owned();
    }
    let encoded = segments.iter().flat_map(|segment| ["/".to_owned(), segment.replace('%', "%25").replace('/', "%2F")]);
    encoded.collect()
}

fn split_authority(target: &str) -> Result<(Option<&str>, &str), &'static str> {
    if target.starts_with('/') {
        return Ok((None, target));
    }
    let has_scheme = |scheme: &str| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    let Some(scheme) = ["http://", "https://"].into_iter().find(|scheme| has_scheme(scheme)) else {
        return Err("the target is neither a path nor an http URL");
    };
    let rest = &target[scheme.len()..];
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.is_empty() || authority.contains('@') {
        return Err("the target has no plain host");
    }
    Ok((Some(authority), path))
}

fn segment(encoded: &str) -> Result<String, &'static str> {
    let decoded = decode(encoded)?;
    match decoded.as_str() {
        "" => Err("the path has an empty segment"),
        "." | ".." => Err("the path has a segment of dots"),
        segment if segment.contains(char::is_control) => Err("the path has a control character"),
        _ => Ok(decoded),
    }
}

fn parameter(pair: &str) -> Result<(String, String), &'static str> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    // Forms encode a space as a plus.
    Ok((decode(&name.replace('+', " "))?, decode(&value.replace('+', " "))?))
}

fn decode(encoded: &str) -> Result<String, &'static str> {
    let mut rest = encoded.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        let digits = rest.get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err("the target has a percent sign without two hexadecimal digits");
        }
        rest = &rest[at + 3..];
    }
    let decoded = percent_decode_str(encoded).decode_utf8();
    decoded.map(std::borrow::Cow::into_owned).map_err(|_| "the target is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(target: &str) -> Result<Vec<String>, &'static str> {
        parse_target(target).map(|target| target.segments)
    }

    #[test]
    fn paths_are_decoded_once_and_keep_their_segments() {
        for (target, expected) in [
            ("/", vec![]),
            ("/?a", vec![]),
            ("/api", vec!["api"]),
            ("/api/", vec!["api"]),
            ("/a/b%2Fc/d", vec!["a", "b/c", "d"]),
            ("/a%20b+c", vec!["a b+c"]),
            ("/%252e%252e", vec!["%2e%2e"]),
            ("/gr%C3%B6%C3%9Fe", vec!["größe"]),
            ("/...", vec!["..."]),
            ("/a;b=c", vec!["a;b=c"]),
            ("/a\\..\\b", vec!["a\\..\\b"]),
        ] {
            assert_eq!(segments(target).unwrap(), expected, "{target}");
        }
    }

    #[test]
    fn paths_that_two_readers_may_read_differently_are_refused() {
        for target in [
            "",
            "a",
            "*",
            "//",
            "///",
            "//a",
            "/a//b",
            "/a//",
            "/.",
            "/..",
            "/a/../b",
            "/a/./b",
            "/%2e%2E/a",
            "/.%2e",
            "/a%00",
            "/a%0a",
            "/%ff",
            "/%c0%af",
            "/%",
            "/%2",
            "/%zz",
            "/%+1",
            "/a?b=%",
            "/a?b=%ff",
            "/größe",
            "/a#b",
            "/a b",
            "ftp://a/b",
            "http:///a",
            "http://u@h/a",
            "host:80",
            "http://h//a",
            "%2fa",
        ] {
            assert!(segments(target).is_err(), "{target}");
        }
    }

    #[test]
    fn absolute_targets_name_their_host() {
        for (target, authority, path) in [
            ("http://Localhost:80/a?b=c", "localhost:80", "/a"),
            ("HTTPS://[::1]/", "[::1]", "/"),
            ("http://h", "h", "/"),
            ("http://h?a=b", "h", "/"),
        ] {
            let target = parse_target(target).unwrap();
            assert_eq!((target.authority.as_deref(), target.path.as_str()), (Some(authority), path));
        }
        assert_eq!(parse_target("/a").unwrap().authority, None);
    }

    #[test]
    fn queries_are_decoded() {
        let target = parse_target("/a?labelSelector=a%3Db%2Cc&watch&x=1+2&x=&&=y%26").unwrap();
        let expected = [("labelSelector", "a=b,c"), ("watch", ""), ("x", "1 2"), ("x", ""), ("", "y&")];
        assert_eq!(target.query, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn different_segments_have_different_canonical_paths() {
        for (target, path) in [("/", "/"), ("/m%65trics/", "/metrics"), ("/a%2fb", "/a%2Fb"), ("/a%252fb", "/a%252fb")]
        {
            assert_eq!(canonical_path(&segments(target).unwrap()), path);
        }
    }
}
