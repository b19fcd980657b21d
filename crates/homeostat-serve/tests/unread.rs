//! Clients that ask a server for much and read nothing do not fill its memory.
//!
//! It has its own test binary because it measures the live bytes of the whole process through a counting global
//! allocator. The figures are peaks, so no test depends on the time at which it looks.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test, also in its helpers")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use homeostat::Running;
use homeostat_objects::{Client, Kind, MemoryClient, ObjectKey, Patch, PatchTarget};
use homeostat_serve::{ObjectApi, ServedResource, Server, ServerBuilder, ServerControl};
use peak_alloc::PeakAlloc;
use serde_json::json;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

const THING: Kind = Kind::namespaced("example.com", "v1", "Thing");
const MIB: usize = 1 << 20;
/// The time after which a test has hung.
const LONG: Duration = Duration::from_secs(60);
const CLIENTS: usize = 64;
const LISTS: usize = 5;

fn thing(name: &str, bytes: usize, generation: usize) -> serde_json::Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"namespace": "default", "name": name},
        "spec": {"data": "x".repeat(bytes), "generation": generation},
    })
}

fn replace(client: &MemoryClient, number: usize, bytes: usize, generation: usize) {
    let object = thing(&format!("thing-{number}"), bytes, generation);
    let key = ObjectKey::new("default", &format!("thing-{number}"));
    client.patch(&THING, &key, &Patch::Merge(object), PatchTarget::Object).unwrap();
}

/// Starts a server with this many objects of this size. No client is too slow for it.
fn start(
    objects: usize,
    bytes: usize,
    change: impl FnOnce(ServerBuilder) -> ServerBuilder,
) -> (Arc<MemoryClient>, Running<ServerControl>) {
    let client = Arc::new(MemoryClient::builder().history_bytes(MIB).build());
    for number in 0..objects {
        client.create(&THING, thing(&format!("thing-{number}"), bytes, 0)).unwrap();
    }
    let api = ObjectApi::builder(Arc::clone(&client) as Arc<dyn Client>).serve(ServedResource::new(THING));
    let builder = Server::builder((Ipv4Addr::LOCALHOST, 0)).objects(&api.build().unwrap());
    let builder = builder.connections_per_client(2 * CLIENTS).streams_per_client(2 * CLIENTS);
    let server = change(builder.write_timeout(10 * LONG)).build().unwrap().start().unwrap();
    (client, server)
}

fn ask(server: &ServerControl, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    stream
}

/// Reads the first bytes of an answer, so that the server has begun it. Returns the status.
fn status(stream: &mut TcpStream) -> String {
    let mut line = [0; 12];
    stream.read_exact(&mut line).unwrap();
    String::from_utf8_lossy(&line[9..]).into_owned()
}

fn live() -> usize {
    ALLOCATED.current_usage()
}

/// Returns how far the peak of live bytes was above `before`. The server has ended then, so nothing follows.
fn peak_over(before: usize, mut server: Running<ServerControl>) -> usize {
    server.abort();
    server.join_timeout(LONG).unwrap();
    ALLOCATED.peak_usage().saturating_sub(before)
}

const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";

/// The system keeps some 4 MiB for a client that reads nothing. Each client lists 12 MiB, and all objects are replaced
/// before the next client asks. No two lists share objects.
#[test]
fn unread_lists_keep_bounded_memory() {
    let (client, server) = start(12, MIB, |builder| builder.reply_memory(40 * MIB));
    let before = live();
    ALLOCATED.reset_peak_usage();
    let mut answers = Vec::new();
    let clients: Vec<_> = (1..=LISTS)
        .map(|generation| {
            let mut stream = ask(&server, THINGS);
            answers.push(status(&mut stream));
            for number in 0..12 {
                replace(&client, number, MIB, generation);
            }
            stream
        })
        .collect();
    let begun = answers.iter().filter(|status| *status == "200").count();
    assert_eq!(begun, 2, "the lists of one address share 20 MiB: {answers:?}");
    assert!(answers.iter().all(|status| ["200", "429"].contains(&status.as_str())), "{answers:?}");
    let peak = peak_over(before, server);
    assert!(peak < 36 * MIB, "{} KiB for {LISTS} lists", peak / 1024);
    drop(clients);
}

/// The texts of lists are made while they are sent.
#[test]
fn unread_lists_share_the_stored_objects() {
    let (_client, server) = start(16, MIB, |builder| builder.reply_memory(4 * CLIENTS * 16 * MIB));
    let before = live();
    ALLOCATED.reset_peak_usage();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| ask(&server, THINGS)).collect();
    for client in &mut clients {
        assert_eq!(status(client), "200");
    }
    let peak = peak_over(before, server);
    assert!(peak < CLIENTS * MIB / 4, "{} KiB for {CLIENTS} lists", peak / 1024);
}

#[test]
fn unread_watches_keep_bounded_memory() {
    let (client, server) = start(16, MIB, |builder| builder.reply_memory(MIB));
    let version = client.list(&THING, &homeostat_objects::Query::all().limit(1)).unwrap().version;
    let before = live();
    ALLOCATED.reset_peak_usage();
    let watch = |query: &str| ask(&server, &format!("{THINGS}?watch=true{query}"));
    let mut later: Vec<_> = (0..CLIENTS).map(|_| watch(&format!("&resourceVersion={version}"))).collect();
    for client in &mut later {
        assert_eq!(status(client), "200");
    }
    let mut initial: Vec<_> = (0..CLIENTS).map(|_| watch("")).collect();
    let begun = initial.iter_mut().map(status).filter(|status| status == "200").count();
    assert_eq!(begun, 1, "one address has the half of 1 MiB, and all objects have 16 MiB");
    // Each watch is sent 16 MiB in objects of various sizes, and reads none of them.
    for generation in 0..64 {
        for number in 0..4 {
            replace(&client, number, [100, 10_000, 60_000, 200_000][number], generation);
        }
    }
    let peak = peak_over(before, server);
    assert!(peak < 32 * MIB, "{} KiB for {} watches", peak / 1024, 2 * CLIENTS);
}
