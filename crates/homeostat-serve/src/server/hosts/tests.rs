use std::net::{Ipv4Addr, SocketAddr};

use super::*;
use crate::http::{HttpLimits, parse_request_head};

fn head(text: &str) -> RequestHead {
    parse_request_head(format!("{text}\r\n\r\n").as_bytes(), &HttpLimits::default()).unwrap()
}

fn peer(is_tls: bool) -> PeerInfo {
    let local = Ipv4Addr::new(192, 0, 2, 7).into();
    PeerInfo { peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 9)), local, is_tls, certificate: None }
}

#[test]
fn the_server_answers_for_loopback_its_addresses_and_allowed_hosts() {
    let allowed = AllowedHosts(vec!["appliance.example".to_owned()]);
    for host in [
        "localhost",
        "localhost:8080",
        "LocalHost",
        "a.localhost",
        "127.0.0.1:1",
        "127.1.2.3",
        "[::1]:80",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "192.0.2.7:8080",
        "appliance.example:443",
        "Appliance.example.",
    ] {
        let head = head(&format!("GET / HTTP/1.1\r\nHost: {host}"));
        assert_eq!(allowed.check(&head, peer(false).local), Ok(()), "{host}");
    }
    for host in [
        "",
        "evil.example",
        "localhost.evil.example",
        "xlocalhost",
        "127.0.0.1.evil.example",
        "192.0.2.8",
        "0.0.0.0",
        "[::2]",
        "[::1",
        "::1",
        "localhost:x",
        "localhost:99999",
        "a@localhost",
        "localhost/",
        "localhost evil",
        "appliance.example.evil.example",
        "http://localhost",
    ] {
        let head = head(&format!("GET / HTTP/1.1\r\nHost: {host}"));
        assert!(allowed.check(&head, peer(false).local).is_err(), "{host}");
    }
    assert_eq!(allowed.check(&head("GET / HTTP/1.0"), peer(false).local), Ok(()));
}

#[test]
fn an_absolute_target_is_checked_in_place_of_the_header() {
    let check = |text| AllowedHosts::default().check(&head(text), peer(false).local);
    assert!(check("GET http://evil.example/ HTTP/1.1\r\nHost: localhost").is_err());
    assert!(check("GET http://localhost/ HTTP/1.1\r\nHost: evil.example").is_ok());
}

#[test]
fn pages_of_other_origins_are_refused() {
    let check = |headers: &str, is_tls| {
        check_origin(&head(&format!("POST / HTTP/1.1\r\nHost: localhost:8080{headers}")), &peer(is_tls)).is_ok()
    };
    for headers in [
        "",
        "\r\nOrigin: http://localhost:8080",
        "\r\nOrigin: http://LOCALHOST:8080\r\nSec-Fetch-Site: same-origin",
        "\r\nOrigin: https://localhost:8080",
        "\r\nSec-Fetch-Site: none",
    ] {
        assert!(check(headers, false), "{headers}");
    }
    for headers in [
        "\r\nOrigin: null",
        "\r\nOrigin: ",
        "\r\nOrigin: http://localhost",
        "\r\nOrigin: http://localhost:8081",
        "\r\nOrigin: http://evil.example",
        "\r\nOrigin: ftp://localhost:8080",
        "\r\nOrigin: http://localhost:8080\r\nOrigin: http://localhost:8080",
        "\r\nSec-Fetch-Site: cross-site",
        "\r\nSec-Fetch-Site: same-site",
        "\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document",
    ] {
        assert!(!check(headers, false), "{headers}");
    }
    assert!(!check("\r\nOrigin: http://localhost:8080", true), "a page without TLS uses a server with TLS");
}

#[test]
fn a_link_of_another_site_may_open_a_page() {
    let check = |mode: &str| {
        let headers = "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode";
        check_origin(&head(&format!("GET / HTTP/1.1\r\n{headers}: {mode}")), &peer(false)).is_ok()
    };
    assert!(check("navigate\r\nSec-Fetch-Dest: document"));
    assert!(!check("navigate\r\nSec-Fetch-Dest: iframe"));
    assert!(!check("no-cors\r\nSec-Fetch-Dest: script"));
}

#[test]
fn an_origin_without_a_port_has_the_port_of_its_scheme() {
    let check = |host: &str, origin: &str| {
        check_origin(&head(&format!("POST / HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}")), &peer(false)).is_ok()
    };
    assert!(check("h", "http://h") && check("h:80", "http://h") && check("h", "https://h:443"));
    assert!(!check("h:443", "http://h"));
}
