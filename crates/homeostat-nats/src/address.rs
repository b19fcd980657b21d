//! Server addresses.

use std::fmt;
use std::net::IpAddr;

use super::error::NatsError;
use percent_encoding::percent_decode_str;

const DEFAULT_PORT: u16 = 4222;

/// The address of a server, with its optional credentials.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ServerAddress {
    pub(super) host: String,
    pub(super) port: u16,
    /// Set by the scheme `tls`.
    pub(super) tls: bool,
    /// The user name and password, or a token in place of the user name.
    pub(super) login: Option<(String, Option<String>)>,
    /// The name that the server's certificate must have. `None` means the host.
    pub(super) certified: Option<String>,
}

impl ServerAddress {
    /// Parses `nats://user:password@host:port`. Scheme, credentials and port are optional.
    pub(super) fn parse(text: &str) -> Result<Self, NatsError> {
        // Keep the password out of errors.
        let shown = match (text.split_once("://"), text.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
            (None, Some((_, host))) => format!("…@{host}"),
            _ => text.to_owned(),
        };
        let fault = |rule: &str| NatsError::invalid("server", &shown, rule);
        let (scheme, rest) = text.split_once("://").unwrap_or(("nats", text));
        let tls = match scheme {
            "nats" => false,
            "tls" => true,
            _ => return Err(fault("an address with the scheme nats or tls")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (login, place) = match rest.rsplit_once('@') {
            None => (None, rest),
            Some((login, place)) => {
                let (user, password) = match login.split_once(':') {
                    Some((user, password)) => (user, Some(password)),
                    None => (login, None),
                };
                let decode = |text| decode(text).ok_or_else(|| fault("an address with valid percent-encoding"));
                (Some((decode(user)?, password.map(decode).transpose()?)), place)
            }
        };
        let (host, port) = match place.strip_prefix('[').map(|place| place.split_once(']')) {
            Some(Some((host, ""))) => (host, None),
            Some(Some((host, port))) => {
                (host, Some(port.strip_prefix(':').ok_or_else(|| fault("an address such as nats://[::1]:4222"))?))
            }
            Some(None) => return Err(fault("an address with a closing bracket")),
            // More than one colon means an IPv6 address without brackets.
            None if place.matches(':').count() > 1 => (place, None),
            None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control() || "/?#".contains(c)) {
            return Err(fault("an address with a host, such as nats://localhost:4222"));
        }
        let port = port.map_or(Ok(DEFAULT_PORT), |port| {
            port.parse().ok().filter(|port| *port > 0).ok_or_else(|| fault("an address with a port from 1 to 65535"))
        })?;
        Ok(Self { host: host.to_owned(), port, tls, login, certified: None })
    }

    /// Returns the name that the server's certificate must have.
    pub(super) fn certified_name(&self) -> &str {
        self.certified.as_deref().unwrap_or(&self.host)
    }

    /// Returns the address `other`, which the server at `self` has announced, with the same credentials. If `other` is
    /// numeric, its certificate must have the name of this server.
    pub(super) fn announced(&self, other: &Self) -> Self {
        let is_numeric = |host: &str| host.parse::<IpAddr>().is_ok();
        let takes_name = is_numeric(&other.host) && !is_numeric(self.certified_name());
        let certified = takes_name.then(|| self.certified_name().to_owned());
        Self { login: self.login.clone(), certified, ..other.clone() }
    }

    /// Returns whether both addresses have the same host and port.
    pub(super) fn is_same_place(&self, other: &Self) -> bool {
        self.host.eq_ignore_ascii_case(&other.host) && self.port == other.port
    }
}

/// Shows the place, without credentials.
impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Decodes percent-encoding such as `%40`. Returns `None` if a percent sign has no two digits after it, or if the bytes
/// are not UTF-8.
fn decode(text: &str) -> Option<String> {
    let is_digit = |byte: &u8| byte.is_ascii_hexdigit();
    let mut encoded = text.split('%').skip(1).map(|after| after.as_bytes().get(..2));
    let is_valid = encoded.all(|digits| digits.is_some_and(|digits| digits.iter().all(is_digit)));
    if is_valid { percent_decode_str(text).decode_utf8().ok().map(Into::into) } else { None }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_optional_parts() {
        let login = |user: &str, password: Option<&str>| Some((user.to_owned(), password.map(str::to_owned)));
        let cases = [
            ("localhost", ("localhost", 4222, false, None)),
            ("nats://localhost:5000/", ("localhost", 5000, false, None)),
            ("tls://demo.nats.io", ("demo.nats.io", 4222, true, None)),
            ("nats://[::1]:7", ("::1", 7, false, None)),
            ("[::1]", ("::1", 4222, false, None)),
            ("::1", ("::1", 4222, false, None)),
            ("nats://me:p%40ss%3a@host:1", ("host", 1, false, login("me", Some("p@ss:")))),
            ("nats://t0ken@host", ("host", 4222, false, login("t0ken", None))),
        ];
        for (text, (host, port, tls, login)) in cases {
            let expected = ServerAddress { host: host.to_owned(), port, tls, login, certified: None };
            let address = ServerAddress::parse(text).unwrap();
            assert!(address == expected, "{text}: {address}");
            assert!(ServerAddress::parse(&address.to_string()).unwrap().is_same_place(&address));
        }
    }

    /// From nats.go's `addURLToPool` (Apache-2.0).
    #[test]
    fn a_numeric_address_that_a_server_names_has_a_certificate_of_its_name() {
        let parse = |text| ServerAddress::parse(text).unwrap();
        let named = parse("nats://me:pw@nats.example.com").announced(&parse("10.0.0.2"));
        assert_eq!((named.host.as_str(), named.certified_name()), ("10.0.0.2", "nats.example.com"));
        assert_eq!(
            named.announced(&parse("[::1]")).certified_name(),
            "nats.example.com",
            "even over several announcements"
        );
        assert_eq!(named.announced(&parse("other.example.com")).certified_name(), "other.example.com");
        assert_eq!(parse("10.0.0.1").announced(&parse("10.0.0.2")).certified_name(), "10.0.0.2");
        assert_eq!(named.login, Some(("me".to_owned(), Some("pw".to_owned()))));
    }

    #[test]
    fn malformed_addresses_are_refused_without_their_password() {
        let cases = [
            ("ws://host", "server is \"ws://host\", but must be an address with the scheme nats or tls"),
            ("", "server is \"\", but must be an address with a host, such as nats://localhost:4222"),
            (
                "nats://:4222",
                "server is \"nats://:4222\", but must be an address with a host, such as nats://localhost:4222",
            ),
            ("host:99999", "server is \"host:99999\", but must be an address with a port from 1 to 65535"),
            ("host:0", "server is \"host:0\", but must be an address with a port from 1 to 65535"),
            ("[::1", "server is \"[::1\", but must be an address with a closing bracket"),
            ("[::1]4", "server is \"[::1]4\", but must be an address such as nats://[::1]:4222"),
            (
                "nats://me:secret@:1",
                "server is \"nats://…@:1\", but must be an address with a host, such as nats://localhost:4222",
            ),
            ("me%:pw@host", "server is \"…@host\", but must be an address with valid percent-encoding"),
            ("%ff@host", "server is \"…@host\", but must be an address with valid percent-encoding"),
            ("me:%zz@host", "server is \"…@host\", but must be an address with valid percent-encoding"),
        ];
        for (text, expected) in cases {
            assert_eq!(ServerAddress::parse(text).unwrap_err().to_string(), expected);
        }
    }
}
