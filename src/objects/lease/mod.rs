//! Leader election by a lease in a client.
//!
//! `machine.rs` decides, `session.rs` calls the client.

mod elector;
mod machine;
mod mark;
mod record;
mod session;
#[cfg(all(test, not(loom)))]
mod tests;
mod timing;

pub use self::elector::{LeaseElector, LeaseElectorBuilder};
pub use self::mark::FENCE_ANNOTATION;
