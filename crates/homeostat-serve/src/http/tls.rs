//! TLS with certificates from files, which are read again when they change.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::sync::Mutex;
use homeostat::base::{Clock, StartError};
use homeostat::rt::Nanos;
use homeostat::run::BoxError;

/// The shortest interval between two checks of the files.
const PERIOD: Duration = Duration::from_secs(1);

/// The TLS files, in PEM.
#[derive(Clone, Debug)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// The certificate authorities of clients.
    pub(crate) clients: Option<PathBuf>,
}

/// The contents of [`TlsFiles`]. They include the key, so nothing may show them.
#[derive(PartialEq, Eq)]
struct TlsContents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    clients: Option<Vec<u8>>,
}

/// The TLS settings of a server.
pub(crate) struct ServerTls {
    /// The name of the server.
    name: String,
    clock: Clock,
    files: TlsFiles,
    state: Mutex<TlsState>,
}

struct TlsState {
    config: Arc<ServerConfig>,
    /// The last contents that were read, valid or not.
    contents: Option<TlsContents>,
    next_look: Nanos,
}

impl ServerTls {
    /// Reads the files.
    pub(crate) fn new(name: String, clock: Clock, files: TlsFiles) -> Result<Self, StartError> {
        let contents = files.read()?;
        let config = files.config(&contents)?;
        let next_look = clock.nanos().after(PERIOD);
        let state = Mutex::new(TlsState { config, contents: Some(contents), next_look });
        Ok(Self { name, clock, files, state })
    }

    /// Returns the settings for a new connection. Checks the files at most once a second. If new files are unusable,
    /// the previous settings stay.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        {
            let mut state = self.state.lock();
            let now = self.clock.nanos();
            if now < state.next_look {
                return Arc::clone(&state.config);
            }
            // Meanwhile, other connections use the previous settings.
            state.next_look = now.after(PERIOD);
        }
        let contents = match self.files.read() {
            Ok(contents) => contents,
            Err(error) => {
                self.warn(&error);
                return Arc::clone(&self.state.lock().config);
            }
        };
        if self.state.lock().contents.as_ref() == Some(&contents) {
            return Arc::clone(&self.state.lock().config);
        }
        let config = self.files.config(&contents);
        let mut state = self.state.lock();
        state.contents = Some(contents);
        match config {
            Ok(config) => {
                state.config = config;
                let component = self.name.as_str();
                log::info!(component; "{component}: the server uses new certificates");
            }
            Err(error) => self.warn(&error),
        }
        Arc::clone(&state.config)
    }

    fn warn(&self, error: &StartError) {
        let component = self.name.as_str();
        let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
        let error = format!("{error}{source}");
        let error = error.as_str();
        log::warn!(
            component, error;
            "{component}: the server keeps its certificates, because the new ones cannot be used: {error}"
        );
    }
}

impl TlsFiles {
    fn read(&self) -> Result<TlsContents, StartError> {
        Ok(TlsContents {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
            clients: self.clients.as_deref().map(read).transpose()?,
        })
    }

    fn config(&self, contents: &TlsContents) -> Result<Arc<ServerConfig>, StartError> {
        let chain = certificates(&self.certificate, &contents.certificate)?;
        // The cause could show parts of the key.
        let key = PrivateKeyDer::from_pem_slice(&contents.key)
            .map_err(|_| unusable(&self.key, "it has no unencrypted private key in PEM"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| StartError::unavailable("cannot set up TLS", error))?;
        let builder = match (&self.clients, &contents.clients) {
            (Some(path), Some(pem)) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path, pem)? {
                    roots.add(certificate).map_err(|error| unusable(path, error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    // Users without a certificate present tokens.
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| unusable(path, error))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| unusable(&self.certificate, error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, StartError> {
    std::fs::read(path)
        .map_err(|error: io::Error| StartError::unavailable(format!("cannot read {}", path.display()), error))
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| unusable(path, error.to_string()))?;
    if chain.is_empty() { Err(unusable(path, "it has no certificate in PEM")) } else { Ok(chain) }
}

fn unusable(path: &Path, source: impl Into<BoxError>) -> StartError {
    StartError::unavailable(format!("cannot use {} for TLS", path.display()), source)
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("files", &self.files).finish_non_exhaustive()
    }
}
