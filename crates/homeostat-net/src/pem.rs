//! Certificates in PEM.

use std::fmt;

use homeostat::rt::debug_with_causes;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The problem with a text that must have certificates in PEM.
///
/// The text of this error continues a sentence that begins with the name of the certificates.
#[derive(Clone, PartialEq, Eq)]
pub enum PemFault {
    /// The text is not PEM. This is the reason.
    NotPem(String),
    /// The text has no certificate.
    Empty,
    /// No certificate in the text can be read. This is the reason.
    NotCertificates(String),
}

/// Reads all certificates of a text.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemFault> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| PemFault::NotPem(error.to_string()))?;
    if certificates.is_empty() { Err(PemFault::Empty) } else { Ok(certificates) }
}

impl fmt::Display for PemFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPem(cause) => write!(f, "is not PEM: {cause}"),
            Self::Empty => f.write_str("has no section BEGIN CERTIFICATE"),
            Self::NotCertificates(cause) => write!(f, "is not a certificate: {cause}"),
        }
    }
}

debug_with_causes!(PemFault);

impl std::error::Error for PemFault {}
