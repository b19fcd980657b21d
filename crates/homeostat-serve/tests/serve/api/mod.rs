//! Objects through the server, over plain HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;

use homeostat::Running;
use homeostat_objects::{Client, Kind, MemoryClient, ObjectKey, Patch, PatchTarget};
use homeostat_serve::{Access, AccessTarget, ObjectApi, ServedResource, Server, ServerControl, UserInfo};
use serde_json::{Value, json};

const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");
const SITES: &str = "/apis/example.com/v1/namespaces/default/sites";

struct Open {
    client: MemoryClient,
    server: Running<ServerControl>,
}

fn open() -> Open {
    let client = MemoryClient::new();
    let site = ServedResource::new(SITE).validate(|request, site| match site["spec"]["owner"].as_str() {
        Some(owner) if owner != request.user.name => {
            Err(homeostat_serve::Rejection::forbidden(format!("{} is not {owner}", request.user.name)))
        }
        _ => Ok(()),
    });
    let api = ObjectApi::builder(Arc::new(client.clone())).serve(site).build().unwrap();
    let server = Server::builder((Ipv4Addr::LOCALHOST, 0))
        .token("the-token-of-ada", UserInfo::new("ada"))
        .token("the-token-of-bob", UserInfo::new("bob"))
        .authorize(|request| match &request.target {
            AccessTarget::Objects { .. } if request.user.name == "bob" && request.verb != "get" => {
                Access::Deny("bob only reads".to_owned())
            }
            _ => Access::Allow,
        })
        .objects(&api);
    Open { client, server: server.build().unwrap().start().unwrap() }
}

impl Open {
    fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    /// Sends a request, and returns the stream of its answer.
    fn send(&self, line: &str, token: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let length = body.len();
        let head = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        BufReader::new(stream)
    }

    /// Sends a request, and returns the answer's status and body.
    fn call(&self, line: &str, token: &str, body: &str) -> (u16, Value) {
        let mut text = String::new();
        self.send(line, token, body).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        (code, serde_json::from_str(body).unwrap_or_default())
    }
}

const ADA: &str = "the-token-of-ada";
const BOB: &str = "the-token-of-bob";

fn site(name: &str, owner: &str) -> String {
    json!({"metadata": {"name": name}, "spec": {"owner": owner}}).to_string()
}

#[test]
fn users_reach_hooks_and_the_authorization() {
    let open = open();
    let (code, created) = open.call(&format!("POST {SITES}"), ADA, &site("a", "ada"));
    assert_eq!((code, &created["metadata"]["name"]), (201, &json!("a")));
    let (code, status) = open.call(&format!("POST {SITES}"), ADA, &site("b", "bob"));
    assert_eq!((code, &status["message"]), (403, &json!("sites.example.com \"b\" is forbidden: ada is not bob")));
    assert_eq!(open.call(&format!("GET {SITES}/a"), BOB, "").0, 200);
    let (code, status) = open.call(&format!("DELETE {SITES}/a"), BOB, "");
    assert_eq!(code, 403);
    assert!(status["message"].as_str().unwrap().ends_with("in the namespace \"default\": bob only reads"), "{status}");
    let (code, status) = open.call(&format!("GET {SITES}"), "another-token", "");
    assert_eq!((code, &status["reason"]), (401, &json!("Unauthorized")));
    let me = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews";
    assert_eq!(open.call(me, BOB, "{}").1["status"]["userInfo"]["username"], "bob");
}

#[test]
fn a_watch_sends_each_event_at_once() {
    let open = open();
    assert_eq!(open.call(&format!("POST {SITES}"), ADA, &site("a", "ada")).0, 201);
    let mut events = open.send(&format!("GET {SITES}?watch=true"), ADA, "");
    let mut next = || loop {
        let mut line = String::new();
        assert!(events.read_line(&mut line).unwrap() > 0, "the watch has ended");
        // Other lines belong to the head or to the chunk format.
        if let Ok(event @ Value::Object(_)) = serde_json::from_str(&line) {
            return event;
        }
    };
    assert_eq!(next()["type"], "ADDED");
    let patch = Patch::Merge(json!({"spec": {"pages": 1}}));
    open.client.patch(&SITE, &ObjectKey::new("default", "a"), &patch, PatchTarget::Object).unwrap();
    let changed = next();
    assert_eq!((&changed["type"], &changed["object"]["spec"]["pages"]), (&json!("MODIFIED"), &json!(1)));
}

#[test]
fn a_stop_of_the_server_ends_watches() {
    let open = open();
    let mut events = open.send(&format!("GET {SITES}?watch=true&timeoutSeconds=600"), ADA, "");
    let mut line = String::new();
    events.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    open.server.stop();
    // The body ends.
    events.read_to_string(&mut line).unwrap();
}
