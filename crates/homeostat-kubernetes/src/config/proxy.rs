//! Proxies, and the hosts that need none according to the variable `NO_PROXY`. Plain values.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// A proxy's URL. Its `Debug` output shows neither the user nor the password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ProxyUrl {
    /// The setting with the URL, for errors.
    pub(crate) origin: String,
    url: String,
}

impl ProxyUrl {
    pub(crate) fn new(origin: impl Into<String>, url: impl Into<String>) -> Self {
        Self { origin: origin.into(), url: url.into() }
    }

    /// Returns the complete URL, to connect to the proxy.
    pub(crate) fn reveal(&self) -> &str {
        &self.url
    }
}

impl fmt::Debug for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A password may have any character, so only the text after the last `@` is certainly not part of the password.
        match self.url.rsplit_once('@') {
            Some((_, host)) => write!(f, "(secret)@{host}"),
            None => f.write_str(&self.url),
        }
    }
}

/// A list of hosts to reach without a proxy.
///
/// An entry is a host name, which includes its subdomains; a name with a leading dot, which means only the subdomains;
/// an address; a network such as `10.0.0.0/8`; or `*` for everything. A host or address can have a port. These are the
/// rules of Go's `golang.org/x/net/http/httpproxy`, which `kubectl` uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NoProxy(Vec<NoProxyEntry>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum NoProxyEntry {
    All,
    Network(IpNet),
    Address(IpAddr, Option<u16>),
    /// `suffix` is the name with a leading dot.
    Name {
        suffix: String,
        itself: bool,
        port: Option<u16>,
    },
}

impl NoProxy {
    /// Parses a comma-separated list of entries. Skips empty entries.
    pub(crate) fn parse(list: &str) -> Self {
        Self(list.split(',').filter_map(NoProxyEntry::parse).collect())
    }

    /// Returns whether a host needs no proxy. Always true for this computer. An IPv6 address may have brackets.
    pub(crate) fn contains(&self, host: &str, port: u16) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
        let address = host.parse::<IpAddr>().ok();
        host == "localhost"
            || address.is_some_and(|address| address.is_loopback())
            || self.0.iter().any(|entry| entry.contains(&host, address, port))
    }
}

impl NoProxyEntry {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        if text.is_empty() {
            return None;
        }
        if text == "*" {
            return Some(Self::All);
        }
        if let Ok(network) = text.parse() {
            return Some(Self::Network(network));
        }
        if let Ok(address) = text.trim_start_matches('[').trim_end_matches(']').parse() {
            return Some(Self::Address(address, None));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (text.as_str(), None),
        };
        if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse() {
            return Some(Self::Address(address, port));
        }
        let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        let itself = !host.starts_with('.');
        let suffix = if itself { format!(".{host}") } else { host.to_owned() };
        Some(Self::Name { suffix, itself, port })
    }

    fn contains(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        match self {
            Self::All => true,
            Self::Network(network) => address.is_some_and(|address| network.contains(&address)),
            Self::Address(own, own_port) => address == Some(*own) && own_port.is_none_or(|own| own == port),
            Self::Name { suffix, itself, port: own_port } => {
                let is_named = host.ends_with(suffix.as_str()) || (*itself && host == &suffix[1..]);
                address.is_none() && is_named && own_port.is_none_or(|own| own == port)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases are rewritten from Go's `httpproxy` tests (BSD licence) and from kube-rs issues about `NO_PROXY`.
    #[test]
    fn no_proxy_follows_the_rules_of_go() {
        let cases = [
            ("", "example.com", 80, false),
            ("", "localhost", 6443, true),
            ("", "127.0.0.9", 6443, true),
            ("", "[::1]", 6443, true),
            ("*", "example.com", 80, true),
            ("example.com", "example.com", 80, true),
            ("example.com", "EXAMPLE.com.", 80, true),
            ("example.com", "api.example.com", 80, true),
            ("example.com", "badexample.com", 80, false),
            (".example.com", "example.com", 80, false),
            (".example.com", "api.example.com", 80, true),
            ("*.example.com", "api.example.com", 80, true),
            ("*.example.com", "example.com", 80, false),
            ("example.com:6443", "example.com", 6443, true),
            ("example.com:6443", "example.com", 443, false),
            ("10.0.0.0/8", "10.20.30.40", 6443, true),
            ("10.0.0.0/8", "11.0.0.1", 6443, false),
            ("10.0.0.0/8", "10.example.com", 6443, false),
            ("10.0.0.1", "10.0.0.1", 6443, true),
            ("10.0.0.1:443", "10.0.0.1", 6443, false),
            ("fd00::/8", "[fd12::1]", 6443, true),
            ("[fd12::1]:6443", "fd12::1", 6443, true),
            ("fd12::1", "[fd12::1]", 443, true),
            (" , a.example , .svc,.cluster.local", "kubernetes.default.svc", 443, true),
            ("a:b", "a", 443, false),
        ];
        for (list, host, port, direct) in cases {
            assert_eq!(NoProxy::parse(list).contains(host, port), direct, "{list:?}: {host}:{port}");
        }
    }
}
