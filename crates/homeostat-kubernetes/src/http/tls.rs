//! A client's TLS settings: the trusted certificate authorities and the client's certificate.
//!
//! Certificate files may be replaced at any time. They are read again for each new connection.

use std::fmt;
use std::sync::Arc;

use http::Uri;
use rustls::ClientConfig;

use crate::config::authenticator::Authenticator;
use crate::config::cluster::ConfigParts;
use crate::config::error::{ConfigError, FileOrInline};
use crate::config::identity::ClientCertificate;
use crate::config::secret::Secret;
use crate::sync::Mutex;
use homeostat_net::{Identity, IdentityFault, Trust, client_config};

/// A client's TLS settings.
pub(crate) struct Tls {
    origin: String,
    authority: Option<FileOrInline<Vec<u8>>>,
    insecure: bool,
    /// The server's host and port. A proxy has a different one.
    server: Option<http::uri::Authority>,
    /// The expected name in the server's certificate, if it is not the host.
    server_name: Option<String>,
    certificate: Option<ClientCertificate>,
    authenticator: Arc<Authenticator>,
    used: Mutex<Used>,
}

/// The current settings and the certificates behind them.
struct Used {
    files: Pem,
    settings: Arc<ClientConfig>,
    /// Incremented on each change.
    generation: u64,
}

/// Certificates in PEM.
#[derive(Default, PartialEq, Eq)]
struct Pem {
    authority: Option<Vec<u8>>,
    certificate: Option<(Vec<u8>, Secret<Vec<u8>>)>,
}

impl Tls {
    /// Reads the certificates. Runs no plugin.
    pub(crate) fn new(parts: &ConfigParts, authenticator: Arc<Authenticator>) -> Result<Self, ConfigError> {
        let ConfigParts { origin, authority, insecure, certificate, tls_server_name, .. } = parts.clone();
        let server = parts.server.parse().ok().and_then(|uri: Uri| uri.authority().cloned());
        let files = read(&origin, authority.as_ref(), certificate.as_ref())?;
        let settings = build(&origin, &files, insecure)?;
        let used = Mutex::new(Used { files, settings, generation: 0 });
        Ok(Self { origin, authority, insecure, server, server_name: tls_server_name, certificate, authenticator, used })
    }

    /// Returns the name that this server's certificate must have, if it is not the host of the address.
    pub(crate) fn server_name(&self, uri: &Uri) -> Option<&str> {
        self.server_name.as_deref().filter(|_| uri.authority() == self.server.as_ref())
    }

    /// Returns the settings for a new connection, after reading the files again.
    pub(crate) fn for_connection(&self) -> Arc<ClientConfig> {
        self.refresh();
        Arc::clone(&self.used.lock().settings)
    }

    /// Returns a number that changes with the certificates.
    pub(crate) fn generation(&self) -> u64 {
        self.used.lock().generation
    }

    /// Reads the files again, and takes the certificate that a plugin printed last. Returns a number that changes with
    /// the certificates.
    pub(crate) fn refresh(&self) -> u64 {
        let plugin = self.authenticator.certificate();
        let files = read(&self.origin, self.authority.as_ref(), self.certificate.as_ref()).map(|mut files| {
            if let Some((certificate, key)) = plugin {
                let key = Secret::new(key.reveal().clone().into_bytes());
                files.certificate = Some((certificate.into_bytes(), key));
            }
            files
        });
        let mut used = self.used.lock();
        match files {
            Ok(files) if files == used.files => {}
            Ok(files) => match build(&self.origin, &files, self.insecure) {
                Ok(settings) => *used = Used { files, settings, generation: used.generation + 1 },
                Err(error) => kept(&error),
            },
            Err(error) => kept(&error),
        }
        used.generation
    }
}

/// Logs that new certificates are unusable. A file may be half written.
fn kept(error: &ConfigError) {
    log::warn!(error:%; "keeping the previous certificates, because the new ones cannot be used: {error}");
}

fn read(
    origin: &str,
    authority: Option<&FileOrInline<Vec<u8>>>,
    certificate: Option<&ClientCertificate>,
) -> Result<Pem, ConfigError> {
    let authority = authority.map(|source| source.read(origin, "the certificate authority", |pem| pem));
    let certificate = certificate.map(|ClientCertificate { certificate, key }| {
        let pem = certificate.read(origin, "the client certificate", |pem| pem)?;
        Ok((pem, key.read(origin, "the client key", Secret::new)?))
    });
    Ok(Pem { authority: authority.transpose()?, certificate: certificate.transpose()? })
}

fn build(origin: &str, files: &Pem, insecure: bool) -> Result<Arc<ClientConfig>, ConfigError> {
    let error = |fault: &str| ConfigError::new(origin, fault);
    let trust = if insecure { Trust::any() } else { trusted(origin, files.authority.as_deref())? };
    let identity =
        files.certificate.as_ref().map(|(certificate, key)| identity(origin, certificate, key)).transpose()?;
    let settings = client_config(trust, identity).map_err(|cause| error("TLS cannot be set up").caused_by(cause))?;
    Ok(Arc::new(settings))
}

fn identity(origin: &str, certificate: &[u8], key: &Secret<Vec<u8>>) -> Result<Identity, ConfigError> {
    Identity::from_pem(certificate, key.reveal()).map_err(|fault| {
        let subject = if matches!(fault, IdentityFault::Certificate(_)) { "certificate" } else { "key" };
        ConfigError::new(origin, format!("the client {subject} {fault}"))
    })
}

/// Returns the trusted certificate authorities.
fn trusted(origin: &str, authority: Option<&[u8]>) -> Result<Trust, ConfigError> {
    // A client without TLS needs no authorities.
    let Some(pem) = authority else { return Ok(Trust::system().unwrap_or_else(|_| Trust::none())) };
    Trust::from_pem(pem).map_err(|fault| ConfigError::new(origin, format!("the certificate authority {fault}")))
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("origin", &self.origin).finish_non_exhaustive()
    }
}
