//! Tests of the pages as a browser gets them.
#![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

mod acting;
mod following;
mod handling;
mod home;
mod places;
mod program;
mod words;

use std::net::{Ipv4Addr, SocketAddr};

use http::{HeaderMap, HeaderValue, Method, header};
use percent_encoding::percent_decode_str;

use crate::UserInfo;
use crate::http::IncomingRequest;

/// Returns the text of HTML without its tags, as a phone shows it: without tooltips.
pub(super) fn visible(html: &str) -> String {
    html.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect()
}

/// Returns the request that the server would create for this target.
fn get(target: &str) -> IncomingRequest {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    };
    IncomingRequest {
        method: Method::GET,
        path: path.to_owned(),
        segments: path.split('/').filter(|part| !part.is_empty()).map(decoded).collect(),
        query: query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect(),
        headers: HeaderMap::new(),
        body: Vec::new(),
        user: UserInfo::default(),
        peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        connection: 1,
    }
}

/// Returns the request of a form from this user.
fn post(target: &str, user: &str, body: &str) -> IncomingRequest {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    let (user, body) = (UserInfo::new(user), body.as_bytes().to_vec());
    IncomingRequest { method: Method::POST, headers, body, user, ..get(target) }
}
