//! Which host names reach the server, and which pages may call it. Both protect people from foreign pages in their
//! browser.

use std::net::IpAddr;

use http::{HeaderName, Method, header};

use crate::http::{PeerInfo, RequestHead};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The allowed host names besides loopback and the server's addresses. In lower case.
#[derive(Clone, Debug, Default)]
pub(super) struct AllowedHosts(pub(super) Vec<String>);

impl AllowedHosts {
    /// Returns a configured name that no request could have.
    pub(super) fn fault(&self) -> Option<&String> {
        let is_host = |name: &str| split_port(name).is_some_and(|(host, port)| port.is_none() && !host.ends_with('.'));
        self.0.iter().find(|name| !is_host(name))
    }

    /// Checks the host that the client asks for. A foreign page can point its own name to this server's address, but
    /// the browser still sends that name.
    pub(super) fn check(&self, head: &RequestHead, local: IpAddr) -> Result<(), String> {
        // HTTP/1.0 clients are not browsers.
        let Some(sent) = &head.host else { return Ok(()) };
        let Some((host, _)) = split_port(sent) else { return Err("the host of the request is invalid".to_owned()) };
        let is_own = match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) => {
                let address = address.to_canonical();
                address.is_loopback() || address == local
            }
            Err(_) => host == "localhost" || host.ends_with(".localhost"),
        };
        if is_own || self.0.iter().any(|allowed| allowed == host.trim_end_matches('.')) {
            return Ok(());
        }
        Err(format!("the server does not answer for the host {host}: add it with `ServerBuilder::allow_host`"))
    }
}

/// Checks that the request was not caused by a page of another site.
pub(super) fn check_origin(head: &RequestHead, peer: &PeerInfo) -> Result<(), &'static str> {
    match head.single(&FETCH_SITE) {
        None | Some("same-origin" | "none") => {}
        // Following a link to a page is allowed.
        Some(_) if head.method == Method::GET && is_navigation(head) => {}
        Some(_) => return Err("pages of other sites may not use this server"),
    }
    let mut origins = head.headers.get_all(header::ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) => Ok(()),
        (Some(origin), None) if origin.to_str().is_ok_and(|origin| is_own_origin(origin, head, peer)) => Ok(()),
        _ => Err("pages of other origins may not use this server"),
    }
}

fn is_navigation(head: &RequestHead) -> bool {
    head.single(&FETCH_MODE) == Some("navigate") && head.single(&FETCH_DEST) == Some("document")
}

/// Returns whether an origin has the host and port that the client asks for.
fn is_own_origin(origin: &str, head: &RequestHead, peer: &PeerInfo) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let default = match scheme {
        // A proxy in front of the server may terminate TLS.
        "https" => 443,
        "http" if !peer.is_tls => 80,
        _ => return false,
    };
    let own = head.host.as_deref().and_then(split_port);
    let authority = authority.to_ascii_lowercase();
    let (Some((host, port)), Some((own_host, own_port))) = (split_port(&authority), own) else { return false };
    host == own_host && port.unwrap_or(default) == own_port.unwrap_or(default)
}

/// Splits an authority into host and port. Returns `None` if they are invalid.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let end = if authority.starts_with('[') {
        authority.find(']')? + 1
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, rest) = authority.split_at(end);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_plain) {
        return None;
    }
    if rest.is_empty() {
        return Some((host, None));
    }
    let port = rest.strip_prefix(':').filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((host, Some(port.parse().ok()?)))
}

#[cfg(test)]
mod tests;
