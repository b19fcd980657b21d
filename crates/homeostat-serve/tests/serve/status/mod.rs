//! Health, metrics, status and the status page, through a server.
#![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

mod exposition;
mod health;
mod metrics;
mod pages;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use homeostat::{Manager, Running};
use homeostat_serve::{Server, ServerBuilder, ServerControl, StatusPages};

/// A server with the pages of a manager.
struct Site {
    server: Running<ServerControl>,
}

/// Returns the text of `/metrics`.
#[cfg(target_os = "linux")]
pub(crate) fn metrics_of(manager: &Manager) -> String {
    Site::of(manager).get("/metrics").body
}

/// A reply as received.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Site {
    fn of(manager: &Manager) -> Self {
        Self::with(StatusPages::new(manager).unwrap())
    }

    fn with(pages: StatusPages) -> Self {
        Self::served(pages, |builder| builder)
    }

    /// Serves the pages from a server with other settings.
    fn served(pages: StatusPages, change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let builder = Server::builder((Ipv4Addr::LOCALHOST, 0)).status_pages(pages);
        Self { server: change(builder).build().unwrap().start().unwrap() }
    }

    fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    fn get(&self, target: &str) -> Answer {
        self.request("GET", target)
    }

    fn request(&self, method: &str, target: &str) -> Answer {
        self.send(method, target, "")
    }

    /// Sends a request with this token.
    fn get_as(&self, token: &str, target: &str) -> Answer {
        self.send("GET", target, &format!("Authorization: Bearer {token}\r\n"))
    }

    /// Sends a form with this token.
    fn post_as(&self, token: &str, target: &str, headers: &str, body: &str) -> Answer {
        let length = body.len();
        let media = "Content-Type: application/x-www-form-urlencoded\r\n";
        let headers = format!("Authorization: Bearer {token}\r\n{media}Content-Length: {length}\r\n{headers}");
        self.send_with("POST", target, &headers, body)
    }

    fn send(&self, method: &str, target: &str, headers: &str) -> Answer {
        self.send_with(method, target, headers, "")
    }

    fn send_with(&self, method: &str, target: &str, headers: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let port = self.address().port();
        let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n{headers}");
        write!(stream, "{head}\r\n{body}").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }
}
