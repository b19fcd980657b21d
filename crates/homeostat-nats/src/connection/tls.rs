//! TLS with `rustls`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection};

use super::super::error::NatsError;
use super::super::options::TlsOptions;
use homeostat_net::{Identity, Trust, advice, client_config};

/// Creates the configuration from the certificates of the options, or else of the system.
pub(super) fn config(options: &TlsOptions) -> Result<Arc<ClientConfig>, NatsError> {
    let trust = if let Some(path) = &options.roots {
        let invalid = |error| NatsError::invalid("root_certificates", path, format!("valid certificates: {error}"));
        Trust::certificates(certificates("root_certificates", path)?).map_err(invalid)?
    } else {
        let found = rustls_native_certs::load_native_certs();
        let trust = Trust::system(found.certs);
        if trust.is_empty() {
            let reasons: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
            let reasons = reasons.join("; ");
            return Err(NatsError::connect(format!(
                "the system has no certificate authorities ({reasons}): set root_certificates"
            )));
        }
        trust
    };
    let client = options.client.as_ref().map(|(certificate, key)| identity(certificate, key)).transpose()?;
    let config = client_config(trust, client);
    Ok(Arc::new(config.map_err(|error| NatsError::connect(format!("TLS cannot be configured: {error}")))?))
}

/// Reads the client's certificate and key.
fn identity(certificate: &Path, key_path: &Path) -> Result<Identity, NatsError> {
    let chain = certificates("client_certificate", certificate)?;
    let fault = |rule: String| NatsError::invalid("client_certificate", key_path, rule);
    let key = PrivateKeyDer::from_pem_file(key_path)
        .map_err(|error| fault(format!("a PEM file with the key, which is not encrypted: {error}")))?;
    Identity::new(chain, &key).map_err(|error| fault(format!("a PEM file with the key of the certificate: it {error}")))
}

/// Describes a connection error. Adds advice if TLS is the cause.
pub(super) fn described(error: &io::Error) -> String {
    match advice(error) {
        "" => error.to_string(),
        advice => format!("{error} ({advice})"),
    }
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, NatsError> {
    let fault = |error: String| NatsError::invalid(option, path, format!("a PEM file with certificates: {error}"));
    let read = CertificateDer::pem_file_iter(path).map_err(|error| fault(error.to_string()))?;
    let certificates = read.collect::<Result<Vec<_>, _>>().map_err(|error| fault(error.to_string()))?;
    if certificates.is_empty() { Err(fault("it has none".to_owned())) } else { Ok(certificates) }
}

/// Creates a client session. The server's certificate must have the name `host`.
pub(super) fn session(config: Arc<ClientConfig>, host: &str) -> Result<ClientConnection, NatsError> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| NatsError::invalid("server", host, "a host name or an IP address"))?;
    let mut session = ClientConnection::new(config, name)
        .map_err(|error| NatsError::connect(format!("TLS cannot be started: {error}")))?;
    session.set_buffer_limit(None);
    Ok(session)
}
