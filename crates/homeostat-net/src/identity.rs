//! The certificate of a client, and its private key.

use std::fmt;
use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::crypto::ring::sign::{RsaSigningKey, any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use crate::pem::{PemFault, certificates};
use homeostat::rt::debug_with_causes;

/// A client's certificate with its signing certificates, and its private key.
#[derive(Debug)]
pub struct Identity(CertifiedKey);

/// The problem with a client's certificate or key. It never shows a part of the key.
///
/// The text of this error continues a sentence that begins with the name of the certificate or of the key.
#[derive(Clone, PartialEq, Eq)]
pub enum IdentityFault {
    /// The certificate cannot be used.
    Certificate(PemFault),
    /// The key is not an unencrypted private key in PEM.
    NoKey,
    /// The TLS library cannot sign with a key of this kind.
    Key(&'static str),
    /// The certificate belongs to another key.
    OtherKey,
}

impl Identity {
    /// Joins a certificate and its key, both in PEM. Signing certificates may follow the certificate.
    ///
    /// The certificate is not parsed, unlike in the library's own function: only the server must be able to read it. It
    /// may be of X.509 version 1: `openssl x509 -req` makes such a certificate without extensions.
    ///
    /// # Errors
    ///
    /// If one of them is not PEM, if the key cannot be used, or is not the key of the first certificate.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat_net::Identity;
    ///
    /// let fault = Identity::from_pem(b"no certificate", b"").unwrap_err();
    /// assert_eq!(fault.to_string(), "has no section BEGIN CERTIFICATE");
    /// ```
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, IdentityFault> {
        let chain = certificates(certificate).map_err(IdentityFault::Certificate)?;
        // The causes could show parts of the key.
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| IdentityFault::NoKey)?;
        Self::new(chain, &key)
    }

    pub(crate) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'static>,
    ) -> Result<Self, IdentityFault> {
        let signing = any_supported_type(key).map_err(|_| IdentityFault::Key(describe(key)))?;
        // A certificate contains the public key in exactly this form.
        let is_for_key = signing.public_key().is_none_or(|public| {
            let public: &[u8] = public.as_ref();
            chain.first().is_some_and(|certificate| certificate.windows(public.len()).any(|part| part == public))
        });
        if is_for_key { Ok(Self(CertifiedKey::new(chain, signing))) } else { Err(IdentityFault::OtherKey) }
    }

    pub(super) fn resolver(self) -> Arc<dyn ResolvesClientCert> {
        Arc::new(SingleCertAndKey::from(self.0))
    }
}

/// Describes an unusable key.
fn describe(key: &PrivateKeyDer<'_>) -> &'static str {
    /// The identifiers of algorithms and curves in keys.
    const KINDS: [(&[u8], &str); 6] = [
        (&[6, 5, 0x2b, 0x81, 4, 0, 0x23], "an EC key on the curve P-521"),
        (&[6, 5, 0x2b, 0x81, 4, 0, 0x21], "an EC key on the curve P-224"),
        (&[6, 5, 0x2b, 0x81, 4, 0, 0x0a], "an EC key on the curve secp256k1"),
        (&[6, 3, 0x2b, 0x65, 0x71], "an Ed448 key"),
        (&[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 0x0a], "an RSA-PSS key"),
        (&[6, 7, 0x2a, 0x86, 0x48, 0xce, 0x38, 4, 1], "a DSA key"),
    ];
    let der = key.secret_der();
    let kind = KINDS.iter().find(|(mark, _)| der.windows(mark.len()).any(|part| part == *mark));
    if let Some((_, kind)) = kind {
        return kind;
    }
    match RsaSigningKey::new(key).err().map(|error| error.to_string()) {
        Some(error) if error.contains("TooSmall") => "an RSA key of fewer than 2048 bits",
        Some(error) if error.contains("TooLarge") => "an RSA key of more than 4096 bits",
        _ => "damaged or of an unknown kind",
    }
}

impl fmt::Display for IdentityFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(fault) => fault.fmt(f),
            Self::NoKey => f.write_str("is not an unencrypted private key in PEM"),
            Self::Key(kind) => {
                write!(
                    f,
                    "is {kind}, but must be an RSA key of 2048 to 4096 bits, an EC key on P-256 or P-384, or an "
                )?;
                f.write_str("Ed25519 key")
            }
            Self::OtherKey => f.write_str("is not the key of the client certificate"),
        }
    }
}

debug_with_causes!(IdentityFault);

impl std::error::Error for IdentityFault {}
