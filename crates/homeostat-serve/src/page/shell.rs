//! The frame of every page: HTML, style and script in one document, and the headers that protect it.

use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::escape::{line, name};
use super::tab::Tab;
use crate::http::Reply;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The policy allows only this style and this script, by their hashes. A test computes the hashes.
const POLICY: &str = "default-src 'none'; \
    style-src 'sha256-eH/E/+vIQJXhqEtGuQyOhe8qHrpvo0XitrwvNnALvWk='; \
    script-src 'sha256-4hHdAoJzdHDuYdul4veoVzcxyEPR2Wcu0Wxoidb57no='; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Returns a complete page for this user. `live` is the HTML of its changing part.
pub(super) fn whole_page(status: StatusCode, tab: &Tab, user: &str, live: &str) -> Reply {
    let user = if user.is_empty() { String::new() } else { format!("<span>you are <b>{}</b></span>", name(user)) };
    let title = line(&tab.title).to_string();
    let parts = [
        ("{{title}}", title.as_str()),
        ("{{icon}}", tab.icon()),
        ("{{style}}", STYLE),
        ("{{user}}", user.as_str()),
        ("{{live}}", live),
        ("{{script}}", SCRIPT),
    ];
    let (mut page, mut rest) = (String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len() + live.len()), PAGE);
    for (mark, content) in parts {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        page.push_str(before);
        page.push_str(content);
        rest = after;
    }
    page.push_str(rest);
    html(status, page)
}

/// Returns only the changing part of a page.
pub(super) fn live_part(status: StatusCode, live: String) -> Reply {
    html(status, live)
}

fn html(status: StatusCode, page: String) -> Reply {
    let mut reply = Reply::new(status, "text/html; charset=utf-8", page);
    protect(&mut reply.headers);
    reply.headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    reply.headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    reply
}

/// Adds headers to every reply that forbid caching, content type guessing, and referrers to other sites. Browsers send
/// the origin of a form, which the server checks, only if they may send a referrer.
pub(super) fn protect(headers: &mut HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use ring::digest::{SHA256, digest};

    use super::*;

    #[test]
    fn the_policy_has_the_hashes_of_the_style_and_the_script() {
        for (kind, text) in [("style", STYLE), ("script", SCRIPT)] {
            let expected = format!("{kind}-src 'sha256-{}'", STANDARD.encode(digest(&SHA256, text.as_bytes())));
            assert!(POLICY.contains(&expected), "write into POLICY: {expected}");
        }
    }

    #[test]
    fn neither_style_nor_script_ends_its_element_early() {
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</"));
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        for text in [PAGE, STYLE, SCRIPT] {
            assert!(!text.contains("http://") && !text.contains("https://") && !text.contains("@import"));
        }
    }
}
