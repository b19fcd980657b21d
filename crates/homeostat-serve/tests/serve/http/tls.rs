use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use homeostat_objects::Kind;
use homeostat_serve::{Access, AdmissionReviewer, Rejection, ServedResource, UserInfo};
use log::Level;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use tempfile::TempDir;

use super::curl::curl;
use super::*;
use crate::logs::Logs;
use homeostat::base::StartErrorKind;

/// An authority and the certificates that it issues, in PEM.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// Issues a certificate for this host and subject. Returns it with its key.
    fn issue(&self, host: &str, subject: &[(DnType, &str)]) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        [params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem()]
    }

    fn user(&self, name: &str, group: &str) -> [String; 2] {
        self.issue(name, &[(DnType::CommonName, name), (DnType::OrganizationName, group)])
    }
}

/// Writes a new certificate of the server.
fn install(folder: &Path, authority: &Authority) {
    let [certificate, key] = authority.issue("localhost", &[(DnType::CommonName, "the server")]);
    std::fs::write(folder.join("server.key"), key).unwrap();
    std::fs::write(folder.join("server.pem"), certificate).unwrap();
}

fn folder(authority: &Authority) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), authority);
    std::fs::write(folder.path().join("clients.pem"), &authority.certificate).unwrap();
    folder
}

fn start_tls(folder: &TempDir, change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Running<ServerControl> {
    let path = |name: &str| folder.path().join(name);
    start(|builder| change(builder.tls(path("server.pem"), path("server.key"))))
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Connects, trusting this authority and presenting this certificate.
fn connect_tls(
    server: &ServerControl,
    authority: &Authority,
    user: Option<&[String; 2]>,
) -> std::io::Result<TlsStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = match user {
        None => builder.with_no_client_auth(),
        Some([certificate, key]) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), connect(server));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    Ok(stream)
}

#[test]
fn requests_are_served_over_tls() {
    let authority = Authority::new();
    let folder = folder(&authority);
    let server = start_tls(&folder, |builder| builder.token("token", UserInfo::new("ada")));
    for (header, expected) in [("", "401"), ("Authorization: Bearer token\r\n", "404")] {
        // The client reports an error if a reply ends without TLS' closing message.
        let reply = ask(connect_tls(&server, &authority, None).unwrap(), "GET", "/", header);
        assert_eq!(status(&reply), expected);
    }
    let mut stream = connect_tls(&server, &authority, None).unwrap();
    for _ in 0..3 {
        write!(stream, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut bytes = [0; 12];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"HTTP/1.1 401");
        while !bytes.ends_with(b"\r\n\r\n") {
            bytes.rotate_left(1);
            stream.read_exact(&mut bytes[11..]).unwrap();
        }
    }
}

#[test]
fn a_client_without_tls_is_told_to_use_it() {
    let authority = Authority::new();
    let folder = folder(&authority);
    let server = start_tls(&folder, |builder| builder);
    let reply = ask(connect(&server), "GET", "/", "");
    assert!(reply.starts_with("HTTP/1.1 400") && reply.ends_with("the server speaks HTTPS\n"), "{reply}");
    let server = start_tls(&folder, |builder| builder.head_timeout(Duration::from_millis(200)));
    // Neither rubbish nor silence occupies a thread.
    for bytes in [&b"\x16\x03\x01\xff\xff"[..], b"\0\0\0\0\0\0\0\0", b""] {
        let mut stream = connect(&server);
        stream.write_all(bytes).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
}

#[test]
fn certificates_name_users() {
    let authority = Authority::new();
    let folder = folder(&authority);
    let logs = Logs::of("certified");
    let server = start_tls(&folder, |builder| {
        let builder = builder.name("certified").client_certificates(folder.path().join("clients.pem"));
        builder.token("token", UserInfo::new("eve")).authorize(|request| match &*request.user.name {
            "ada" if request.user.groups == ["admins"] => Access::Allow,
            _ => Access::Deny("only ada may".to_owned()),
        })
    });
    let reply_to = |user: Option<&[String; 2]>, header: &str| {
        ask(connect_tls(&server, &authority, user).unwrap(), "GET", "/", header)
    };
    let ask = |user: Option<&[String; 2]>, header: &str| status(&reply_to(user, header)).to_owned();
    assert_eq!(ask(Some(&authority.user("ada", "admins")), ""), "404");
    assert_eq!(ask(Some(&authority.user("ada", "guests")), ""), "403");
    assert_eq!(ask(None, ""), "401");
    assert_eq!(ask(None, "Authorization: Bearer token\r\n"), "403");
    assert_eq!(ask(Some(&authority.user("ada", "admins")), "Authorization: Bearer wrong\r\n"), "401");
    let nobody = authority.issue("nobody", &[]);
    let reply = reply_to(Some(&nobody), "");
    let message = "the client certificate names no user: its subject has no common name (CN)";
    assert!(reply.starts_with("HTTP/1.1 401") && reply.contains(message), "{reply}");
    assert_eq!(ask(Some(&nobody), "Authorization: Bearer token\r\n"), "403", "the token names the user");

    let stranger = Authority::new().user("ada", "admins");
    let refused = connect_tls(&server, &authority, Some(&stranger)).and_then(|mut stream| {
        // With TLS 1.3, the client learns about the refusal when it reads.
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        stream.read(&mut [0])
    });
    assert!(refused.is_err(), "{refused:?}");
    let line = logs.wait_for(Level::Info, "TLS refuses the client at 127.0.0.1: invalid peer certificate");
    assert_eq!(line.field("client"), "127.0.0.1");
    assert_eq!(server.counts().failed_handshakes, 1);
    assert_eq!(server.counts().failed_authentications, 2, "a wrong token, and a certificate without a name");
}

#[test]
fn reviews_are_answered_for_the_certificate_of_an_api_server() {
    let authority = Authority::new();
    let folder = folder(&authority);
    let vms = ServedResource::new(Kind::namespaced("example.com", "v1", "Vm"))
        .validate(|request, _| Err(Rejection::forbidden(format!("{} must wait", request.user.name))));
    let reviewer = AdmissionReviewer::new([vms]).unwrap();
    let server = start_tls(&folder, |builder| {
        let builder = builder.admission_reviews("/admission", &reviewer);
        builder.client_certificates(folder.path().join("clients.pem")).authorize(|request| match &*request.user.name {
            "kube-apiserver" => Access::Allow,
            _ => Access::Deny("only the API server may".to_owned()),
        })
    });
    let request = json!({
        "uid": "u-1", "operation": "CREATE", "kind": {"group": "example.com", "version": "v1", "kind": "Vm"},
        "namespace": "default", "name": "a", "userInfo": {"username": "eve"}, "object": {},
    });
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string();
    let ask = |user: Option<&[String; 2]>| {
        let mut stream = connect_tls(&server, &authority, user).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST /admission/validate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    let reply = ask(Some(&authority.user("kube-apiserver", "system:masters")));
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("eve must wait"), "{reply}");
    assert_eq!(status(&ask(Some(&authority.user("ada", "admins")))), "403");
    assert_eq!(status(&ask(None)), "401");
}

#[test]
fn curl_uses_a_certificate() {
    let authority = Authority::new();
    let folder = folder(&authority);
    let clients = folder.path().join("clients.pem");
    let server = start_tls(&folder, |builder| builder.client_certificates(&clients));
    let [certificate, key] = authority.user("ada", "admins");
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [certificate_path, key_path, authority_path] = ["ada.pem", "ada.key", "clients.pem"].map(path);
    std::fs::write(&certificate_path, certificate).unwrap();
    std::fs::write(&key_path, key).unwrap();
    let url = format!("https://localhost:{}/", server.addresses()[0].port());
    let trust = ["--cacert", &authority_path, "--ipv4", &url];
    if let Some(output) = curl(&trust) {
        assert_eq!(output, "401 0");
        let user = ["--cert", &certificate_path, "--key", &key_path];
        assert_eq!(curl(&[&user[..], &trust].concat()).as_deref(), Some("404 0"));
    }
}

#[test]
fn certificates_are_read_again_when_their_files_change() {
    let logs = Logs::of("reloads");
    let [old, new] = [Authority::new(), Authority::new()];
    let folder = folder(&old);
    let server = start_tls(&folder, |builder| builder.name("reloads"));
    assert!(connect_tls(&server, &old, None).is_ok() && connect_tls(&server, &new, None).is_err());

    let path = folder.path().join("server.pem");
    std::fs::write(&path, "-----BEGIN CERTIFICATE-----\nhalf").unwrap();
    // The server checks its files when a client connects.
    while logs.at(Level::Warn).is_empty() {
        connect_tls(&server, &old, None).unwrap();
    }
    let warning = &logs.at(Level::Warn)[0].message;
    assert!(warning.contains("the server keeps its certificates") && warning.contains("server.pem"), "{warning}");

    install(folder.path(), &new);
    while connect_tls(&server, &new, None).is_err() {}
    assert!(connect_tls(&server, &old, None).is_err());

    std::fs::remove_file(&path).unwrap();
    while logs.at(Level::Warn).len() < 2 {
        connect_tls(&server, &new, None).unwrap();
    }
}

#[test]
fn a_connection_beyond_the_limit_is_refused_by_tls() {
    let authority = Authority::new();
    let folder = folder(&authority);
    let server = start_tls(&folder, |builder| builder.connections(1));
    let first = connect_tls(&server, &authority, None).unwrap();
    let error = connect_tls(&server, &authority, None).unwrap_err();
    assert!(error.to_string().contains("InternalError"), "{error}");
    assert_eq!(server.counts().refused_connections, 1);
    drop(first);
}

#[test]
fn files_that_cannot_be_used_prevent_the_start() {
    let authority = Authority::new();
    let folder = folder(&authority);
    let path = |name: &str| folder.path().join(name);
    let [certificate, key] = ["server.pem", "server.key"].map(path);
    let error = |certificate: &Path, key: &Path, clients: &Path| {
        let builder = Server::builder((Ipv4Addr::LOCALHOST, 0)).tls(certificate, key).client_certificates(clients);
        let error = builder.build().unwrap().start().unwrap_err();
        assert!(error.kind() == StartErrorKind::Unavailable && error.source().is_some());
        error.to_string()
    };
    let clients = path("clients.pem");
    assert!(error(&path("none"), &key, &clients).starts_with("cannot read"));
    assert!(error(&key, &key, &clients).starts_with("cannot use"));
    assert!(error(&certificate, &certificate, &clients).starts_with("cannot use"));
    assert!(error(&certificate, &key, &key).starts_with("cannot use"));
    std::fs::write(&key, authority.user("other", "")[1].as_bytes()).unwrap();
    assert!(error(&certificate, &key, &clients).starts_with("cannot use"), "the key belongs to another certificate");

    let without = Server::builder((Ipv4Addr::LOCALHOST, 0)).client_certificates(&clients).build().unwrap_err();
    assert!(without.to_string().contains("unset without `tls`"), "{without}");
}
