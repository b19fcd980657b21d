//! Leader election: one of several processes does the work.

pub(crate) mod elector;
pub(crate) mod error;
pub(crate) mod holder;

pub use self::elector::{Candidate, Elector, Leadership, Term};
pub use self::error::ElectorError;
pub use self::holder::Holder;
