//! TLS that a server or client requires, before or after `INFO`, with and without client certificates.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use homeostat_nats::{NatsError, NatsErrorKind};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};

use crate::support::server::TestServer;
use crate::support::{options, spawn};
use crate::until::until;
use homeostat_test_support::system::free_port;

/// An authority, a server certificate and a client certificate, in PEM.
pub(super) struct Certificates {
    authority: String,
    server: [String; 2],
    client: [String; 2],
}

impl Certificates {
    pub(super) fn new() -> Self {
        Self::of("127.0.0.1")
    }

    fn of(server: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let issue = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
            [certificate.pem(), key.serialize_pem()]
        };
        Self { authority, server: issue(server), client: issue("client") }
    }

    pub(super) fn files(&self) -> [(&str, &str); 5] {
        [
            ("ca.pem", &self.authority),
            ("server.pem", &self.server[0]),
            ("server.key", &self.server[1]),
            ("client.pem", &self.client[0]),
            ("client.key", &self.client[1]),
        ]
    }
}

pub(super) const TLS: &str = "tls { cert_file: \"FOLDER/server.pem\", key_file: \"FOLDER/server.key\"";

fn text(error: &NatsError) -> String {
    error.to_string()
}

#[test]
fn a_server_that_requires_tls_gets_it_and_messages_pass() {
    let server = TestServer::with_files(&format!("{TLS} }}"), &Certificates::new().files());
    let roots = server.folder().join("ca.pem");
    let connection = options(&server.url()).root_certificates(&roots).connect().unwrap();
    let subscription = connection.subscribe("a").unwrap();
    for size in [0, 1, 16_383, 16_384, 16_385, 70_000, 1 << 20] {
        connection.publish("a", &vec![b'x'; size]).unwrap();
        assert_eq!(subscription.recv().unwrap().payload.len(), size);
    }
    let error = options(&server.url()).root_certificates(server.folder().join("client.pem")).connect().unwrap_err();
    assert!(text(&error).contains("the TLS handshake failed: invalid peer certificate: "), "{error}");
    let wrong_name = options(&format!("nats://localhost:{}", server.port())).root_certificates(&roots);
    let error = wrong_name.connect().unwrap_err();
    assert!(text(&error).contains("invalid peer certificate: certificate not valid for name"), "{error}");
}

#[test]
fn subscriptions_survive_reconnects_under_tls() {
    let mut server = TestServer::with_files(&format!("{TLS} }}"), &Certificates::new().files());
    let connection = options(&server.url()).root_certificates(server.folder().join("ca.pem")).connect().unwrap();
    let subscription = connection.subscribe("a").unwrap();
    for round in 0..3_u64 {
        server.restart();
        until("reconnect", || (connection.status().connects > round + 1).then_some(()));
        connection.publish("a", b"1").unwrap();
        assert_eq!(subscription.recv().unwrap().payload, b"1");
    }
}

/// Returns a function from a server's number to its configuration in a cluster.
fn cluster() -> impl Fn(usize) -> String {
    let routes = [free_port(), free_port()];
    move |own| {
        let [own, other] = [routes[own], routes[1 - own]];
        format!(
            "\ncluster {{ name: c, listen: \"127.0.0.1:{own}\", routes: [\"nats://127.0.0.1:{other}\"] }}\n\
             server_name: \"server-{own}\"\n"
        )
    }
}

/// Servers announce each other by numeric addresses, and their certificates have only the cluster's name.
#[test]
fn a_server_that_is_named_by_its_number_has_a_certificate_of_the_same_name() {
    let (cluster, certificates) = (cluster(), Certificates::of("localhost"));
    let start = |own| TestServer::with_files(&format!("{TLS} }}{}", cluster(own)), &certificates.files());
    let mut first = start(0);
    let url = format!("nats://localhost:{}", first.port());
    let connection = options(&url).root_certificates(first.folder().join("ca.pem")).connect().unwrap();
    let second = start(1);
    let address = second.url().replace("nats://", "");
    until("second server", || connection.status().servers.contains(&address).then_some(()));
    first.kill();
    until("reconnect", || (connection.status().server == address && connection.status().connected).then_some(()));
    connection.flush().unwrap();
    let error = options(&second.url()).root_certificates(second.folder().join("ca.pem")).connect().unwrap_err();
    assert!(text(&error).contains("certificate not valid for name"), "{error}");
}

/// The connection is encrypted. A server that joins the cluster later has no TLS, and must not receive anything in
/// plain text.
#[test]
fn a_server_that_is_named_later_must_offer_tls_too() {
    let cluster = cluster();
    let mut first = TestServer::with_files(&format!("{TLS} }}{}", cluster(0)), &Certificates::new().files());
    let connection = options(&first.url()).root_certificates(first.folder().join("ca.pem")).connect().unwrap();
    assert_eq!(connection.status().servers.len(), 1);
    let plain = TestServer::with_config(&cluster(1));
    until("second server", || (connection.status().servers.len() == 2).then_some(()));
    first.kill();
    // Attempts to the first server hang now, so that the second one's error becomes visible.
    let silent = TcpListener::bind(("127.0.0.1", first.port())).unwrap();
    let error = until("attempt with the second server", || {
        assert_eq!(connection.status().connects, 1, "a connection without TLS");
        connection.status().last_error.filter(|error| text(error).contains("TLS is required"))
    });
    assert!(text(&error).ends_with("TLS is required, but the server does not offer it"), "{error}");
    drop((plain, silent));
    first.restart();
    until("reconnect", || (connection.status().connects == 2).then_some(()));
    connection.flush().unwrap();
}

#[test]
fn a_client_that_requires_tls_refuses_a_server_without_it() {
    let server = TestServer::with_arguments(&[]);
    let address = format!("tls://127.0.0.1:{}", server.port());
    for options in [options(&address), options(&server.url()).require_tls()] {
        let certificates = server.folder().join("ca.pem");
        std::fs::write(&certificates, Certificates::new().authority).unwrap();
        let error = options.root_certificates(certificates).connect().unwrap_err();
        assert!(text(&error).ends_with("TLS is required, but the server does not offer it"), "{error}");
    }
}

#[test]
fn a_client_certificate_is_shown_to_servers_that_verify() {
    let config = format!("{TLS}, ca_file: \"FOLDER/ca.pem\", verify: true }}");
    let server = TestServer::with_files(&config, &Certificates::new().files());
    let in_folder = |name: &str| server.folder().join(name);
    let base = options(&server.url()).root_certificates(in_folder("ca.pem"));
    let connection =
        base.clone().client_certificate(in_folder("client.pem"), in_folder("client.key")).connect().unwrap();
    connection.flush().unwrap();
    assert_eq!(base.clone().connect().unwrap_err().kind(), NatsErrorKind::Unreachable);
    let error = base.client_certificate(in_folder("client.pem"), in_folder("ca.pem")).connect().unwrap_err();
    assert!(error.is_invalid(), "{error}");
    assert!(text(&error).starts_with("client_certificate is \"") && text(&error).contains("ca.pem"), "{error}");
}

/// `openssl x509 -req` creates such a certificate without extensions.
#[test]
fn a_client_certificate_may_be_of_version_1() {
    const AUTHORITY: &str = include_str!("../../../../homeostat-net/src/tests/certificates/ca.pem");
    const V1: &str = include_str!("../../../../homeostat-net/src/tests/certificates/v1-client.pem");
    const V1_KEY: &str = include_str!("../../../../homeostat-net/src/tests/certificates/v1-client.key");
    const P521: &str = include_str!("../../../../homeostat-net/src/tests/certificates/p521.key");
    let certificates = Certificates::new();
    let of_server = certificates.files();
    let of_client = [("clients.pem", AUTHORITY), ("v1.pem", V1), ("v1.key", V1_KEY), ("p521.key", P521)];
    let files: Vec<_> = of_server.into_iter().chain(of_client).collect();
    let config = format!("{TLS}, ca_file: \"FOLDER/clients.pem\", verify: true }}");
    let server = TestServer::with_files(&config, &files);
    let in_folder = |name: &str| server.folder().join(name);
    let with = |certificate: &str, key: &str| {
        let options = options(&server.url()).root_certificates(in_folder("ca.pem"));
        options.client_certificate(in_folder(certificate), in_folder(key)).connect()
    };
    with("v1.pem", "v1.key").unwrap().flush().unwrap();
    let error = with("v1.pem", "client.key").unwrap_err();
    assert!(error.is_invalid() && text(&error).ends_with("it is not the key of the client certificate"), "{error}");
    let error = with("v1.pem", "p521.key").unwrap_err();
    assert!(error.is_invalid() && text(&error).contains("it is an EC key on the curve P-521, but must be "), "{error}");
    // The server does not know the authority that signed this certificate.
    let error = with("client.pem", "client.key").unwrap_err();
    assert!(text(&error).contains("the server does not accept the client's certificate"), "{error}");
}

/// `openssl req -x509` creates such a certificate.
#[test]
fn a_server_is_trusted_by_its_own_certificate() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let self_signed = [params.self_signed(&key).unwrap().pem(), key.serialize_pem()];
    for [pem, key] in [self_signed, Certificates::new().server] {
        let server = TestServer::with_files(&format!("{TLS} }}"), &[("server.pem", &pem), ("server.key", &key)]);
        let own = server.folder().join("server.pem");
        options(&server.url()).root_certificates(&own).connect().unwrap().flush().unwrap();
        let other_name = options(&format!("nats://localhost:{}", server.port())).root_certificates(&own);
        let error = other_name.connect().unwrap_err();
        assert!(text(&error).contains("(the server's certificate is for other names)"), "{error}");
    }
}

/// A proxy terminates TLS in front of a plain server, because old servers cannot start with TLS.
#[test]
fn tls_may_come_before_info() {
    let certificates = Certificates::new();
    let server = TestServer::with_files("", &certificates.files());
    let chain = vec![CertificateDer::from_pem_slice(certificates.server[0].as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(certificates.server[1].as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
    let port = free_port();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let target = server.port();
    drop(spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut plain = TcpStream::connect(("127.0.0.1", target)).unwrap();
            // In this test, client and server send lines strictly in turns.
            let mut relay = || -> std::io::Result<()> {
                let mut stream = Stream::new(&mut session, &mut client);
                let mut buffer = [0; 4096];
                loop {
                    let count = plain.read(&mut buffer)?;
                    stream.write_all(&buffer[..count])?;
                    stream.flush()?;
                    let count = stream.read(&mut buffer)?;
                    plain.write_all(&buffer[..count])?;
                    if count == 0 {
                        return Ok(());
                    }
                }
            };
            let _ = relay();
        }
    }));
    let url = format!("nats://127.0.0.1:{port}");
    let roots = server.folder().join("ca.pem");
    let connection = options(&url).root_certificates(&roots).tls_first().connect().unwrap();
    connection.flush().unwrap();
    // A server that starts with INFO answers the handshake with text.
    let error = options(&server.url()).root_certificates(&roots).tls_first().connect().unwrap_err();
    assert!(text(&error).contains("the TLS handshake failed: received corrupt message"), "{error}");
}
