//! Checks the certificates of servers.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    WantsVerifier,
};

use crate::pem::{PemFault, certificates};

/// The servers that a client trusts.
#[derive(Debug)]
pub struct Trust(Trusted);

#[derive(Debug)]
enum Trusted {
    Any,
    Certificates {
        authorities: RootCertStore,
        /// The certificates in the settings. A server that presents one of them needs no other signature.
        known: Vec<CertificateDer<'static>>,
    },
}

impl Trust {
    /// Trusts any server, with any certificate.
    #[must_use]
    pub fn any() -> Self {
        Self(Trusted::Any)
    }

    /// Trusts no server.
    #[must_use]
    pub fn none() -> Self {
        Self(Trusted::Certificates { authorities: RootCertStore::empty(), known: Vec::new() })
    }

    /// Trusts the certificate authorities of the system. Skips unusable ones.
    ///
    /// # Errors
    ///
    /// If the system has none. The error lists the reasons.
    pub fn system() -> io::Result<Self> {
        let found = rustls_native_certs::load_native_certs();
        let mut authorities = RootCertStore::empty();
        authorities.add_parsable_certificates(found.certs);
        if authorities.is_empty() {
            let reasons: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
            let text = format!("the system has no certificate authorities ({})", reasons.join("; "));
            return Err(io::Error::new(ErrorKind::NotFound, text));
        }
        Ok(Self(Trusted::Certificates { authorities, known: Vec::new() }))
    }

    /// Trusts servers that present one of these certificates in PEM, or a certificate that one of these has signed.
    /// Skips certificates that cannot be read, as Go does.
    ///
    /// # Errors
    ///
    /// If the text is not PEM, or if none of its certificates can be read.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat_net::{PemFault, Trust};
    ///
    /// assert_eq!(Trust::from_pem(b"").unwrap_err(), PemFault::Empty);
    /// ```
    pub fn from_pem(pem: &[u8]) -> Result<Self, PemFault> {
        Self::certificates(certificates(pem)?).map_err(|error| PemFault::NotCertificates(error.to_string()))
    }

    pub(crate) fn certificates(known: Vec<CertificateDer<'static>>) -> Result<Self, Error> {
        let mut authorities = RootCertStore::empty();
        let faults: Vec<_> = known.iter().filter_map(|own| authorities.add(own.clone()).err()).collect();
        match faults.into_iter().next() {
            Some(error) if authorities.is_empty() => return Err(error),
            Some(error) => {
                log::warn!(error:%; "skipping a certificate authority that cannot be read: {error}");
            }
            None => {}
        }
        Ok(Self(Trusted::Certificates { authorities, known }))
    }

    pub(crate) fn add_to(
        self,
        builder: ConfigBuilder<ClientConfig, WantsVerifier>,
    ) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
        let verifier: Arc<dyn ServerCertVerifier> = match self.0 {
            Trusted::Any => Arc::new(TrustAny),
            // The library refuses to build a verifier that trusts no server, although its settings can.
            Trusted::Certificates { authorities, .. } if authorities.is_empty() => {
                return Ok(builder.with_root_certificates(authorities));
            }
            Trusted::Certificates { authorities, known } => {
                let provider = Arc::clone(builder.crypto_provider());
                let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(authorities), provider).build();
                let signed = signed.map_err(|error| Error::General(error.to_string()))?;
                Arc::new(TrustCertificates { signed, known })
            }
        };
        Ok(builder.dangerous().with_custom_certificate_verifier(verifier))
    }
}

/// Accepts certificates that an authority has signed, and the certificates in the settings themselves.
///
/// The second rule is the same as in Go and `openssl`. It covers a certificate that signs itself as an authority, which
/// the library refuses for servers, and a server's certificate with an unknown authority.
#[derive(Debug)]
struct TrustCertificates {
    signed: Arc<WebPkiServerVerifier>,
    known: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for TrustCertificates {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        use CertificateError::{
            Expired, ExpiredContext, InvalidPurpose, InvalidPurposeContext, NotValidYet, NotValidYetContext,
        };

        let signed = self.signed.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match signed {
            // The library checks the period of validity before everything else, so each other error means that the
            // period is valid.
            Err(Error::InvalidCertificate(
                Expired
                | ExpiredContext { .. }
                | NotValidYet
                | NotValidYetContext { .. }
                | InvalidPurpose
                | InvalidPurposeContext { .. },
            )) => signed,
            Err(_) if self.known.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            signed => signed,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signed).map_err(of_handshake)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signed).map_err(of_handshake)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// Distinguishes a wrong signature of the handshake from a wrong signature of a certificate.
fn of_handshake(error: Error) -> Error {
    match error {
        Error::InvalidCertificate(CertificateError::BadSignature) => Error::General(
            "the server's signature is wrong, or made with an RSA key of fewer than 2048 bits, which this client cannot \
             check"
                .to_owned(),
        ),
        error => error,
    }
}

/// Accepts any certificate and any signature, so the library need not support the key.
///
/// Checking the signature would not help: an attacker has a certificate and a key too.
#[derive(Debug)]
pub(super) struct TrustAny;

impl ServerCertVerifier for TrustAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        use SignatureScheme as Scheme;

        vec![
            Scheme::ECDSA_NISTP256_SHA256,
            Scheme::ECDSA_NISTP384_SHA384,
            Scheme::ECDSA_NISTP521_SHA512,
            Scheme::ED25519,
            Scheme::ED448,
            Scheme::RSA_PSS_SHA256,
            Scheme::RSA_PSS_SHA384,
            Scheme::RSA_PSS_SHA512,
            Scheme::RSA_PKCS1_SHA256,
            Scheme::RSA_PKCS1_SHA384,
            Scheme::RSA_PKCS1_SHA512,
            Scheme::RSA_PKCS1_SHA1,
            Scheme::ECDSA_SHA1_Legacy,
        ]
    }
}
