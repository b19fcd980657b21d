//! Formats of texts and numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use jiff::civil::Date;
use serde_json::Value;
use uuid::Uuid;

use homeostat_objects::store::is_subdomain;

/// A format that is checked. All other formats are only descriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextFormat {
    Bytes,
    Cidr,
    Date,
    DateTime,
    Email,
    Hostname,
    Int32,
    Int64,
    Ip,
    Ipv4,
    Ipv6,
    Uri,
    Uuid,
}

impl TextFormat {
    /// Returns the format with this name, if it is checked.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "byte" => Self::Bytes,
            "cidr" => Self::Cidr,
            "date" => Self::Date,
            "date-time" => Self::DateTime,
            "email" => Self::Email,
            "hostname" => Self::Hostname,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "ip" => Self::Ip,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "uri" => Self::Uri,
            "uuid" => Self::Uuid,
            _ => return None,
        })
    }

    /// Returns the rule that a value violates. A value of another type violates none.
    pub(super) fn broken_rule(self, value: &Value) -> Option<&'static str> {
        let (holds, rule) = match (self, value) {
            (Self::Int32, Value::Number(_)) => {
                (value.as_i64().is_none_or(|number| i32::try_from(number).is_ok()), "must fit into 32 bits")
            }
            (Self::Int64, Value::Number(_)) => (value.as_i64().is_some() || value.is_f64(), "must fit into 64 bits"),
            (Self::Int32 | Self::Int64, _) => return None,
            (_, Value::String(text)) => self.check(text),
            _ => return None,
        };
        (!holds).then_some(rule)
    }

    fn check(self, text: &str) -> (bool, &'static str) {
        match self {
            Self::Bytes => (BASE64_STANDARD.decode(text).is_ok(), "must be base64"),
            Self::Cidr => (is_cidr(text), "must be an IP address and a prefix length, such as 10.0.0.0/8"),
            Self::Date => (text.len() == 10 && text.parse::<Date>().is_ok(), "must be a date, such as 2024-02-29"),
            Self::DateTime => (is_date_time(text), "must be a time of RFC 3339, such as 2024-02-29T12:00:00Z"),
            Self::Email => (is_email(text), "must be an email address"),
            Self::Hostname => (is_subdomain(&text.to_ascii_lowercase()), "must be a host name"),
            Self::Ip => (text.parse::<IpAddr>().is_ok(), "must be an IP address"),
            Self::Ipv4 => (text.parse::<Ipv4Addr>().is_ok(), "must be an IPv4 address"),
            Self::Ipv6 => (text.parse::<Ipv6Addr>().is_ok(), "must be an IPv6 address"),
            Self::Uri => (is_uri(text), "must be a URI with a scheme"),
            Self::Uuid => (text.len() == 36 && Uuid::try_parse(text).is_ok(), "must be a UUID"),
            Self::Int32 | Self::Int64 => (true, ""),
        }
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.bytes().all(|digit| digit.is_ascii_digit()) && length.parse::<u8>().is_ok_and(|length| length <= most)
}

/// Returns whether a text is an RFC 3339 time. `jiff` also accepts other forms, which have other letters.
fn is_date_time(text: &str) -> bool {
    let is_written = text.bytes().all(|byte| byte.is_ascii_digit() || b"-:.+TtZz".contains(&byte));
    is_written
        && text.as_bytes().get(10).is_some_and(|letter| b"Tt".contains(letter))
        && text.parse::<Timestamp>().is_ok()
}

fn is_email(text: &str) -> bool {
    let Some((user, host)) = text.rsplit_once('@') else { return false };
    !user.is_empty() && !user.contains(char::is_whitespace) && is_subdomain(&host.to_ascii_lowercase())
}

fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
        && !rest.is_empty()
        && !rest.contains(|letter: char| letter.is_whitespace() || letter.is_control())
}
