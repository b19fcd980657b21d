//! Advice for failed handshakes.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

/// Returns the likely cause of a failed handshake and how to fix it; empty if the error itself says
/// everything.
#[must_use]
pub fn advice(error: &io::Error) -> &'static str {
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(Error::InvalidCertificate(fault)) => of_certificate(fault),
        Some(Error::AlertReceived(alert)) => of_alert(*alert),
        Some(Error::InvalidMessage(_)) => "the server does not speak TLS",
        _ => "",
    }
}

fn of_certificate(fault: &CertificateError) -> &'static str {
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, Other, UnknownIssuer, UnsupportedSignatureAlgorithmContext,
        UnsupportedSignatureAlgorithmForPublicKeyContext,
    };

    match fault {
        UnknownIssuer => {
            "no certificate authority that this client trusts has signed the server's certificate; \
             trust the one that has, or this certificate itself"
        }
        NotValidForNameContext { presented, .. } if presented.is_empty() => {
            "the server's certificate has no subjectAltName, and its common name does not count; issue one with names"
        }
        NotValidForName | NotValidForNameContext { .. } => "the server's certificate is for other names",
        Expired | ExpiredContext { .. } => "the server's certificate has expired",
        NotValidYet | NotValidYetContext { .. } => "the server's certificate is not valid yet; compare the clocks",
        BadSignature => {
            "the certificate authority of the settings has the right name, but another key than the one that has signed; \
             was the authority made anew? Also RSA keys of fewer than 2048 bits cannot be checked"
        }
        UnsupportedSignatureAlgorithmContext { .. } | UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "a certificate of the server has a key or a signature of a kind that this client cannot check: \
             RSA keys must have 2048 bits or more, EC keys the curve P-256 or P-384, and hashes SHA-256 or better"
        }
        Other(other) => of_text(&other.to_string()),
        _ => "",
    }
}

/// The library has no types for these errors.
fn of_text(fault: &str) -> &'static str {
    if fault.contains("CaUsedAsEndEntity") {
        "the server shows the certificate of an authority (CA:TRUE); trust this certificate itself, \
         or issue one with CA:FALSE"
    } else if fault.contains("UnsupportedCertVersion") {
        "the server's certificate is of X.509 version 1 and has no names; issue one with a subjectAltName"
    } else {
        ""
    }
}

fn of_alert(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::HandshakeFailure => {
            "the server finds no common ground: it may need a client certificate, or have a key of a kind that this \
             client cannot check; RSA keys must have 2048 bits or more, EC keys the curve P-256 or P-384"
        }
        AlertDescription::ProtocolVersion => "the server wants another version of TLS than 1.2 and 1.3",
        _ => "the server does not accept the client's certificate or version of TLS",
    }
}
