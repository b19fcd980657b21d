//! Streams over TLS. Everything else about TLS is tested through the public interface.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::*;

type TlsClient = StreamOwned<ClientConnection, TcpStream>;

/// Starts a server with streams. Returns a client that has read the beginning of its stream.
fn watched() -> (Running<ServerControl>, Receiver<&'static str>, TlsClient) {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = ["server.pem", "server.key"].map(|name| folder.path().join(name));
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, signed.cert.pem()).unwrap();
    std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    let (server, ended) = waiting(|builder| builder.tls(&certificate, &key).stream_life(LONG * 10));

    let mut roots = RootCertStore::empty();
    roots.add(signed.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let session = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut client = StreamOwned::new(session, stream);
    client.write_all(get("/watch").as_bytes()).unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"5\r\nhello\r\n") {
        let mut bytes = [0; 256];
        let read = client.read(&mut bytes).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&bytes[..read]);
    }
    assert_eq!(server.counts().open_streams, 1);
    (server, ended, client)
}

#[test]
fn a_client_that_goes_away_ends_its_stream() {
    let (_server, ended, client) = watched();
    drop(client);
    assert_eq!(ended.recv_timeout(LONG), Ok("ended"));

    // A client that announces that it leaves.
    let (_server, ended, mut client) = watched();
    client.conn.send_close_notify();
    client.flush().unwrap();
    drop(client);
    assert_eq!(ended.recv_timeout(LONG), Ok("ended"));
}

#[test]
fn bytes_that_a_client_sends_during_its_stream_are_dropped() {
    let (server, ended, mut client) = watched();
    for _ in 0..100 {
        client.write_all(get("/other").as_bytes()).unwrap();
    }
    assert!(ended.try_recv().is_err());
    server.stop();
    let mut rest = String::new();
    // Without TLS' closing message, this would fail.
    client.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "0\r\n\r\n");
}
