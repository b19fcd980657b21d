//! TLS with `rustls`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::super::error::NatsError;
use super::super::options::TlsOptions;
use homeostat_net::{Identity, IdentityFault, Trust, advice, client_config};

/// The rule of options that name certificates.
const CERTIFICATES: &str = "a PEM file with certificates";

/// Creates the configuration from the certificates of the options, or else of the system.
pub(super) fn config(options: &TlsOptions) -> Result<Arc<ClientConfig>, NatsError> {
    let trust = if let Some(path) = &options.roots {
        let option = "root_certificates";
        let invalid = |fault| NatsError::invalid(option, path, format!("{CERTIFICATES}: it {fault}"));
        Trust::from_pem(&read(option, path)?).map_err(invalid)?
    } else {
        Trust::system().map_err(|error| NatsError::connect(format!("{error}: set root_certificates")))?
    };
    let client = options.client.as_ref().map(|(certificate, key)| identity(certificate, key)).transpose()?;
    let config = client_config(trust, client);
    Ok(Arc::new(config.map_err(|error| NatsError::connect(format!("TLS cannot be configured: {error}")))?))
}

/// Reads the client's certificate and key.
fn identity(certificate: &Path, key: &Path) -> Result<Identity, NatsError> {
    let option = "client_certificate";
    Identity::from_pem(&read(option, certificate)?, &read(option, key)?).map_err(|fault| match fault {
        IdentityFault::Certificate(fault) => {
            NatsError::invalid(option, certificate, format!("{CERTIFICATES}: it {fault}"))
        }
        fault => NatsError::invalid(option, key, format!("a PEM file with the key of the certificate: it {fault}")),
    })
}

/// Reads a file that an option names.
fn read(option: &str, path: &Path) -> Result<Vec<u8>, NatsError> {
    let unreadable = |error| NatsError::invalid(option, path, format!("{CERTIFICATES}: {error}"));
    std::fs::read(path).map_err(unreadable)
}

/// Describes a connection error. Adds advice if TLS is the cause.
pub(super) fn described(error: &io::Error) -> String {
    match advice(error) {
        "" => error.to_string(),
        advice => format!("{error} ({advice})"),
    }
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
