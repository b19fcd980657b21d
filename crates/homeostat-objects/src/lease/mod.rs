//! Leader election with a lease in a client.
//!
//! `machine.rs` decides, `session.rs` makes the calls of an elector, `calls.rs` makes one call.

mod boot;
mod calls;
mod elector;
mod machine;
mod mark;
mod record;
mod session;
mod term;
#[cfg(all(test, not(loom)))]
mod tests;
mod timing;

pub(super) use self::boot::boot_nanos;
pub(super) use self::calls::{LeaseReply, read_lease, write_lease};
pub use self::elector::{LeaseElector, LeaseElectorBuilder};
pub(super) use self::machine::{LeaseAnswer, LeaseCall, LeaseMachine, LeaseWrite};
#[cfg(all(test, not(loom)))]
pub(super) use self::machine::{LeasePurpose, LeaseSpec};
pub use self::mark::FENCE_ANNOTATION;
pub(super) use self::record::{LEASE, found, written};
pub(super) use self::term::LimitedTerm;
pub use self::timing::LeaseTiming;
