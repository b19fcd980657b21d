//! Handshakes in memory.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot continue has failed, even in its helpers"
)]

use std::io::{self, ErrorKind};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, DigitallySignedStruct, Error, ServerConfig, ServerConnection,
    SideData, SignatureScheme,
};

use super::identity::IdentityFault;
use super::{Identity, PemFault, Trust, advice, client_config};

type Certificate = CertificateDer<'static>;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificate(pem: &str) -> Certificate {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

fn key(pem: &str) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap()
}

const V1_CLIENT: [&str; 2] = [include_str!("certificates/v1-client.pem"), include_str!("certificates/v1-client.key")];

/// A server's certificate and its key.
struct Server(Certificate, PrivateKeyDer<'static>);

/// Returns the parameters of a certificate for `localhost`.
fn params() -> CertificateParams {
    CertificateParams::new(["localhost".to_owned()]).unwrap()
}

fn authority_params() -> CertificateParams {
    let mut params = params();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// Makes a certificate that signs itself.
fn self_signed(params: &CertificateParams) -> Server {
    let own = KeyPair::generate().unwrap();
    Server(certificate(&params.self_signed(&own).unwrap().pem()), key(&own.serialize_pem()))
}

/// Makes a certificate that an authority has signed. Returns the authority too.
fn signed(params: &CertificateParams) -> (Server, Certificate) {
    let (own, key_of_authority, authority) =
        (KeyPair::generate().unwrap(), KeyPair::generate().unwrap(), authority_params());
    let authority_certificate = certificate(&authority.self_signed(&key_of_authority).unwrap().pem());
    let issuer = Issuer::new(authority, key_of_authority);
    let signed = params.signed_by(&own, &issuer).unwrap();
    (Server(certificate(&signed.pem()), key(&own.serialize_pem())), authority_certificate)
}

impl Server {
    /// Returns settings that make the library ignore the certificate's content.
    fn config(&self, clients: Option<Arc<dyn ClientCertVerifier>>) -> ServerConfig {
        let signing = rustls::crypto::ring::sign::any_supported_type(&self.1).unwrap();
        let shown = SingleCertAndKey::from(CertifiedKey::new(vec![self.0.clone()], signing));
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        builder.with_cert_resolver(Arc::new(shown))
    }

    /// Connects to this server. Returns the error and its advice.
    fn connect(&self, trust: Trust, name: &str) -> Result<(), String> {
        let config = client_config(trust, None).unwrap();
        handshake(config, self.config(None), name).map_err(|error| format!("{error}: {}", advice(&error)))
    }
}

/// Runs a handshake.
fn handshake(client: ClientConfig, server: ServerConfig, name: &str) -> io::Result<()> {
    let name = name.to_owned().try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        // The client's own error says more than the alert that it sends.
        let sent = pass(&mut server, &mut client);
        let received = pass(&mut client, &mut server);
        sent.and(received)?;
    }
    Ok(())
}

fn pass<A: SideData, B: SideData>(from: &mut ConnectionCommon<A>, to: &mut ConnectionCommon<B>) -> io::Result<()> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes)?;
    }
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        to.read_tls(&mut rest)?;
        to.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    }
    Ok(())
}

/// Accepts clients that sign with this key, like a server that can read every certificate.
#[derive(Debug)]
struct KeyOfClient {
    certificate: Certificate,
    key: SubjectPublicKeyInfoDer<'static>,
}

impl ClientCertVerifier for KeyOfClient {
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        assert_eq!(*end_entity, self.certificate);
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("this test uses version 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        _: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature_with_raw_key(message, &self.key, signed, &known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

#[test]
fn a_client_can_show_a_certificate_of_version_1() {
    let [pem, key_pem] = V1_CLIENT;
    let identity = Identity::new(vec![certificate(pem)], &key(key_pem)).unwrap();
    let public = rustls::crypto::ring::sign::any_supported_type(&key(key_pem)).unwrap();
    let public = public.public_key().unwrap().into_owned();
    let clients = KeyOfClient { certificate: certificate(pem), key: public };
    let server = self_signed(&params());
    let client = client_config(Trust::any(), Some(identity)).unwrap();
    handshake(client, server.config(Some(Arc::new(clients))), "localhost").unwrap();
}

#[test]
fn a_certificate_for_another_key_is_refused_in_each_version() {
    let (server, _) = signed(&params());
    for own in [certificate(V1_CLIENT[0]), self_signed(&params()).0] {
        assert_eq!(Identity::new(vec![own], &server.1).unwrap_err(), IdentityFault::OtherKey);
    }
    assert!(Identity::new(vec![server.0], &server.1).is_ok());
}

#[test]
fn a_key_that_the_library_cannot_use_is_named() {
    let own = certificate(V1_CLIENT[0]);
    let cases = [
        (include_str!("certificates/p521.key"), "an EC key on the curve P-521"),
        (include_str!("certificates/p521.sec1.key"), "an EC key on the curve P-521"),
        (include_str!("certificates/rsa-1024.key"), "an RSA key of fewer than 2048 bits"),
        (include_str!("certificates/ed448.key"), "an Ed448 key"),
    ];
    for (pem, kind) in cases {
        let fault = Identity::new(vec![own.clone()], &key(pem)).unwrap_err();
        let expected = "but must be an RSA key of 2048 to 4096 bits, an EC key on P-256 or P-384, or an Ed25519 key";
        assert_eq!(fault.to_string(), format!("is {kind}, {expected}"));
    }
}

/// `openssl req -x509` makes an authority. A user may also name the server's own certificate.
#[test]
fn a_server_is_trusted_by_its_own_certificate() {
    let (leaf, _) = signed(&params());
    let (issued_authority, _) = signed(&authority_params());
    for server in [self_signed(&authority_params()), self_signed(&params()), leaf, issued_authority] {
        let own = || Trust::certificates(vec![self_signed(&params()).0, server.0.clone()]).unwrap();
        server.connect(own(), "localhost").unwrap();
        let error = server.connect(own(), "other").unwrap_err();
        assert!(error.ends_with(": the server's certificate is for other names"), "{error}");
    }
}

#[test]
fn the_period_of_a_trusted_certificate_counts() {
    for of in [params, authority_params] {
        let cases = [
            (date_time_ymd(1990, 1, 1), date_time_ymd(2000, 1, 1), "the server's certificate has expired"),
            (
                date_time_ymd(3000, 1, 1),
                date_time_ymd(3001, 1, 1),
                "the server's certificate is not valid yet; compare the clocks",
            ),
        ];
        for (not_before, not_after, advice) in cases {
            let mut params = of();
            (params.not_before, params.not_after) = (not_before, not_after);
            for server in [self_signed(&params), signed(&params).0] {
                let trust = Trust::certificates(vec![server.0.clone()]).unwrap();
                let error = server.connect(trust, "localhost").unwrap_err();
                assert!(error.ends_with(&format!(": {advice}")), "{error}");
            }
        }
    }
}

#[test]
fn an_authority_that_cannot_be_read_does_not_hide_the_others() {
    let (server, authority) = signed(&params());
    let rubbish = || CertificateDer::from(vec![1, 2, 3]);
    server.connect(Trust::certificates(vec![rubbish(), authority]).unwrap(), "localhost").unwrap();
    assert!(Trust::certificates(vec![rubbish()]).is_err());
}

#[test]
fn an_authority_of_version_1_is_trusted() {
    let authority = certificate(include_str!("certificates/v1-authority.pem"));
    let server = Server(
        certificate(include_str!("certificates/v1-signed.pem")),
        key(include_str!("certificates/v1-signed.key")),
    );
    server.connect(Trust::certificates(vec![authority]).unwrap(), "localhost").unwrap();
}

/// The library cannot read these certificates.
#[test]
fn a_client_that_trusts_any_server_reads_no_certificate() {
    let v1 = Server(certificate(V1_CLIENT[0]), key(V1_CLIENT[1]));
    v1.connect(Trust::any(), "localhost").unwrap();
    let mut expired = authority_params();
    expired.not_after = date_time_ymd(2000, 1, 1);
    self_signed(&expired).connect(Trust::any(), "10.0.0.1").unwrap();
    let rubbish = Server(CertificateDer::from(vec![1, 2, 3]), key(V1_CLIENT[1]));
    rubbish.connect(Trust::any(), "localhost").unwrap();
    let schemes = super::trust::TrustAny.supported_verify_schemes();
    assert!(schemes.contains(&SignatureScheme::ECDSA_NISTP521_SHA512));
}

#[test]
fn a_server_that_is_not_trusted_is_refused_with_advice() {
    let (server, authority) = signed(&params());
    let mut named = authority_params();
    named.distinguished_name = DistinguishedName::new();
    named.distinguished_name.push(DnType::CommonName, "other");
    let other = || Trust::certificates(vec![self_signed(&named).0]).unwrap();
    let made_anew = || Trust::certificates(vec![self_signed(&authority_params()).0]).unwrap();
    let another_key = ": the certificate authority of the settings has the right name, but another key than the one that \
                       has signed; was the authority made anew? Also RSA keys of fewer than 2048 bits cannot be checked";
    server.connect(Trust::certificates(vec![authority]).unwrap(), "localhost").unwrap();
    let unknown = ": no certificate authority that this client trusts has signed the server's certificate; \
                   trust the one that has, or this certificate itself";
    let is_authority = ": the server shows the certificate of an authority (CA:TRUE); trust this certificate itself, \
                        or issue one with CA:FALSE";
    let version_1 =
        ": the server's certificate is of X.509 version 1 and has no names; issue one with a subjectAltName";
    let (issued_authority, authority) = signed(&authority_params());
    let (nameless, authority_of_nameless) = signed(&CertificateParams::default());
    let no_names =
        ": the server's certificate has no subjectAltName, and its common name does not count; issue one with names";
    let cases = [
        (&server, other(), unknown),
        (&server, Trust::none(), unknown),
        (&server, made_anew(), another_key),
        (&self_signed(&params()), other(), unknown),
        (&self_signed(&authority_params()), other(), is_authority),
        (&issued_authority, Trust::certificates(vec![authority]).unwrap(), is_authority),
        (&Server(certificate(V1_CLIENT[0]), key(V1_CLIENT[1])), other(), version_1),
        (&nameless, Trust::certificates(vec![authority_of_nameless]).unwrap(), no_names),
    ];
    for (server, trust, advice) in cases {
        let error = server.connect(trust, "localhost").unwrap_err();
        assert!(error.ends_with(advice), "{error}");
    }
}

#[test]
fn a_text_without_certificates_or_key_is_named() {
    let [certificate, key] = V1_CLIENT;
    let no_base64 = "-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n";
    for (pem, shown) in [("", "has no section BEGIN CERTIFICATE"), (key, "has no section BEGIN CERTIFICATE")] {
        let fault = Identity::from_pem(pem.as_bytes(), key.as_bytes()).unwrap_err();
        assert_eq!(fault, IdentityFault::Certificate(PemFault::Empty));
        assert_eq!(fault.to_string(), shown);
        assert_eq!(Trust::from_pem(pem.as_bytes()).unwrap_err().to_string(), shown);
    }
    let fault = Trust::from_pem(no_base64.as_bytes()).unwrap_err();
    assert!(fault.to_string().starts_with("is not PEM: "), "{fault}");
    let rubbish = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
    let fault = Trust::from_pem(rubbish.as_bytes()).unwrap_err();
    assert!(fault.to_string().starts_with("is not a certificate: "), "{fault}");
    for key in ["", certificate] {
        let fault = Identity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err();
        assert_eq!(fault.to_string(), "is not an unencrypted private key in PEM");
    }
    assert!(Identity::from_pem(certificate.as_bytes(), key.as_bytes()).is_ok());
    Trust::from_pem(format!("{rubbish}{certificate}").as_bytes()).unwrap();
}
