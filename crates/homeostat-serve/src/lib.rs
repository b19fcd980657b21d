//! An HTTP server for people and tools, on plain threads.
//!
//! - [`ObjectApi`] serves a client's objects to `kubectl`. Each kind is a [`ServedResource`].
//! - [`StatusPages`] serves a manager's health, metrics and status page.
//! - [`Server`] answers HTTP requests for both. Give its handle to the manager with
//!   [`Component::running`](homeostat::Component::running).
//! - [`AdmissionReviewer`] answers the admission requests of a Kubernetes API server.
//!
//! The example `appliance` uses all of these except the reviewer.

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
pub use self::admission::{
    AdmissionAnswer, AdmissionOperation, AdmissionRequest, AdmissionReviewer, Rejection, SchemaFault,
};
pub use self::api::{ObjectApi, ObjectApiBuilder};
pub use self::kinds::{PrintColumn, RegistryError, ServedResource};
pub use self::page::StatusPages;
pub use self::server::{Server, ServerBuilder, ServerControl, ServerCounts};
