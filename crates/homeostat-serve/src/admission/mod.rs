//! Admission: checks and changes objects before they are written.

mod admit;
mod hooks;
mod review;
mod schema;
mod serving;

pub use self::hooks::{AdmissionOperation, AdmissionRequest, Rejection};
pub use self::review::{AdmissionAnswer, AdmissionReviewer};

pub(crate) use self::admit::{AdmissionFailure, Admitted, UnknownFields, admit, admit_deletion};
pub(crate) use self::hooks::AdmissionHooks;
pub(crate) use self::schema::{FieldFault, StructuralSchema};
