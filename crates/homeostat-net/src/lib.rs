//! TLS of clients: which servers they trust, which certificates they present, and advice for failed handshakes.
//!
//! Accepts the certificates that `kubectl`, the NATS tools and `openssl` accept, as far as the TLS library allows.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod advice;
mod identity;
#[cfg(all(test, not(loom)))]
mod tests;
mod trust;

use std::sync::Arc;

use rustls::ClientConfig;

pub use self::advice::advice;
pub use self::identity::Identity;
pub use self::trust::Trust;

/// Returns the settings of a client.
///
/// # Errors
///
/// If the TLS library refuses them.
pub fn client_config(trust: Trust, identity: Option<Identity>) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = trust.add_to(builder)?;
    Ok(match identity {
        Some(identity) => builder.with_client_cert_resolver(identity.resolver()),
        None => builder.with_no_client_auth(),
    })
}
