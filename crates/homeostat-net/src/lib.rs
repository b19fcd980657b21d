//! Network connections of clients on blocking sockets: host names, time limits and TLS.
//!
//! The clients of [`homeostat-kubernetes`](https://docs.rs/homeostat-kubernetes) and
//! [`homeostat-nats`](https://docs.rs/homeostat-nats) use this crate. A program needs it only to write another client.
//!
//! | purpose | names |
//! |---|---|
//! | find the addresses of a host before a deadline | [`NameLookUps`], [`LookUpError`] |
//! | connect to one of them before a deadline | [`dial()`], [`DialError`] |
//! | read and write in time | [`DeadlineStream`], [`TimedStream`], [`describe_timeout`] |
//! | TLS settings from PEM | [`Trust`], [`Identity`], [`client_config`], [`PemFault`], [`IdentityFault`] |
//! | the causes of failed handshakes | [`advice()`] |
//!
//! TLS accepts the certificates that `kubectl`, the NATS tools and `openssl` accept, as far as the TLS library allows.
//!
//! Deadlines are times of a [`Clock`](homeostat::Clock). Calls of the system end by real time, so a
//! [held clock](homeostat::ManualClock) ends the waits for host names only.
//!
//! # Example
//!
//! Finds a server, connects to it and reads its greeting, all before one deadline:
//!
//! ```
//! use homeostat::{BoxError, Clock};
//! use homeostat_net::{DeadlineStream, NameLookUps, dial};
//! use std::io::{Read, Write};
//! use std::time::Duration;
//!
//! # let server = std::net::TcpListener::bind("127.0.0.1:0")?;
//! # let port = server.local_addr()?.port();
//! # std::thread::spawn(move || server.accept().and_then(|(mut peer, _)| peer.write_all(b"welcome")));
//! let clock = Clock::system();
//! let deadline = clock.nanos().after(Duration::from_secs(10));
//! let look_ups = NameLookUps::new(clock.clone(), "client-resolver");
//!
//! let addresses = look_ups.find("127.0.0.1", port, deadline, None)?;
//! let stream = dial(&addresses, &clock, deadline, |_socket| Ok::<_, BoxError>(()))?;
//! let mut greeting = [0; 7];
//! DeadlineStream::new(stream, clock, deadline).read_exact(&mut greeting)?;
//! assert_eq!(&greeting, b"welcome");
//! # Ok::<_, BoxError>(())
//! ```
//!
//! TLS settings of a client that trusts the authorities in a file:
//!
//! ```no_run
//! use homeostat_net::{Trust, client_config};
//!
//! let trust = Trust::from_pem(&std::fs::read("ca.pem")?)?;
//! let settings = client_config(trust, None)?;
//! # drop(settings);
//! # Ok::<_, homeostat::BoxError>(())
//! ```
//!
//! # Add it to a program
//!
//! No version is on crates.io yet. These commands use a checkout of the repository, next to the program:
//!
//! ```console
//! cargo add --path ../homeostat
//! cargo add --path ../homeostat/crates/homeostat-net
//! cargo add rustls --no-default-features
//! ```
//!
//! The crate has no features.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod sync;

mod advice;
mod dial;
mod identity;
mod look_up;
mod pem;
mod stream;
#[cfg(all(test, not(loom)))]
mod tests;
mod trust;

use std::sync::Arc;

use rustls::ClientConfig;

pub use self::advice::advice;
pub use self::dial::{DialError, dial};
pub use self::identity::{Identity, IdentityFault};
pub use self::look_up::{LookUpError, NameLookUps};
pub use self::pem::PemFault;
pub use self::stream::{DeadlineStream, TimedStream, describe_timeout};
pub use self::trust::Trust;

/// Returns TLS settings for a client. It trusts the servers of `trust`, and presents the certificate of `identity`.
///
/// # Errors
///
/// If the TLS library refuses them.
///
/// # Examples
///
/// ```
/// use homeostat_net::{Trust, client_config};
///
/// let settings = client_config(Trust::any(), None)?;
/// assert!(!settings.client_auth_cert_resolver.has_certs());
/// # Ok::<_, rustls::Error>(())
/// ```
pub fn client_config(trust: Trust, identity: Option<Identity>) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = trust.add_to(builder)?;
    Ok(match identity {
        Some(identity) => builder.with_client_cert_resolver(identity.resolver()),
        None => builder.with_no_client_auth(),
    })
}
