//! Checks the settings of a server: addresses, limits and paths.

use std::fmt;
use std::net::SocketAddr;

use super::service::is_object_root;
use crate::http::HttpLimits;
use homeostat::base::StartError;

/// Checks that a server listens only on loopback, unless it may serve a network and has users or allows anonymous
/// ones.
pub(super) fn check_addresses(
    addresses: &[SocketAddr],
    on_network: bool,
    knows_clients: bool,
) -> Result<(), StartError> {
    let Some(address) = addresses.iter().find(|address| !address.ip().to_canonical().is_loopback()) else {
        return Ok(());
    };
    let address = PlainAddress(address);
    if !on_network {
        let rule = "on loopback; to serve a network, call `listen_on_network`";
        return Err(StartError::setting("address", &address, rule));
    }
    if !knows_clients {
        let rule = "on loopback, because the server has no users; add users, or call `allow_anonymous`";
        return Err(StartError::setting("address", &address, rule));
    }
    Ok(())
}

/// Checks that times and counts are above zero, and that there is room for each body.
pub(super) fn check_limits(limits: &HttpLimits) -> Result<(), StartError> {
    let times = [
        ("head_timeout", limits.head_time),
        ("body_timeout", limits.body_time),
        ("idle_timeout", limits.idle_time),
        ("write_timeout", limits.write_time),
        ("stream_life", limits.stream_life),
    ];
    for (field, time) in times {
        if time.is_zero() {
            return Err(StartError::setting(field, &time, "longer than zero"));
        }
    }
    let counts = [
        ("connections", limits.connections),
        ("connections_per_client", limits.connections_per_client),
        ("streams_per_client", limits.streams_per_client),
        ("reply_memory", limits.replies),
    ];
    for (field, count) in counts {
        if count == 0 {
            return Err(StartError::setting(field, &count, "above zero"));
        }
    }
    if limits.body > limits.bodies {
        return Err(StartError::setting("body_limit", &limits.body, "at most 96 MiB"));
    }
    Ok(())
}

/// Checks the paths that everyone may read.
pub(super) fn check_public_paths(paths: &[String]) -> Result<(), StartError> {
    match paths.iter().find(|path| !is_plain_path(path)) {
        Some(path) => {
            let rule = "a path such as /livez, without a query and without a slash at its end";
            Err(StartError::setting("public_path", path, rule))
        }
        None => Ok(()),
    }
}

/// Checks the paths of admission reviews.
pub(super) fn check_review_paths(paths: &[&str]) -> Result<(), StartError> {
    for (number, path) in paths.iter().enumerate() {
        if !is_plain_path(path) || is_object_root(path[1..].split('/').next().unwrap_or_default()) {
            let rule = "a path such as /admission/mutate, and not below /api, /apis, /openapi and /version";
            return Err(StartError::setting("admission_reviews", path, rule));
        }
        if paths[..number].contains(path) {
            return Err(StartError::setting("admission_reviews", path, "the path of one reviewer only"));
        }
    }
    Ok(())
}

/// Returns whether this path is in canonical form, so that requests can match it.
fn is_plain_path(path: &str) -> bool {
    let Some(inner) = path.strip_prefix('/') else { return false };
    inner.is_empty() || inner.split('/').all(|part| !["", ".", ".."].contains(&part) && !part.contains(['?', '#', '%']))
}

/// Shows an address without quotes.
struct PlainAddress<'a>(&'a SocketAddr);

impl fmt::Debug for PlainAddress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0, f)
    }
}
