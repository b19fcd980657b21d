//! An HTTP server for people and tools, on plain threads. Feature `serve`.
//!
//! - [`ObjectApi`] serves the objects of a client to `kubectl`. Each kind is a [`ServedResource`].
//! - [`StatusPages`] serves the health, the metrics and a status page of a manager.
//! - [`Server`] answers the requests to both. Give its handle to the manager with
//!   [`Component::running`](crate::Component::running).
//! - [`AdmissionReviewer`] answers the admission requests of a Kubernetes API server.
//!
//! The example `appliance` has all but the last.

mod access;
mod admission;
mod api;
mod damper;
mod http;
mod kinds;
mod page;
mod server;
mod status;

pub use self::access::{Access, AccessRequest, AccessTarget, UserInfo};
#[cfg(feature = "testing")]
pub(crate) use self::admission::{AdmissionFailure, Admitted};
pub use self::admission::{AdmissionOperation, AdmissionRequest, AdmissionReviewer, Rejection, SchemaFault};
pub use self::api::{ObjectApi, ObjectApiBuilder};
pub use self::kinds::{PrintColumn, RegistryError, ServedResource};
pub use self::page::StatusPages;
pub use self::server::{Server, ServerBuilder, ServerControl, ServerCounts};
