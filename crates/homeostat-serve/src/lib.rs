//! An HTTP server for people and tools, on plain threads: objects for `kubectl`, health, metrics and a status page.
//!
//! - [`ObjectApi`] serves a client's objects to `kubectl`. Each kind is a [`ServedResource`].
//! - [`StatusPages`] serves a manager's health, metrics and status page.
//! - [`Server`] answers HTTP requests for both. Give its handle to the manager with
//!   [`Component::running`](homeostat::Component::running).
//! - [`AdmissionReviewer`] answers the admission requests of a Kubernetes API server.
//!
//! The example `appliance` in the repository uses all of these except the reviewer. The [guide] lists the [clients of
//! Kubernetes](guide::clients) that work with a served API.
//!
//! # Example
//!
//! Serves one kind, and the pages of its manager:
//!
//! ```
//! use homeostat::{BoxError, Component, Manager};
//! use homeostat_objects::{Kind, KindDefinition, MemoryClient, PrintColumn};
//! use homeostat_serve::{ObjectApi, Server, StatusPages};
//! use std::net::Ipv4Addr;
//! use std::sync::Arc;
//!
//! let sites = KindDefinition::new(Kind::namespaced("example.com", "v1", "Site"))
//!     .column(PrintColumn::string("Title", ".spec.title"));
//! let api = ObjectApi::builder(Arc::new(MemoryClient::new())).serve(sites).serve_events().build()?;
//!
//! let manager = Manager::builder().build()?;
//! let server = Server::builder((Ipv4Addr::LOCALHOST, 0)) // any free port; in a program, such as 8080
//!     .objects(&api)
//!     .status_pages(StatusPages::new(&manager)?.objects(&api))
//!     .build()?
//!     .start()?;
//! println!("open {0}, or run: kubectl --server {0} get sites", server.url());
//! manager.add(Component::running("server", server))?;
//! # let running = manager.start()?;
//! # manager.stop();
//! # running.join()?;
//! // manager.run_until_signal()?; // feature `signals` of `homeostat`
//! # Ok::<_, BoxError>(())
//! ```
//!
//! If the manager's elector or [`Members`](homeostat_objects::Members) keep leases on this server, do not add the
//! server to the manager. Keep its handle in a variable that is dropped after the manager: at its end, the manager
//! gives the leases back.
//!
//! # Add it to a program
//!
//! No version is on crates.io yet. These commands use a checkout of the repository, next to the program:
//!
//! ```console
//! cargo add --path ../homeostat --features signals
//! cargo add --path ../homeostat/crates/homeostat-objects
//! cargo add --path ../homeostat/crates/homeostat-serve
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `tls` | TLS and client certificates: `ServerBuilder::tls` and `ServerBuilder::client_certificates` |
//!
//! # Other crates
//!
//! [`homeostat`] has the manager, and [`homeostat_objects`] the objects. The server works with any client: embedded, of
//! [`homeostat-nats`](https://docs.rs/homeostat-nats) or of
//! [`homeostat-kubernetes`](https://docs.rs/homeostat-kubernetes).
//! [`homeostat-testing`](https://docs.rs/homeostat-testing) has tables of cases for admission hooks.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod guide;
mod sync;

mod access;
mod admission;
mod api;
mod http;
mod kinds;
mod log_limiter;
mod page;
mod server;
mod status;

#[cfg(all(test, not(loom)))]
use homeostat_test_support::until;

pub use self::access::{Access, AccessRequest, AccessTarget, UserInfo};
pub use self::admission::{AdmissionAnswer, AdmissionOperation, AdmissionRequest, AdmissionReviewer, Rejection};
pub use self::api::{ObjectApi, ObjectApiBuilder};
pub use self::http::{IncomingRequest, Reply, ReplyStream};
pub use self::kinds::ServedResource;
pub use self::page::StatusPages;
pub use self::server::{NextHandler, Server, ServerBuilder, ServerControl, ServerCounts};

/// The README's code is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
