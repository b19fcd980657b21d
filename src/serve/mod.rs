//! An HTTP server for people and tools, on plain threads. Feature `serve`.

mod access;
mod admission;
mod api;
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
