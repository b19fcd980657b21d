//! Many threads write to a full socket: callers begin the writes, and the writer thread completes them.

use homeostat_nats::NatsOptions;

use super::tls::{Certificates, TLS};
use crate::forwarder::{Flow, Forwarder};
use crate::support::server::TestServer;
use crate::support::{options, spawn};
use crate::until::until;

const THREADS: u8 = 16;

/// Sends large requests through a proxy that stalls until the socket is full. Each thread must receive its own bytes.
fn large_requests_arrive_whole(server: &TestServer, configure: impl Fn(NatsOptions) -> NatsOptions) {
    let proxy = Forwarder::to(&server.address());
    let answering = configure(options(&server.url())).connect().unwrap();
    let service = answering.subscribe("echo").unwrap();
    answering.flush().unwrap();
    let other = answering.clone();
    let service = spawn(move || {
        while let Ok(request) = service.recv() {
            other.reply(&request, &request.payload).unwrap();
        }
    });
    let connection = configure(options(&proxy.address)).connect().unwrap();
    let body = |thread: u8, round: u8| -> Vec<u8> {
        (0..1_000_000_u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1] ^ thread ^ (round << 5)).collect()
    };
    proxy.set_flow(Flow::Held);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let connection = connection.clone();
            spawn(move || {
                for round in 0..3 {
                    let sent = body(thread, round);
                    assert!(connection.request("echo", &sent).unwrap().payload == sent, "{thread}, {round}");
                }
            })
        })
        .collect();
    // More bytes than the buffers of both sockets hold.
    until("full socket", || (connection.status().requests >= 10).then_some(()));
    proxy.set_flow(Flow::Passing);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!((connection.status().connects, connection.status().requests), (1, 0));
    answering.close();
    service.join().unwrap();
}

#[test]
fn large_requests_arrive_whole_through_a_full_socket() {
    large_requests_arrive_whole(&TestServer::with_arguments(&[]), |options| options);
}

#[test]
fn large_requests_arrive_whole_through_a_full_socket_with_tls() {
    let server = TestServer::with_files(&format!("{TLS} }}"), &Certificates::new().files());
    let roots = server.folder().join("ca.pem");
    large_requests_arrive_whole(&server, |options| options.root_certificates(&roots));
}
