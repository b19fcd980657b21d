//! TLS by `rustls`.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::super::error::NatsError;
use super::super::options::TlsOptions;

/// Creates the configuration. Reads the certificates of the options, or else of the system.
pub(super) fn config(options: &TlsOptions) -> Result<Arc<ClientConfig>, NatsError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &options.roots {
        for certificate in certificates("root_certificates", path)? {
            let invalid = |error| NatsError::invalid("root_certificates", path, format!("valid certificates: {error}"));
            roots.add(certificate).map_err(invalid)?;
        }
    } else {
        let found = rustls_native_certs::load_native_certs();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            let reasons: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
            let reasons = reasons.join("; ");
            return Err(NatsError::connect(format!(
                "the system has no certificate authorities ({reasons}): set root_certificates"
            )));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable = |error: rustls::Error| NatsError::connect(format!("TLS cannot be configured: {error}"));
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(unusable)?.with_root_certificates(roots);
    let config = match &options.client {
        None => builder.with_no_client_auth(),
        Some((certificate, key_path)) => {
            let chain = certificates("client_certificate", certificate)?;
            let fault = |error: String| {
                NatsError::invalid("client_certificate", key_path, format!("a PEM file with the key: {error}"))
            };
            let key = PrivateKeyDer::from_pem_file(key_path).map_err(|error| fault(error.to_string()))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| fault(error.to_string()))?
        }
    };
    Ok(Arc::new(config))
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, NatsError> {
    let fault = |error: String| NatsError::invalid(option, path, format!("a PEM file with certificates: {error}"));
    let read = CertificateDer::pem_file_iter(path).map_err(|error| fault(error.to_string()))?;
    let certificates = read.collect::<Result<Vec<_>, _>>().map_err(|error| fault(error.to_string()))?;
    if certificates.is_empty() { Err(fault("it has none".to_owned())) } else { Ok(certificates) }
}

/// Creates the client's side of a session with a server whose certificate must have this name.
pub(super) fn session(config: Arc<ClientConfig>, host: &str) -> Result<ClientConnection, NatsError> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| NatsError::invalid("server", host, "a host name or an IP address"))?;
    let mut session = ClientConnection::new(config, name)
        .map_err(|error| NatsError::connect(format!("TLS cannot be started: {error}")))?;
    session.set_buffer_limit(None);
    Ok(session)
}
