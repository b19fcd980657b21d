//! Leader election: one of several processes does the work.

pub(crate) mod elector;
pub(crate) mod error;

pub use self::elector::{Candidate, Elector, Holder, Leadership, Term};
pub use self::error::ElectorError;
